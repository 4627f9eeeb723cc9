// Package oci reads OCI image layouts for the tests of the image, with the standard library and gzip alone, so that a
// mistake of the library that built an image does not hide itself.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Media types of the OCI image specification, version 1.1.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Descriptor points at a blob (https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md).
type Descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
	Annotations map[string]string `json:"annotations"`
}

// manifest is an image manifest (.../manifest.md), as far as the tests look at it.
type manifest struct {
	Config Descriptor   `json:"config"`
	Layers []Descriptor `json:"layers"`
}

// Config is an image configuration (.../config.md), as far as the tests look at it.
type Config struct {
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

// Layout is an OCI image layout of one image, for one platform or several.
type Layout struct {
	// Digest is what the image is pulled by.
	Digest string
	// Images are the images of the platforms, in the order of the index.
	Images []Image
}

// Image is the image of one platform.
type Image struct {
	// Digest is that of its manifest.
	Digest string
	Config Config
	dir    string
	layers []Descriptor
}

// Read reads the layout in dir, which must name one image.
func Read(t *testing.T, dir string) Layout {
	t.Helper()
	return read(t, dir, func(Descriptor) bool { return true })
}

// ReadTag reads the image that the layout in dir has under a tag, beside others.
func ReadTag(t *testing.T, dir, tag string) Layout {
	t.Helper()
	return read(t, dir, func(d Descriptor) bool { return d.Annotations["org.opencontainers.image.ref.name"] == tag })
}

// read reads the one image of a layout that is asked for.
func read(t *testing.T, dir string, wanted func(Descriptor) bool) Layout {
	t.Helper()
	var root struct {
		Manifests []Descriptor `json:"manifests"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &root))
	platforms := slices.DeleteFunc(root.Manifests, func(d Descriptor) bool { return !wanted(d) })
	require.Len(t, platforms, 1)
	l := Layout{Digest: platforms[0].Digest}
	if platforms[0].MediaType == indexType {
		var index struct {
			Manifests []Descriptor `json:"manifests"`
		}
		require.NoError(t, json.Unmarshal(blob(t, dir, platforms[0]), &index))
		platforms = index.Manifests
	}
	for _, d := range platforms {
		image := readImage(t, dir, d)
		require.Equal(t, d.Platform.OS, image.Config.OS)
		require.Equal(t, d.Platform.Architecture, image.Config.Architecture)
		l.Images = append(l.Images, image)
	}
	return l
}

func readImage(t *testing.T, dir string, d Descriptor) Image {
	t.Helper()
	require.Equal(t, manifestType, d.MediaType)
	image := Image{Digest: d.Digest, dir: dir}
	var m manifest
	require.NoError(t, json.Unmarshal(blob(t, dir, d), &m))
	require.Equal(t, configType, m.Config.MediaType)
	require.NoError(t, json.Unmarshal(blob(t, dir, m.Config), &image.Config))
	image.layers = m.Layers
	require.Len(t, image.Config.RootFS.DiffIDs, len(image.layers))
	return image
}

// For returns the image for an architecture.
func (l Layout) For(t *testing.T, arch string) Image {
	t.Helper()
	for _, image := range l.Images {
		if image.Config.Architecture == arch {
			return image
		}
	}
	require.Failf(t, "no image", "none of %d images is for %s", len(l.Images), arch)
	return Image{}
}

// blob returns the contents of a blob, which must be what the descriptor says.
func blob(t *testing.T, dir string, d Descriptor) []byte {
	t.Helper()
	sum, ok := strings.CutPrefix(d.Digest, "sha256:")
	require.True(t, ok, d.Digest)
	data, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", sum))
	require.NoError(t, err)
	require.Len(t, data, int(d.Size))
	require.Equal(t, sum, SHA256(data))
	return data
}

// Unpack writes the files of all layers below root, and returns the entries in order, as "mode name".
func (i Image) Unpack(t *testing.T, root string) (entries []string) {
	t.Helper()
	for n, d := range i.layers {
		require.Equal(t, layerType, d.MediaType)
		gunzip := exec.CommandContext(t.Context(), "gzip", "-dc") // with the race detector, compress/gzip takes half a minute
		gunzip.Stdin = bytes.NewReader(blob(t, i.dir, d))
		data, err := gunzip.Output()
		require.NoError(t, err)
		require.Equal(t, i.Config.RootFS.DiffIDs[n], "sha256:"+SHA256(data))
		entries = append(entries, untar(t, root, data)...)
	}
	return entries
}

// untar unpacks one layer below root.
func untar(t *testing.T, root string, data []byte) []string {
	t.Helper()
	var entries []string
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
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

// SHA256 returns the digest of data in hexadecimal.
func SHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
