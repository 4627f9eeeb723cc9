package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// sbomType is the media type of a CycloneDX document in JSON, and the type of the artifact that carries it.
	sbomType = types.MediaType("application/vnd.cyclonedx+json")
	// emptyType is the media type of the configuration of an artifact that needs none
	// (https://github.com/opencontainers/image-spec/blob/v1.1.1/manifest.md#guidance-for-an-empty-descriptor).
	emptyType = types.MediaType("application/vnd.oci.empty.v1+json")
)

// sbomName is the file of a platform's list of parts, below --output.
func sbomName(p v1.Platform) string {
	return "zonewise-scheduler-" + p.OS + "-" + p.Architecture + ".cdx.json"
}

// sbom is the list of the parts of one binary: a CycloneDX document in JSON.
type sbom struct {
	platform v1.Platform
	document []byte
}

// newSBOM lists the modules that the linker took packages from, as the binary itself says, and the standard library.
// Modules of go.mod that only tests use are in no binary and so not in the list. Equal binaries have equal lists.
func newSBOM(b binary, src source) (sbom, error) {
	info, err := buildinfo.ReadFile(b.path)
	if err != nil {
		return sbom{}, err
	}
	sum, err := sha256Of(b.path)
	if err != nil {
		return sbom{}, err
	}
	main := cdx.Component{
		BOMRef: packageURL(info.Main.Path, src.version), Type: cdx.ComponentTypeApplication, Name: "zonewise-scheduler", Version: src.version,
		Description: src.labels()["org.opencontainers.image.description"], PackageURL: packageURL(info.Main.Path, src.version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: properties(info),
	}
	std := "v" + strings.TrimPrefix(info.GoVersion, "go")
	parts := []cdx.Component{{
		BOMRef: packageURL("std", std), Type: cdx.ComponentTypeLibrary, Name: "std", Version: std, Scope: cdx.ScopeRequired,
		Description: "the Go standard library", PackageURL: packageURL("std", std),
	}}
	refs := []string{parts[0].BOMRef}
	for _, m := range info.Deps {
		c, err := componentOf(m)
		if err != nil {
			return sbom{}, fmt.Errorf("%s: %w", b.path, err)
		}
		parts, refs = append(parts, c), append(refs, c.BOMRef)
	}

	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuidOf(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: src.created.Format(time.RFC3339), Component: &main}
	bom.Components = &parts
	// Which module needs which is not in a binary: all are the program's.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return sbom{}, err
	}
	return sbom{platform: b.platform, document: out.Bytes()}, nil
}

// componentOf describes a module as it is in the binary: where it is replaced, by the module that takes its place. One
// that is replaced by a directory keeps its name, since a path of this machine says nothing to anybody.
func componentOf(m *debug.Module) (cdx.Component, error) {
	switch r := m.Replace; {
	case r != nil && r.Version == "":
		m = &debug.Module{Path: m.Path, Version: m.Version}
	case r != nil:
		m = r
	}
	c := cdx.Component{
		BOMRef: packageURL(m.Path, m.Version), Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, Scope: cdx.ScopeRequired,
		PackageURL: packageURL(m.Path, m.Version),
	}
	if encoded, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return c, fmt.Errorf("the sum of %s: %w", m.Path, err)
		}
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c, nil
}

// properties are the settings of the build that tell what else is in the binary.
func properties(info *debug.BuildInfo) *[]cdx.Property {
	var out []cdx.Property
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "-trimpath", "-tags":
			out = append(out, cdx.Property{Name: "zonewise:build:" + strings.TrimPrefix(s.Key, "-"), Value: s.Value})
		}
	}
	return &out
}

// packageURL names a Go module (https://github.com/package-url/purl-spec).
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

// uuidOf makes a UUID of version 8 (RFC 9562) of a digest, so that one binary has one serial number.
func uuidOf(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func sha256Of(file string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// writeSBOMs writes the documents below dir, and removes those of platforms that an earlier image had.
func (i image) writeSBOMs(dir string) error {
	for _, arch := range machines {
		err := os.Remove(filepath.Join(dir, sbomName(v1.Platform{OS: "linux", Architecture: arch})))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, p := range i.platforms {
		if err := os.WriteFile(filepath.Join(dir, sbomName(p.sbom.platform)), p.sbom.document, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// artifact is a manifest that refers to an image by its subject.
type artifact struct{ raw []byte }

// RawManifest implements remote.Taggable.
func (a artifact) RawManifest() ([]byte, error) { return a.raw, nil }

// MediaType tells the registry what the manifest is.
func (artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// attach writes the document to the registry of the tag as a referrer of the image of its platform, where "oras
// discover", "regctl artifact list" and the registry's own API find it. A registry without that API gets the tag
// that stands in for it.
func (s sbom) attach(ctx context.Context, tag name.Tag, img v1.Image, created time.Time) error {
	subject, err := descriptorOf(img)
	if err != nil {
		return err
	}
	auth := remoteOptions(ctx)
	layers := []v1.Layer{static.NewLayer([]byte("{}"), emptyType), static.NewLayer(s.document, sbomType)}
	blobs := make([]v1.Descriptor, len(layers))
	for i, layer := range layers {
		if err := remote.WriteLayer(tag.Context(), layer, auth...); err != nil {
			return err
		}
		if blobs[i], err = descriptorOf(layer); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": types.OCIManifestSchema1, "artifactType": sbomType,
		"config": blobs[0], "layers": blobs[1:], "subject": subject,
		"annotations": map[string]string{
			"org.opencontainers.image.created": created.Format(time.RFC3339),
			"org.opencontainers.image.title":   sbomName(s.platform),
		},
	})
	if err != nil {
		return err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return remote.Put(tag.Context().Digest(digest.String()), artifact{raw}, auth...)
}

// described is a blob or a manifest.
type described interface {
	MediaType() (types.MediaType, error)
	Digest() (v1.Hash, error)
	Size() (int64, error)
}

// descriptorOf points at a blob or a manifest.
func descriptorOf(d described) (out v1.Descriptor, err error) {
	if out.MediaType, err = d.MediaType(); err != nil {
		return out, err
	}
	if out.Digest, err = d.Digest(); err != nil {
		return out, err
	}
	out.Size, err = d.Size()
	return out, err
}
