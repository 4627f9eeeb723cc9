package snapshot

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/program"
	"zonewise.dev/sim/kinds"
)

// The identity of a snapshot in a file.
const (
	fileVersion = "cli.zonewise.dev/v2"
	fileKind    = "Snapshot"
)

// Save writes a snapshot to a file, see program.WriteFile.
func Save(path string, s *Snapshot) error {
	return program.WriteFile(path, func(w io.Writer) error {
		if !strings.HasSuffix(path, ".gz") {
			return Encode(w, s)
		}
		zip := gzip.NewWriter(w)
		return cmp.Or(Encode(zip, s), zip.Close())
	})
}

// head is the first document of a file.
type head struct {
	metav1.TypeMeta `json:",inline"`

	TakenAt time.Time `json:"takenAt"`
	Missing []Missing `json:"missing,omitempty"`
	Leases  []Lease   `json:"leases,omitempty"`
	// Kinds are those that were looked for, whatever was found.
	Kinds []string `json:"kinds"`
	// Objects is how many documents follow, one for each object.
	Objects int `json:"objects"`
}

var codecs = serializer.NewCodecFactory(kinds.Scheme)

// Encode writes a snapshot as JSON documents, one on each line: a head, and the objects as in manifests.
func Encode(w io.Writer, s *Snapshot) error {
	out, objects := bufio.NewWriterSize(w, 1<<20), s.objectsOf(readable)
	first := head{
		TypeMeta: metav1.TypeMeta{APIVersion: fileVersion, Kind: fileKind}, TakenAt: s.TakenAt, Missing: s.Missing,
		Leases: s.Leases, Objects: len(objects),
	}
	for _, k := range readable {
		first.Kinds = append(first.Kinds, k.Resource)
	}
	if err := json.NewEncoder(out).Encode(first); err != nil {
		return err
	}
	encoder := codecs.LegacyCodec(kinds.Scheme.PrioritizedVersionsAllGroups()...)
	for _, obj := range objects {
		if err := encoder.Encode(obj, out); err != nil {
			return err
		}
	}
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
	var plain io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		plain = zip
	}
	documents := json.NewDecoder(plain)
	var first head
	if err := documents.Decode(&first); err != nil {
		return nil, fmt.Errorf("not a snapshot: %w", err)
	}
	if first.APIVersion != fileVersion || first.Kind != fileKind {
		return nil, fmt.Errorf(
			"not a snapshot: want apiVersion %s and kind %s, got %q and %q", fileVersion, fileKind, first.APIVersion,
			first.Kind,
		)
	}
	s := New(first.TakenAt)
	s.Missing, s.Leases = first.Missing, first.Leases
	for _, k := range readable {
		if !slices.Contains(first.Kinds, k.Resource) {
			s.Missing = append(s.Missing, Missing{Resource: k.Resource, Reason: Unreadable, Detail: "the file is of a version of the program that did not know them"})
		}
	}
	// One object after the other, so that a large file is not in memory as text.
	for i := range first.Objects {
		var document json.RawMessage
		if err := documents.Decode(&document); err != nil {
			return nil, fmt.Errorf("the file ends after %d of %d objects: %w", i, first.Objects, err)
		}
		decoded, _, err := codecs.UniversalDeserializer().Decode(document, nil, nil)
		obj, known := decoded.(client.Object)
		switch {
		case known && err == nil:
			s.Add(obj)
		case err == nil || runtime.IsNotRegisteredError(err):
			if lack := unknownKind(document); s.Has(lack.Resource) {
				s.Missing = append(s.Missing, lack)
			}
		default:
			return nil, fmt.Errorf("object %d of %d: %w", i+1, first.Objects, err)
		}
	}
	if len(List[*v1.Node](s)) == 0 {
		return nil, errors.New("the snapshot has no nodes")
	}
	return s, nil
}

// unknownKind is what a snapshot lacks because of a document of a kind that this program does not know.
func unknownKind(document []byte) Missing {
	var kind metav1.TypeMeta
	_ = json.Unmarshal(document, &kind) // it has been decoded that far
	plural, _ := meta.UnsafeGuessKindToResource(kind.GroupVersionKind())
	return Missing{Resource: plural.GroupResource().String(), Reason: OtherVersion, Detail: kind.APIVersion}
}
