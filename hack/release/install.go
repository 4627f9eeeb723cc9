package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// placeholder is the image that the manifests name.
const placeholder = "registry.example.com/zonewise-scheduler"

// ways are the kustomizations of each way of installing: resources, and components beside them.
var ways = []struct {
	file, resource string
	components     []string
}{
	{file: "install-crds.yaml", resource: "crds"},
	{file: "install-second-scheduler.yaml", resource: "overlays/second-scheduler"},
	{file: "install-replace-kube-scheduler.yaml", resource: "overlays/replace-kube-scheduler"},
	{file: "install-kubeadm.yaml", resource: "kubeadm"},
	{file: "install-viewer.yaml", resource: "rbac/viewer"},
}

// installs renders what "kubectl apply --server-side -f" takes for each way of installing, with the image of the
// release. Each component has a file for each way that runs a scheduler.
func (b *build) installs(image v1.Hash) error {
	components, err := filepath.Glob(filepath.Join(b.source, "manifests", "components", "*"))
	if err != nil {
		return err
	}
	for _, way := range ways {
		data, err := b.render(image, way.resource)
		if err != nil {
			return fmt.Errorf("%s: %w", way.resource, err)
		}
		if err := b.write(way.file, data); err != nil {
			return err
		}
		if filepath.Dir(way.resource) != "overlays" {
			continue
		}
		for _, component := range components {
			name := filepath.Base(component)
			data, err := b.render(image, way.resource, "components/"+name)
			if err != nil {
				return fmt.Errorf("%s with %s: %w", way.resource, name, err)
			}
			if err := b.write(way.file[:len(way.file)-len(".yaml")]+"-with-"+name+".yaml", data); err != nil {
				return err
			}
		}
	}
	return nil
}

// render runs a kustomization of its own beside the manifests.
func (b *build) render(image v1.Hash, resource string, components ...string) ([]byte, error) {
	files := filesys.MakeFsInMemory()
	root := filepath.Join(b.source, "manifests")
	names, err := filesOf(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "charts/") || strings.HasPrefix(name, "kubeadm/patches/") {
			continue // Helm's and kubeadm's
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		if err := files.WriteFile("/manifests/"+name, data); err != nil {
			return nil, err
		}
	}
	var beside []string
	for _, component := range components {
		beside = append(beside, "../manifests/"+component)
	}
	kustomization := fmt.Sprintf("resources: [../manifests/%s]\ncomponents: [%s]\nimages:\n- name: %s\n  newName: %s/%s\n  digest: %s\n",
		resource, strings.Join(beside, ", "), placeholder, b.repository, imageName, image)
	if err := files.WriteFile("/release/kustomization.yaml", []byte(kustomization)); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/release")
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
