package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"zonewise.dev/manifests/shipped"
)

// crdOptions has the CustomResourceDefinition of a file in manifests.
func crdOptions(path string) (envtest.CRDInstallOptions, error) {
	crd, err := shipped.Definition(path)
	return envtest.CRDInstallOptions{
		Scheme: scheme, CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: waitTimeout, PollInterval: pollInterval,
	}, err
}

// installCRD installs the CustomResourceDefinition of a file in manifests, and waits until it is served. What an
// earlier test has taken away must be gone first: the API server serves it for a while as if nothing had happened.
func (w *world) installCRD(path string) {
	w.t.Helper()
	options, err := crdOptions(path)
	require.NoError(w.t, err)
	w.eventually("the definition can be installed", func() (bool, string) {
		there := &apiextensionsv1.CustomResourceDefinition{}
		err := w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(options.CRDs[0]), there)
		if err == nil && there.DeletionTimestamp != nil {
			return false, "the former one is being deleted"
		}
		_, err = envtest.InstallCRDs(w.cp.admin, options)
		return err == nil, fmt.Sprint(err)
	})
}

// uninstallCRD removes it and waits until it is gone.
func (w *world) uninstallCRD(path string) {
	w.t.Helper()
	options, err := crdOptions(path)
	require.NoError(w.t, err)
	require.NoError(w.t, envtest.UninstallCRDs(w.cp.admin, options))
	w.eventually("the definition is gone", func() (bool, string) {
		err := w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(options.CRDs[0]), &apiextensionsv1.CustomResourceDefinition{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// fromYAML makes an object of ours as a user writes it: no Go type adds or drops a field on the way.
func fromYAML(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	doc := "apiVersion: zonewise.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec:\n"
	for line := range strings.SplitSeq(strings.TrimSpace(spec), "\n") {
		doc += "  " + line + "\n"
	}
	require.NoError(t, yaml.Unmarshal([]byte(doc), &obj.Object), doc)
	return obj
}

// requireRejected requires that the API server refuses an object because of a field, and says so.
func requireRejected(t *testing.T, err error, field, because string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.NotNil(t, status.Status().Details, "%v", err)
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	require.Contains(t, fields, field, "%v", err)
	require.Contains(t, err.Error(), because)
}
