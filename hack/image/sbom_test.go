package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

func TestComponents(t *testing.T) {
	sum := bytes.Repeat([]byte{0xab}, sha256.Size)
	for _, tc := range []struct {
		name          string
		module        debug.Module
		path, version string
		purl, hash    string
	}{
		{
			name: "as required", module: debug.Module{Path: "example.com/a/v2", Version: "v2.1.0", Sum: "h1:q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="},
			path: "example.com/a/v2", version: "v2.1.0", purl: "pkg:golang/example.com/a/v2@v2.1.0", hash: hex.EncodeToString(sum),
		},
		{
			name: "a plus sign", module: debug.Module{Path: "example.com/a", Version: "v29.7.2+incompatible"},
			path: "example.com/a", version: "v29.7.2+incompatible", purl: "pkg:golang/example.com/a@v29.7.2%2Bincompatible",
		},
		{
			name: "replaced by a module", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/b", Version: "v1.5.0"}},
			path: "example.com/b", version: "v1.5.0", purl: "pkg:golang/example.com/b@v1.5.0",
		},
		{
			name: "replaced by a directory", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "../a"}},
			path: "example.com/a", version: "v1.0.0", purl: "pkg:golang/example.com/a@v1.0.0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := componentOf(&tc.module)
			require.NoError(t, err)
			require.Equal(t, tc.path, c.Name)
			require.Equal(t, tc.version, c.Version)
			require.Equal(t, tc.purl, c.PackageURL)
			require.Equal(t, tc.purl, c.BOMRef)
			if tc.hash == "" {
				require.Nil(t, c.Hashes)
			} else {
				require.Equal(t, []cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: tc.hash}}, *c.Hashes)
			}
		})
	}
	_, err := componentOf(&debug.Module{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:?"})
	require.ErrorContains(t, err, "the sum of example.com/a")
}

// TestSBOMIsOfTheBinary: another binary has another serial number, the same one the same document.
func TestSBOMIsOfTheBinary(t *testing.T) {
	src := fakeSource(t)
	at := source{created: time.Unix(1_700_000_000, 0).UTC(), version: "v1.2.3"}
	list := func(arch string) (sbom, *cdx.BOM, string) {
		file := goBuild(t, src, "./cmd/scheduler", "linux", arch)
		b, err := inspect(file)
		require.NoError(t, err)
		s, err := newSBOM(b, at)
		require.NoError(t, err)
		var bom cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(s.document), cdx.BOMFileFormatJSON).Decode(&bom))
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		return s, &bom, hex.EncodeToString(sum[:])
	}
	first, bom, sum := list("amd64")
	require.Equal(t, cdx.SpecVersion1_6, bom.SpecVersion)
	require.Equal(t, "2023-11-14T22:13:20Z", bom.Metadata.Timestamp)
	require.Equal(t, "v1.2.3", bom.Metadata.Component.Version)
	require.Equal(t, sum, (*bom.Metadata.Component.Hashes)[0].Value)
	require.Contains(t, *bom.Metadata.Component.Properties, cdx.Property{Name: "zonewise:build:GOARCH", Value: "amd64"})
	require.Len(t, *bom.Components, 1, "the program needs the standard library alone")
	require.Equal(t, "std", (*bom.Components)[0].Name)

	again, _, _ := list("amd64")
	require.Equal(t, string(first.document), string(again.document))
	_, other, _ := list("arm64")
	require.NotEqual(t, bom.SerialNumber, other.SerialNumber)
}

// TestPushAttachesTheSBOMs: a registry lists each platform's document as a referrer of its image, by the API of
// version 1.1 of the distribution specification or, where a registry does not have that, by the tag that stands in.
func TestPushAttachesTheSBOMs(t *testing.T) {
	for _, api := range []bool{true, false} {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(api)))
		defer server.Close()
		src, out := fakeSource(t), t.TempDir()
		tag := strings.TrimPrefix(server.URL, "http://") + "/team/scheduler:v1"
		push := func() v1.ImageIndex {
			ref, err := runImage(t, "--source", src, "--output", out, "--platform", "linux/amd64,linux/arm64", "--tag", tag, "--push")
			require.NoError(t, err)
			parsed, err := name.ParseReference(ref)
			require.NoError(t, err)
			index, err := remote.Index(parsed, remote.WithContext(t.Context()))
			require.NoError(t, err)
			return index
		}
		push()
		index := push() // a second time adds nothing
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		repository := must(name.NewTag(tag)).Context()
		for _, m := range manifest.Manifests {
			referrers, err := remote.Referrers(repository.Digest(m.Digest.String()), remote.WithContext(t.Context()))
			require.NoError(t, err)
			list, err := referrers.IndexManifest()
			require.NoError(t, err)
			require.Len(t, list.Manifests, 1)
			descriptor, err := remote.Get(repository.Digest(list.Manifests[0].Digest.String()))
			require.NoError(t, err)
			var artifact struct {
				v1.Manifest
				ArtifactType string `json:"artifactType"`
			}
			require.NoError(t, json.Unmarshal(descriptor.Manifest, &artifact))
			require.Equal(t, "application/vnd.cyclonedx+json", artifact.ArtifactType)
			require.Equal(t, sbomType, artifact.Layers[0].MediaType)
			require.Equal(t, m.Digest, artifact.Subject.Digest)
			require.Len(t, artifact.Layers, 1)
			layer, err := remote.Layer(repository.Digest(artifact.Layers[0].Digest.String()))
			require.NoError(t, err)
			r, err := layer.Compressed()
			require.NoError(t, err)
			document, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			file, err := os.ReadFile(filepath.Join(out, sbomName(*m.Platform)))
			require.NoError(t, err)
			require.Equal(t, string(file), string(document), "what is attached is what is written")
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
