package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push writes all that the layouts of a release list to a registry, with the credentials of docker login or podman
// login: subjects before what refers to them, as they are listed.
func push(ctx context.Context, from, repository string, progress io.Writer) error {
	root := filepath.Join(from, "oci")
	if _, err := os.Stat(root); err != nil {
		return err
	}
	found := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Base(file) != "oci-layout" {
			return err
		}
		found++
		dir := path.Dir(file)
		target, err := name.NewRepository(repository + "/" + dir)
		if err != nil {
			return err
		}
		return pushLayout(ctx, layout.Path(filepath.Join(root, filepath.FromSlash(dir))), target, progress)
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("%s has no layouts", root)
	}
	return err
}

func pushLayout(ctx context.Context, from layout.Path, target name.Repository, progress io.Writer) error {
	index, err := from.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, descriptor := range manifest.Manifests {
		var reference name.Reference = target.Digest(descriptor.Digest.String())
		if tag := descriptor.Annotations[refName]; tag != "" {
			reference = target.Tag(tag)
		}
		if descriptor.MediaType.IsIndex() {
			part, err := index.ImageIndex(descriptor.Digest)
			if err != nil {
				return err
			}
			if err := remote.WriteIndex(reference, part, options...); err != nil {
				return err
			}
		} else {
			part, err := index.Image(descriptor.Digest)
			if err != nil {
				return err
			}
			if err := remote.Write(reference, part, options...); err != nil {
				return err
			}
		}
		fmt.Fprintln(progress, "pushed", reference)
	}
	return nil
}
