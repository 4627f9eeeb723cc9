package image

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/controlplane"
)

// eventually is the bound of every wait, far above what any of them takes.
const eventually = 2 * time.Minute

// until waits until a condition holds.
func until(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, eventually, true, condition), what)
}

// cluster is an API server with the files of manifests/ applied.
type cluster struct {
	config *rest.Config
	client kubernetes.Interface
}

// startCluster starts an API server, applies what docs/install.md applies, and makes a node in each of three zones.
func startCluster(t *testing.T, root string) *cluster {
	t.Helper()
	tmp := t.TempDir()
	plane, err := controlplane.Start(controlplane.Options{Assets: filepath.Join(root, "bin"), Dir: tmp})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Stop()) })
	c := &cluster{config: plane.Config, client: kubernetes.NewForConfigOrDie(plane.Config)}
	for _, dir := range []string{"crds", "overlays/replace-kube-scheduler"} {
		cmd := exec.CommandContext(t.Context(), plane.Program("kubectl"), "--kubeconfig", plane.Admin, "apply", "--server-side", "-k", filepath.Join(root, "manifests", dir))
		cmd.Env = append(os.Environ(), "HOME="+tmp) // for its cache
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Run(), stderr.String())
	}
	for _, zone := range []string{"a", "b", "c"} {
		capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
		_, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: "node-" + zone}},
			Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return c
}

// token asks the API server for a token of a ServiceAccount in kube-system, as a kubelet does for a pod.
func (c *cluster) token(t *testing.T, account string) string {
	t.Helper()
	request, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// create makes a pod of the app web that is to be spread over the zones. Nothing runs it.
func (c *cluster) create(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "c", Image: "registry.example.com/none"}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// bound waits until a pod has a node, and returns it.
func (c *cluster) bound(t *testing.T, name string) (node string) {
	t.Helper()
	until(t, "pod "+name+" is bound", func(ctx context.Context) (bool, error) {
		p, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		node = p.Spec.NodeName
		return node != "", nil
	})
	return node
}
