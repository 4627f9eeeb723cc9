// Package shipped has the identities, the permissions and the custom resources as manifests has them, for tests and for
// the demo. It is not part of the product's binaries.
package shipped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	strictyaml "sigs.k8s.io/yaml"

	"zonewise.dev/manifests"
)

// SchedulerUser is the identity of the scheduler: the ServiceAccount of manifests/rbac.
var SchedulerUser = account("zonewise-scheduler")

// ControllerUser is that of the controller: the ServiceAccount of manifests/components/controller.
var ControllerUser = account("zonewise-controller")

func account(name string) envtest.User {
	return envtest.User{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	}
}

// The directories of manifests that have permissions.
const (
	SchedulerRoles  = "rbac"
	ControllerRoles = "components/controller"
	// RebalanceRoles let its part --rebalance plan, and EvictRoles carry plans out.
	RebalanceRoles = "components/rebalance"
	EvictRoles     = "components/rebalance-evict"
)

// Permissions returns the roles and bindings of a directory.
func Permissions(dir string) ([]client.Object, error) {
	var objects []client.Object
	err := fs.WalkDir(manifests.FS, dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		file, err := manifests.FS.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		documents := yaml.NewYAMLToJSONDecoder(file)
		for {
			var raw runtime.RawExtension
			if err := documents.Decode(&raw); err != nil {
				if len(raw.Raw) == 0 && errors.Is(err, io.EOF) {
					return nil
				}
				return fmt.Errorf("%s: %w", path, err)
			}
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			switch obj := obj.(type) {
			case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding:
				objects = append(objects, obj.(client.Object))
			}
		}
	})
	return objects, err
}

// CreatePermissions creates them in a cluster that has none of them.
func CreatePermissions(ctx context.Context, c client.Client, dir string) error {
	objects, err := Permissions(dir)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
		}
	}
	return nil
}

// Definition returns the CustomResourceDefinition of a file in manifests.
func Definition(path string) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := manifests.FS.ReadFile(path)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, strictyaml.UnmarshalStrict(content, crd)
}

// Definitions returns all CustomResourceDefinitions of manifests/crds.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(manifests.FS, "crds/*_*.yaml")
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crd, err := Definition(file)
		if err != nil {
			return nil, err
		}
		out = append(out, crd)
	}
	return out, nil
}
