package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The forms of a chart in a registry (https://helm.sh/docs/topics/registries/#helm-chart-manifest).
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// charts packs both charts: the scheduler's, which names the image of this release, and the one of the APIs.
func (b *build) charts(image v1.Hash) error {
	chart, err := b.schedulerChart(image)
	if err != nil {
		return err
	}
	crds, err := b.crdChart()
	if err != nil {
		return err
	}
	return errors.Join(b.packChart("zonewise", chart), b.packChart("zonewise-crds", crds))
}

// schedulerChart returns the files of the chart, with the version and the image of the release.
func (b *build) schedulerChart(image v1.Hash) (map[string][]byte, error) {
	dir := filepath.Join(b.source, "manifests", "charts", "zonewise")
	names, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	for _, edit := range []struct{ file, old, replacement string }{
		{"Chart.yaml", `(?m)^version: .*$`, "version: " + b.number()},
		{"Chart.yaml", `(?m)^appVersion: .*$`, "appVersion: " + b.number()},
		{"values.yaml", `(?m)^  # A placeholder: .*\n  repository: .*$`, "  repository: " + b.repository + "/" + imageName},
		{"values.yaml", `(?m)^  tag: .*$`, "  tag: " + b.version},
		{"values.yaml", `(?m)^  digest: .*$`, "  digest: " + image.String()},
	} {
		old := regexp.MustCompile(edit.old)
		if len(old.FindAll(files[edit.file], -1)) != 1 {
			return nil, fmt.Errorf("%s does not have one %s", edit.file, edit.old)
		}
		files[edit.file] = old.ReplaceAll(files[edit.file], []byte(edit.replacement))
	}
	return files, nil
}

// crdChart makes a chart of the APIs alone. Helm upgrades them, since they are templates, and keeps them when the chart
// is removed, since with an API all of its objects would go.
func (b *build) crdChart() (map[string][]byte, error) {
	crds, err := filepath.Glob(filepath.Join(b.source, "manifests", "crds", "*_*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(crds) == 0 {
		return nil, errors.New("no CustomResourceDefinitions in manifests/crds")
	}
	files := map[string][]byte{"Chart.yaml": fmt.Appendf(nil, `apiVersion: v2
name: zonewise-crds
description: The APIs of Zonewise, which Helm upgrades and keeps; install it before the chart zonewise, with --skip-crds for that one
type: application
version: %s
appVersion: %s
home: https://zonewise.dev
maintainers:
- name: The Zonewise authors
`, b.number(), b.number())}
	for _, crd := range crds {
		data, err := os.ReadFile(crd)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(data, []byte("{{")) {
			return nil, fmt.Errorf("%s has what Helm would take for a template", crd)
		}
		kept := bytes.Replace(data, []byte("  annotations:\n"), []byte("  annotations:\n    helm.sh/resource-policy: keep\n"), 1)
		if bytes.Equal(kept, data) {
			return nil, fmt.Errorf("%s has no annotations", crd)
		}
		files["templates/"+filepath.Base(crd)] = kept
	}
	return files, nil
}

// packChart writes a chart as NAME-VERSION.tgz and as the layout oci/charts/NAME.
func (b *build) packChart(name string, files map[string][]byte) error {
	archive, err := b.archive(name, files)
	if err != nil {
		return err
	}
	if err := b.write(name+"-"+b.number()+".tgz", archive); err != nil {
		return err
	}
	metadata, err := yaml.YAMLToJSON(files["Chart.yaml"])
	if err != nil {
		return err
	}
	var about struct{ Description string }
	if err := json.Unmarshal(metadata, &about); err != nil {
		return err
	}
	image, err := chartImage(metadata, archive)
	if err != nil {
		return err
	}
	image = mutate.Annotations(image, map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": b.number(), "org.opencontainers.image.description": about.Description,
	}).(v1.Image)
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	s, err := b.newStore("charts/" + name)
	if err != nil {
		return err
	}
	return errors.Join(s.tagged(image, b.number()), s.sign(digest))
}

// chartImage is an image whose configuration is the chart's metadata.
func chartImage(metadata, archive []byte) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig), static.NewLayer(archive, chartContent))
	if err != nil {
		return nil, err
	}
	return withConfig(image, metadata)
}

// configured is an image with a configuration of another form than an image's.
type configured struct {
	v1.Image
	config   []byte
	manifest *v1.Manifest
}

func withConfig(image v1.Image, config []byte) (v1.Image, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	layer := static.NewLayer(config, chartConfig)
	if manifest.Config.Digest, err = layer.Digest(); err != nil {
		return nil, err
	}
	manifest.Config.Size = int64(len(config))
	return &configured{Image: image, config: config, manifest: manifest}, nil
}

func (c *configured) RawConfigFile() ([]byte, error)  { return c.config, nil }
func (c *configured) ConfigName() (v1.Hash, error)    { return c.manifest.Config.Digest, nil }
func (c *configured) Manifest() (*v1.Manifest, error) { return c.manifest, nil }
func (c *configured) RawManifest() ([]byte, error)    { return json.Marshal(c.manifest) }
func (c *configured) Digest() (v1.Hash, error)        { return partial.Digest(c) }
func (c *configured) Size() (int64, error)            { return partial.Size(c) }

// archive makes a compressed tar of files below one directory, the same from the same files.
func (b *build) archive(dir string, files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, name := range sortedKeys(files) {
		header := &tar.Header{Name: path.Join(dir, name), Mode: modeOf(name), Size: int64(len(files[name])), ModTime: b.when, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// modeOf: only programs have no extension, or that of a Windows program.
func modeOf(name string) int64 {
	if ext := path.Ext(name); (ext == "" || ext == ".exe") && !strings.HasPrefix(path.Base(name), ".") && path.Base(name) != "LICENSE" {
		return 0o755
	}
	return 0o644
}
