package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// descriptor points at a blob (https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md).
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// manifest is an image manifest (.../manifest.md), as far as the tests look at it.
type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

// imageConfig is an image configuration (.../config.md), as far as the tests look at it.
type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User       string            `json:"User"`
		Entrypoint []string          `json:"Entrypoint"`
		Cmd        []string          `json:"Cmd"`
		Env        []string          `json:"Env"`
		WorkingDir string            `json:"WorkingDir"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// layout is an OCI image layout with one image.
type layout struct {
	dir    string
	digest string
	config imageConfig
	layers []descriptor
}

// readLayout reads the layout in dir, and requires that it has one image, for one platform.
func readLayout(t *testing.T, dir string) layout {
	t.Helper()
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &index))
	require.Len(t, index.Manifests, 1)
	require.Equal(t, "application/vnd.oci.image.manifest.v1+json", index.Manifests[0].MediaType)

	l := layout{dir: dir, digest: index.Manifests[0].Digest}
	var m manifest
	require.NoError(t, json.Unmarshal(l.blob(t, index.Manifests[0]), &m))
	require.Equal(t, "application/vnd.oci.image.config.v1+json", m.Config.MediaType)
	require.NoError(t, json.Unmarshal(l.blob(t, m.Config), &l.config))
	l.layers = m.Layers
	require.Len(t, l.config.RootFS.DiffIDs, len(l.layers))
	return l
}

// blob returns the contents of a blob, which must be what the descriptor says.
func (l layout) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	sum, ok := strings.CutPrefix(d.Digest, "sha256:")
	require.True(t, ok, d.Digest)
	data, err := os.ReadFile(filepath.Join(l.dir, "blobs", "sha256", sum))
	require.NoError(t, err)
	require.Len(t, data, int(d.Size))
	require.Equal(t, sum, sha256Of(data))
	return data
}

// unpack writes the files of all layers to a new directory, and returns it with the entries in order, as
// "mode uid:gid name".
func (l layout) unpack(t *testing.T) (root string, entries []string) {
	t.Helper()
	root = t.TempDir()
	for i, d := range l.layers {
		require.Equal(t, "application/vnd.oci.image.layer.v1.tar+gzip", d.MediaType)
		zr, err := gzip.NewReader(strings.NewReader(string(l.blob(t, d))))
		require.NoError(t, err)
		data, err := io.ReadAll(zr)
		require.NoError(t, err)
		require.Equal(t, l.config.RootFS.DiffIDs[i], "sha256:"+sha256Of(data))
		entries = append(entries, untar(t, root, data)...)
	}
	return root, entries
}

// untar unpacks one layer below root.
func untar(t *testing.T, root string, data []byte) []string {
	t.Helper()
	var entries []string
	for tr := tar.NewReader(strings.NewReader(string(data))); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		mode := h.FileInfo().Mode()
		require.Zero(t, h.Uid, h.Name)
		require.Zero(t, h.Gid, h.Name)
		entries = append(entries, mode.String()+" "+h.Name)
		file := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.Mkdir(file, mode.Perm()))
		case tar.TypeReg:
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
			require.NoError(t, err)
			_, err = io.Copy(f, tr)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		default:
			require.Failf(t, "unexpected entry", "%s is of type %c", h.Name, h.Typeflag)
		}
		// Whatever the umask made of it.
		require.NoError(t, os.Chmod(file, mode.Perm()))
	}
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
