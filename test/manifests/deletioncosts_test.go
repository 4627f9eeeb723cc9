package manifests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"zonewise.dev/test/build"
)

// testDeletionCostsAdmission: the controller may patch pods, and yet change no more of them than the deletion cost.
// Others may do what they could.
func (c *cluster) testDeletionCostsAdmission(t *testing.T) {
	const space = "smaller"
	c.make(t, &corev1.Namespace{ObjectMeta: named(space)})
	const folder = "components/deletion-costs/"
	c.mustRun(t, "apply", "--server-side", "--validate=strict", "-f", folder+"clusterrole.yaml", "-f", folder+"binding.yaml", "-f", folder+"admission.yaml")
	c.make(t, build.Pod("web", "", build.Namespace(space), build.App("web"), func(pod *corev1.Pod) {
		pod.Annotations, pod.Finalizers = map[string]string{"note": "a"}, []string{"example.com/keep"}
	}))
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:zonewise-controller", Groups: []string{"system:authenticated"}}
	controller, err := kubernetes.NewForConfig(as)
	require.NoError(t, err)
	patch := func(client kubernetes.Interface, body string) error {
		_, err := client.CoreV1().Pods(space).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const image = `{"spec": {"containers": [{"name": "c", "image": "other"}]}}`
	// The API server reads its policies, and who may do what, after a while.
	until(t, "the policy is in force", func(context.Context) (bool, error) { return apierrors.IsInvalid(patch(controller, image)), nil })
	for _, refused := range []string{
		image, `{"metadata": {"labels": {"app": "other"}}}`, `{"metadata": {"labels": null}}`, `{"metadata": {"annotations": {"note": "b"}}}`,
		`{"metadata": {"annotations": {"note": null}}}`, `{"metadata": {"annotations": {"more": "b"}}}`, `{"metadata": {"finalizers": null}}`,
		`{"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/keep"]}}`, `{"spec": {"activeDeadlineSeconds": 1}}`,
		`{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1", "more": "b"}}}`,
	} {
		require.ErrorContains(t, patch(controller, refused), "the controller may change the deletion cost", refused)
	}
	for _, accepted := range []string{
		`{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}`, `{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": null}}}`,
	} {
		require.NoError(t, patch(controller, accepted), accepted)
	}
	require.NoError(t, patch(c.client, image), "somebody else")
	c.mustRun(t, "-n", space, "patch", "pod", "web", "--type=merge", `--patch={"metadata": {"finalizers": null}}`)
	c.mustRun(t, "delete", "--wait=false", "-f", folder+"clusterrole.yaml", "-f", folder+"binding.yaml", "-f", folder+"admission.yaml")
}
