package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation that has the tag of what a layout lists.
const refName = "org.opencontainers.image.ref.name"

// store is the image layout of one repository: what it lists is what the registry gets.
type store struct {
	path layout.Path
	// repository is the name that it is published under, without a tag.
	repository string
	created    time.Time
	signer     *signer // nil without a key
}

// newStore makes the layout oci/NAME in the output.
func (b *build) newStore(name string) (*store, error) {
	dir := filepath.Join(b.output, "oci", filepath.FromSlash(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	return &store{path: path, repository: b.repository + "/" + name, created: b.when, signer: b.signer}, nil
}

// tagged lists an image under a tag.
func (s *store) tagged(image v1.Image, tag string) error {
	return s.path.AppendImage(image, layout.WithAnnotations(map[string]string{refName: tag}))
}

// artifact makes an image with one layer. The media type of its configuration is its type
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/manifest.md#guidelines-for-artifact-usage).
func (s *store) artifact(title string, data []byte, mediaType types.MediaType) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mediaType), static.NewLayer(data, mediaType))
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, map[string]string{
		"org.opencontainers.image.created": s.created.Format(time.RFC3339),
		"org.opencontainers.image.title":   title,
	}).(v1.Image), nil
}

// refer attaches a document to an image: registries list it as a referrer.
func (s *store) refer(subject partial.Describable, title string, data []byte, mediaType types.MediaType) error {
	descriptor, err := partial.Descriptor(subject)
	if err != nil {
		return err
	}
	image, err := s.artifact(title, data, mediaType)
	if err != nil {
		return err
	}
	return s.path.AppendImage(mutate.Subject(image, *descriptor).(v1.Image))
}

// sign lists the signature of a digest under the tag at which cosign looks for it.
func (s *store) sign(digest v1.Hash) error {
	if s.signer == nil {
		return nil
	}
	image, err := s.signer.signature(s.repository, digest)
	if err != nil {
		return fmt.Errorf("signature of %s@%s: %w", s.repository, digest, err)
	}
	return s.tagged(image, tagOf(digest, "sig"))
}

// attest lists a signed statement about a digest, in the same way.
func (s *store) attest(digest v1.Hash, statement []byte, predicateType string) error {
	if s.signer == nil {
		return nil
	}
	image, err := s.signer.attestation(statement, predicateType)
	if err != nil {
		return fmt.Errorf("attestation of %s@%s: %w", s.repository, digest, err)
	}
	return s.tagged(image, tagOf(digest, "att"))
}

// tagOf is the tag of what cosign keeps about a digest.
func tagOf(digest v1.Hash, kind string) string {
	return digest.Algorithm + "-" + digest.Hex + "." + kind
}
