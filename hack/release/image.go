package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	imageName     = "zonewise-scheduler"
	sbomType      = types.MediaType("application/vnd.cyclonedx+json")
	provenanceURI = "https://slsa.dev/provenance/v1"
	// buildType and builder are explained in RELEASE.md.
	buildType = "https://zonewise.dev/RELEASE#what-the-provenance-says"
	builder   = "https://zonewise.dev/RELEASE#one-command"
)

// published is an image of the release.
type published struct{ digest v1.Hash }

// image has hack/image build the image, and adds what is said about it.
func (b *build) image(ctx context.Context) (published, error) {
	tmp, err := os.MkdirTemp("", "zonewise-release-")
	if err != nil {
		return published{}, err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, "go", "run", ".", "--platform", b.platforms, "--output", tmp, "--tag", b.repository+"/"+imageName+":"+b.version)
	cmd.Dir, cmd.Env = filepath.Join(b.source, "hack", "image"), b.environment()
	cmd.Stdout, cmd.Stderr = b.progress, b.progress
	if err := cmd.Run(); err != nil {
		return published{}, fmt.Errorf("hack/image: %w", err)
	}
	index, err := imageIn(filepath.Join(tmp, imageName+".oci"))
	if err != nil {
		return published{}, err
	}
	return b.describeImage(index, tmp)
}

// imageIn returns the only index that a layout lists.
func imageIn(dir string) (v1.ImageIndex, error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s lists %d images, want one", dir, len(manifest.Manifests))
	}
	return root.ImageIndex(manifest.Manifests[0].Digest)
}

// describeImage writes the layout of the image: each platform with its SBOM, which is in the directory sboms and copied
// to the output, and the whole with its provenance. All are signed.
func (b *build) describeImage(index v1.ImageIndex, sboms string) (published, error) {
	digest, err := index.Digest()
	if err != nil {
		return published{}, err
	}
	s, err := b.newStore(imageName)
	if err != nil {
		return published{}, err
	}
	if err := s.path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		refName: b.version, "io.containerd.image.name": b.repository + "/" + imageName + ":" + b.version,
	})); err != nil {
		return published{}, err
	}
	if err := s.sign(digest); err != nil {
		return published{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return published{}, err
	}
	statement := b.provenance(digest)
	for _, m := range manifest.Manifests {
		if m.Platform == nil {
			return published{}, errors.New("an image without a platform")
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			return published{}, err
		}
		file := fmt.Sprintf("%s-%s-%s.cdx.json", imageName, m.Platform.OS, m.Platform.Architecture)
		sbom, err := os.ReadFile(filepath.Join(sboms, file))
		if err != nil {
			return published{}, err
		}
		if err := errors.Join(b.write(file, sbom), s.refer(image, file, sbom, sbomType), s.sign(m.Digest)); err != nil {
			return published{}, err
		}
		statement.Subject = append(statement.Subject, subject(imageName+"-"+m.Platform.OS+"-"+m.Platform.Architecture, m.Digest))
	}
	data, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return published{}, err
	}
	const file = imageName + ".provenance.json"
	return published{digest}, errors.Join(b.write(file, data), s.refer(index, file, data, inToto), s.attest(digest, data, provenanceURI))
}

// statement is an in-toto statement with a SLSA provenance (https://slsa.dev/spec/v1.1/provenance).
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func subject(name string, digest v1.Hash) resource {
	return resource{Name: name, Digest: map[string]string{digest.Algorithm: digest.Hex}}
}

// provenance says from what the image was made, and how. It has no time and no name of a machine: what is the same
// everywhere is what can be checked by building again.
func (b *build) provenance(digest v1.Hash) *statement {
	s := &statement{Type: "https://in-toto.io/Statement/v1", PredicateType: provenanceURI, Subject: []resource{subject(imageName, digest)}}
	s.Predicate.BuildDefinition.BuildType = buildType
	s.Predicate.BuildDefinition.ExternalParameters = map[string]string{"version": b.version, "platforms": b.platforms, "repository": b.repository}
	s.Predicate.BuildDefinition.ResolvedDependencies = []resource{
		{URI: "git+https://zonewise.dev@refs/tags/" + b.version, Digest: map[string]string{"gitCommit": b.commit}},
		{URI: "pkg:golang/std@" + runtime.Version()},
	}
	s.Predicate.RunDetails.Builder.ID = builder
	return s
}
