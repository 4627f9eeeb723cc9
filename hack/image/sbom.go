package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// sbomType is the media type of a CycloneDX document in JSON, and the type of the artifact that carries it.
	sbomType    = types.MediaType("application/vnd.cyclonedx+json")
	description = "kube-scheduler with the plugins ZoneSpread, ReserveCache and PermitGate"
)

// sbomName is the name of a platform's SBOM file in --output.
func sbomName(p v1.Platform) string {
	return "zonewise-scheduler-" + p.OS + "-" + p.Architecture + ".cdx.json"
}

// newSBOM lists the modules that the linker took packages from, as the binary itself says, and the standard library.
// Modules that only tests use are not listed. Equal binaries have equal lists.
func newSBOM(binary []byte, src source) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(binary)
	main := component(&debug.Module{Path: info.Main.Path, Version: src.version})
	main.Type, main.Name, main.Description = cdx.ComponentTypeApplication, "zonewise-scheduler", description
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	var settings []cdx.Property
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "-trimpath", "-tags":
			settings = append(settings, cdx.Property{Name: "zonewise:build:" + strings.TrimPrefix(s.Key, "-"), Value: s.Value})
		}
	}
	main.Properties = &settings

	components := []cdx.Component{component(&debug.Module{Path: "std", Version: "v" + strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		components = append(components, component(m))
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuidOf(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: src.created.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	// A binary does not say which module needs which, so the program depends on all.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// component describes a module as it is in the binary: if it is replaced, the replacement. A module that is replaced by
// a directory keeps its name, since a path of this machine means nothing elsewhere.
func component(m *debug.Module) cdx.Component {
	switch r := m.Replace; {
	case r != nil && r.Version == "":
		m = &debug.Module{Path: m.Path, Version: m.Version}
	case r != nil:
		m = r
	}
	purl := "pkg:golang/" + m.Path + "@" + url.QueryEscape(m.Version) // https://github.com/package-url/purl-spec
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, Scope: cdx.ScopeRequired, PackageURL: purl}
	if encoded, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if sum, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
	}
	return c
}

// uuidOf makes a UUID of version 8 (RFC 9562) of a digest, so that one binary has one serial number.
func uuidOf(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// attachment is the SBOM as an artifact that refers to the platform's image: registries list it as a referrer, by
// their API (OCI distribution 1.1) or by the tag that stands in for it. The media type of its configuration is its type
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/manifest.md#guidelines-for-artifact-usage).
func (p part) attachment(created time.Time) (v1.Image, error) {
	subject, err := partial.Descriptor(p.image)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType), static.NewLayer(p.sbom, sbomType))
	if err != nil {
		return nil, err
	}
	annotated := mutate.Annotations(image, map[string]string{
		"org.opencontainers.image.created": created.Format(time.RFC3339),
		"org.opencontainers.image.title":   sbomName(p.platform),
	}).(v1.Image)
	return mutate.Subject(annotated, *subject).(v1.Image), nil // last: Annotations would drop it
}
