package snapshot

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The identity of a snapshot in a file.
const (
	fileVersion = "cli.zonewise.dev/v1"
	fileKind    = "Snapshot"
)

// Save writes a snapshot to a file that only its owner may read.
func Save(path string, s *Snapshot) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if !strings.HasSuffix(path, ".gz") {
		return Encode(file, s)
	}
	zip := gzip.NewWriter(file)
	if err := Encode(zip, s); err != nil {
		return err
	}
	return zip.Close()
}

// Encode writes a snapshot: an object with a list for each kind, one line for each object.
func Encode(w io.Writer, s *Snapshot) error {
	out := bufio.NewWriterSize(w, 1<<20)
	head, err := json.Marshal(map[string]any{"apiVersion": fileVersion, "kind": fileKind, "takenAt": s.TakenAt, "missing": s.Missing})
	if err != nil {
		return err
	}
	_, _ = out.Write(head[:len(head)-1]) // an error shows in Flush
	encoder := json.NewEncoder(out)
	for _, k := range kinds {
		objects := s.objects[k.goType]
		if len(objects) == 0 && !k.Needed {
			continue
		}
		_, _ = fmt.Fprintf(out, ",\n%q: [", k.key)
		for i, obj := range objects {
			if i > 0 {
				_ = out.WriteByte(',')
			}
			if err := encoder.Encode(obj); err != nil {
				return err
			}
		}
		_ = out.WriteByte(']')
	}
	_, _ = out.WriteString("}\n")
	return out.Flush()
}

// Load reads a snapshot from a file, compressed or not.
func Load(path string) (*Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	s, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Decode reads what Encode wrote, compressed or not.
func Decode(r io.Reader) (*Snapshot, error) {
	buffered := bufio.NewReaderSize(r, 1<<20)
	var in io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		in = zip
	}
	s := New(time.Time{})
	apiVersion, kind, err := s.decode(json.NewDecoder(in))
	if err != nil {
		return nil, fmt.Errorf("not a snapshot: %w", err)
	}
	return s, s.check(apiVersion, kind)
}

// decode reads one object after the other, so that a large file is not in memory as text.
func (s *Snapshot) decode(d *json.Decoder) (apiVersion, kind string, err error) {
	if err := expect(d, json.Delim('{')); err != nil {
		return "", "", err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", "", err
		}
		switch name {
		case "apiVersion":
			err = d.Decode(&apiVersion)
		case "kind":
			err = d.Decode(&kind)
		case "takenAt":
			err = d.Decode(&s.TakenAt)
		case "missing":
			err = d.Decode(&s.Missing)
		default:
			err = s.decodeKind(d, name)
		}
		if err != nil {
			return "", "", err
		}
	}
	return apiVersion, kind, expect(d, json.Delim('}'))
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("want %s, got %v", want, token)
	}
	return err
}

func (s *Snapshot) decodeKind(d *json.Decoder, name json.Token) error {
	for _, k := range kinds {
		if k.key != name {
			continue
		}
		if err := expect(d, json.Delim('[')); err != nil {
			return err
		}
		for d.More() {
			obj := reflect.New(k.goType.Elem()).Interface().(client.Object) //nolint:forcetypeassert // the kinds are of objects
			if err := d.Decode(obj); err != nil {
				return err
			}
			s.Add(obj)
		}
		return expect(d, json.Delim(']'))
	}
	var ignored json.RawMessage // from a later version
	return d.Decode(&ignored)
}
