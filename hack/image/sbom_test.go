package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

func TestComponents(t *testing.T) {
	const sum, sumHex = "h1:q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s=", "ab"
	for _, tc := range []struct {
		name                      string
		module                    debug.Module
		path, version, purl, hash string
	}{
		{
			name: "as required", module: debug.Module{Path: "example.com/a/v2", Version: "v2.1.0", Sum: sum},
			path: "example.com/a/v2", version: "v2.1.0", purl: "pkg:golang/example.com/a/v2@v2.1.0", hash: strings.Repeat(sumHex, sha256.Size),
		},
		{
			name: "a plus sign", module: debug.Module{Path: "example.com/a", Version: "v29.7.2+incompatible"},
			path: "example.com/a", version: "v29.7.2+incompatible", purl: "pkg:golang/example.com/a@v29.7.2%2Bincompatible",
		},
		{
			name: "replaced by a module", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:", Replace: &debug.Module{Path: "example.com/b", Version: "v1.5.0", Sum: sum}},
			path: "example.com/b", version: "v1.5.0", purl: "pkg:golang/example.com/b@v1.5.0", hash: strings.Repeat(sumHex, sha256.Size),
		},
		{
			name: "replaced by a directory", module: debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "../a"}},
			path: "example.com/a", version: "v1.0.0", purl: "pkg:golang/example.com/a@v1.0.0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := component(&tc.module)
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
}

// TestSBOMIsOfTheBinary: another binary has another serial number, the same one the same document.
func TestSBOMIsOfTheBinary(t *testing.T) {
	src, err := describe(t.Context(), fakeSource(t))
	require.NoError(t, err)
	list := func(arch string) (string, *cdx.BOM, string) {
		file := filepath.Join(t.TempDir(), arch)
		require.NoError(t, src.compile(t.Context(), v1.Platform{OS: "linux", Architecture: arch}, file, t.Output()))
		binary, err := os.ReadFile(file)
		require.NoError(t, err)
		document, err := newSBOM(binary, src)
		require.NoError(t, err)
		var bom cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(document), cdx.BOMFileFormatJSON).Decode(&bom))
		sum := sha256.Sum256(binary)
		return string(document), &bom, hex.EncodeToString(sum[:])
	}
	first, bom, sum := list("amd64")
	require.Equal(t, cdx.SpecVersion1_6, bom.SpecVersion)
	require.Equal(t, "2026-08-01T12:00:00Z", bom.Metadata.Timestamp)
	require.Equal(t, "v1.2.3+test", bom.Metadata.Component.Version)
	require.Equal(t, sum, (*bom.Metadata.Component.Hashes)[0].Value)
	require.Contains(t, *bom.Metadata.Component.Properties, cdx.Property{Name: "zonewise:build:GOARCH", Value: "amd64"})
	require.Len(t, *bom.Components, 1, "the program needs the standard library alone")
	require.Equal(t, "std", (*bom.Components)[0].Name)

	again, _, _ := list("amd64")
	require.Equal(t, first, again)
	_, other, _ := list("arm64")
	require.NotEqual(t, bom.SerialNumber, other.SerialNumber)
}
