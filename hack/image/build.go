package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
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
	// nonroot is the user that distroless images call so.
	nonroot = "65532:65532"
	// servingPort is the default of --secure-port.
	servingPort = "10259/tcp"
)

// image is one image, or an index of one for each platform.
type image struct {
	single v1.Image      // set when there is one platform
	index  v1.ImageIndex // set when there are several
	// platforms are the images and the lists of their parts, in the order of the binaries.
	platforms []platformImage
}

// platformImage is the image of one platform, and what it is made of.
type platformImage struct {
	image v1.Image
	sbom  sbom
}

// build makes the image of the binaries.
func build(binaries []binary, src source) (image, error) {
	platforms := make([]platformImage, len(binaries))
	errs := make([]error, len(binaries))
	var group sync.WaitGroup
	for i, b := range binaries {
		group.Go(func() { // to compress takes seconds, of one core
			platforms[i], errs[i] = buildPlatform(b, src)
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return image{}, err
	}
	if len(binaries) == 1 {
		return image{single: platforms[0].image, platforms: platforms}, nil
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, b := range binaries {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        platforms[i].image,
			Descriptor: v1.Descriptor{Platform: &b.platform},
		})
	}
	return image{index: index, platforms: platforms}, nil
}

func buildPlatform(b binary, src source) (p platformImage, err error) {
	if p.image, err = buildOne(b, src); err != nil {
		return p, fmt.Errorf("%s: %w", b.platform, err)
	}
	p.sbom, err = newSBOM(b, src)
	return p, err
}

// buildOne makes the image of one platform.
func buildOne(b binary, src source) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return layerOf(b.path, src.created), nil },
		tarball.WithMediaType(types.OCILayer),
		// The library's default is the fastest level; an image is built once and pulled often.
		tarball.WithCompressionLevel(gzip.BestCompression),
		tarball.WithCompressedCaching,
	)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: src.created}
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: created, CreatedBy: "hack/image", Comment: "/" + program},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = b.platform.OS, b.platform.Architecture
	config.Created = created
	config.Config = v1.Config{
		User:         nonroot,
		Entrypoint:   []string{"/" + program},
		Env:          []string{"PATH=" + searchPath},
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{servingPort: {}},
		Labels:       src.labels(),
	}
	return mutate.ConfigFile(img, config)
}

// layerOf streams the tar of a root file system that has the binary and nothing else.
func layerOf(binary string, created time.Time) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeLayer(w, binary, created)) }()
	return r
}

func writeLayer(w io.Writer, binary string, created time.Time) error {
	f, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	// The format is fixed, or the library would choose it by the values.
	header := tar.Header{Format: tar.FormatUSTAR, ModTime: created}
	for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
		h := header
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, dir, 0o755
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
	}
	h := header
	h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeReg, program, 0o755, info.Size()
	if err := tw.WriteHeader(&h); err != nil {
		return err
	}
	if _, err := io.Copy(tw, f); err != nil {
		return err
	}
	return tw.Close()
}

// digest returns what the image is pulled by.
func (i image) digest() (v1.Hash, error) {
	if i.single != nil {
		return i.single.Digest()
	}
	return i.index.Digest()
}

// write makes dir an OCI image layout of the image, in the place of what is there.
func (i image) write(dir string, tag name.Tag) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := removeLayout(dir); err != nil {
		return err
	}
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	annotations := layout.WithAnnotations(map[string]string{
		// The first is read by skopeo and podman, the second by containerd.
		"org.opencontainers.image.ref.name": tag.TagStr(),
		"io.containerd.image.name":          tag.Name(),
	})
	if i.single == nil {
		return p.AppendIndex(i.index, annotations)
	}
	config, err := i.single.ConfigFile()
	if err != nil {
		return err
	}
	return p.AppendImage(i.single, annotations, layout.WithPlatform(*config.Platform()))
}

// removeLayout removes dir when it is an image layout, so that a wrong --output destroys nothing.
func removeLayout(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err != nil {
		return fmt.Errorf("%s is in the way and is no image layout: remove it or choose another directory", dir)
	}
	return os.RemoveAll(dir)
}

// push writes the image to the registry of the tag, and with it the lists of its parts.
func (i image) push(ctx context.Context, tag name.Tag, created time.Time) error {
	var err error
	if i.single != nil {
		err = remote.Write(tag, i.single, remoteOptions(ctx)...)
	} else {
		err = remote.WriteIndex(tag, i.index, remoteOptions(ctx)...)
	}
	if err != nil {
		return err
	}
	for _, p := range i.platforms {
		if err := p.sbom.attach(ctx, tag, p.image, created); err != nil {
			return fmt.Errorf("the SBOM of %s: %w", p.sbom.platform, err)
		}
	}
	return nil
}

func remoteOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}
