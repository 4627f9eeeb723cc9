package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// program is where kube-scheduler is in upstream's image, so that a static pod whose command is
	// "kube-scheduler" finds it on the PATH.
	program    = "usr/local/bin/kube-scheduler"
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// nonroot is the user of that name in distroless images.
	nonroot = "65532:65532"
	// servingPort is the default of --secure-port.
	servingPort = "10259/tcp"
	// layoutName is the directory below --output; the archive adds ".tar" to it.
	layoutName = "zonewise-scheduler.oci"
)

// part is the image of one platform and its SBOM.
type part struct {
	platform v1.Platform
	image    v1.Image
	sbom     []byte
}

// newPart packs a binary.
func newPart(p v1.Platform, binary string, src source) (part, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return part{}, err
	}
	image, err := newImage(p, data, src)
	if err != nil {
		return part{}, err
	}
	sbom, err := newSBOM(data, src)
	return part{platform: p, image: image, sbom: sbom}, err
}

// newImage makes the image of one platform: a root file system with only the binary.
func newImage(p v1.Platform, binary []byte, src source) (v1.Image, error) {
	root := fstest.MapFS{program: {Data: binary, Mode: 0o755, ModTime: src.created}}
	for _, dir := range []string{"usr", "usr/local", "usr/local/bin"} {
		root[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: src.created}
	}
	files, err := pack(root)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), // the library's default is the fastest
		tarball.WithCompressedCaching,
	)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: src.created}
	base, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		OS: p.OS, Architecture: p.Architecture, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         nonroot,
			Entrypoint:   []string{"/" + program},
			Env:          []string{"PATH=" + searchPath},
			WorkingDir:   "/",
			ExposedPorts: map[string]struct{}{servingPort: {}},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "zonewise-scheduler",
				"org.opencontainers.image.description": description,
				"org.opencontainers.image.url":         "https://zonewise.dev",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.created":     src.created.Format(time.RFC3339),
				"org.opencontainers.image.version":     src.version,
				"org.opencontainers.image.revision":    src.revision,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/image", Comment: "/" + program}})
}

// pack makes a tar of the files, by name; their owner is root, since a MapFS has none.
func pack(files fstest.MapFS) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.AddFS(files); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// newIndex lists the images of the platforms.
func newIndex(parts []part) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range parts {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{Platform: &p.platform}})
	}
	return index
}

// write writes layout, archive and SBOMs into dir, and removes those of an earlier build.
func write(dir string, index v1.ImageIndex, parts []part, tag name.Tag, created time.Time) error {
	earlier, err := filepath.Glob(filepath.Join(dir, sbomName(v1.Platform{OS: "*", Architecture: "*"})))
	if err != nil {
		return err
	}
	root := filepath.Join(dir, layoutName)
	for _, file := range append(earlier, root) {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path, err := layout.Write(root, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(), // read by skopeo and podman
		"io.containerd.image.name":          tag.Name(),
	})); err != nil {
		return err
	}
	for _, p := range parts {
		if err := os.WriteFile(filepath.Join(dir, sbomName(p.platform)), p.sbom, 0o644); err != nil {
			return err
		}
	}
	files := fstest.MapFS{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		file := &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: created}
		if err == nil && !entry.IsDir() {
			file.Mode = 0o644
			file.Data, err = os.ReadFile(filepath.Join(root, name))
		}
		files[name] = file
		return err
	})
	if err != nil {
		return err
	}
	archive, err := pack(files)
	if err != nil {
		return err
	}
	return os.WriteFile(root+".tar", archive, 0o644)
}

// push writes the image to the registry of the tag, and attaches the SBOMs.
func push(ctx context.Context, tag name.Tag, index v1.ImageIndex, parts []part, created time.Time) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return err
	}
	for _, p := range parts {
		artifact, err := p.attachment(created)
		if err != nil {
			return err
		}
		digest, err := artifact.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(tag.Digest(digest.String()), artifact, options...); err != nil {
			return fmt.Errorf("the SBOM for %s: %w", p.platform, err)
		}
	}
	return nil
}
