package main

import (
	"crypto/sha256"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
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
