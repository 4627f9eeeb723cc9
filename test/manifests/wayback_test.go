package manifests

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/program"
)

// stays is what must not change on the way back.
type stays struct {
	name string
	uid  types.UID
	node string
	spec any
}

// testChartWayBack lets the chart's scheduler place pods, uninstalls it, and starts upstream's own
// kube-scheduler: it takes over the same objects, places what still waits, and nothing that ran is touched.
func (c *chart) testChartWayBack(t *testing.T) {
	for _, zone := range []string{"a", "b", "c"} {
		c.node(t, "node-"+zone, zone, "4")
	}
	_, err := c.do(t, "install", "zonewise", "charts/zonewise", "--namespace", metav1.NamespaceSystem, "--set", "mode=replace")
	require.NoError(t, err)
	var before map[string]stays
	placed := t.Run("with Zonewise", func(t *testing.T) {
		c.startScheduler(t, c.objects(t, "mode=replace"))
		c.make(t, spreadPolicy("api"))
		c.podGroup(t, "whole", 2)
		c.podGroup(t, "short", 3)
		for i := range 3 {
			c.spreadPod(t, i)
			c.make(t, pod(fmt.Sprintf("api-%d", i), "100m", build.App("api")))
		}
		for i := range 2 {
			c.make(t, pod(fmt.Sprintf("whole-%d", i), "100m", build.Member("whole")), pod(fmt.Sprintf("short-%d", i), "100m", build.Member("short")))
		}
		for i := range 3 {
			c.bound(t, fmt.Sprintf("web-%d", i))
			c.bound(t, fmt.Sprintf("api-%d", i))
		}
		c.bound(t, "whole-0")
		c.bound(t, "whole-1")
		before = c.everything(t)
		require.Len(t, before, 13)
		require.Empty(t, before["pod/short-0"].node, "a gang that is not complete waits")
		require.Empty(t, before["pod/short-1"].node, "a gang that is not complete waits")
	})
	require.True(t, placed)
	_, err = c.do(t, "uninstall", "zonewise", "--namespace", metav1.NamespaceSystem)
	require.NoError(t, err)
	c.testNothingIsLeft(t)

	t.Run("with kube-scheduler", func(t *testing.T) {
		c.startStock(t)
		c.bound(t, "short-0")
		c.bound(t, "short-1")
		nodes := map[string]int{}
		for i := range 6 {
			if i >= 3 {
				c.spreadPod(t, i)
			}
			nodes[c.bound(t, fmt.Sprintf("web-%d", i))]++
		}
		require.Equal(t, map[string]int{"node-a": 2, "node-b": 2, "node-c": 2}, nodes, "the pods that Zonewise placed are counted")
	})
	after := c.everything(t)
	for key, was := range before {
		if was.node == "" {
			was.node = after[key].node // it waited, and does no longer
		}
		require.Equal(t, was, after[key], key)
	}
}

// spreadPod makes a pod that has to be spread over the zones.
func (c *chart) spreadPod(t *testing.T, i int) {
	t.Helper()
	c.make(t, pod(fmt.Sprintf("web-%d", i), "100m", func(p *corev1.Pod) {
		build.App("web")(p)
		build.Spread("web", 1, corev1.DoNotSchedule)(p)
	}))
}

// everything returns the users' objects: pods, gangs, policies and reservations, without the defaults in added.
func (c *chart) everything(t *testing.T) map[string]stays {
	t.Helper()
	out := map[string]stays{}
	pods, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, p := range pods.Items {
		node := p.Spec.NodeName
		p.Spec.NodeName = ""
		out["pod/"+p.Name] = stays{name: p.Name, uid: p.UID, node: node, spec: p.Spec}
	}
	for kind, group := range map[string]schema.GroupVersion{
		"PodGroup": schedv1alpha1.SchemeGroupVersion, "ZoneSpreadPolicy": v1alpha1.SchemeGroupVersion, "ZoneReservation": v1alpha1.SchemeGroupVersion,
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(group.WithKind(kind + "List"))
		require.NoError(t, c.api.List(t.Context(), list, client.InNamespace(namespace)))
		for _, u := range list.Items {
			for field, value := range added {
				if found, exists, err := unstructured.NestedFieldNoCopy(u.Object, "spec", field); err == nil && exists && found == value {
					unstructured.RemoveNestedField(u.Object, "spec", field)
				}
			}
			out[kind+"/"+u.GetName()] = stays{name: u.GetName(), uid: u.GetUID(), spec: u.Object["spec"]}
		}
	}
	return out
}

// added are the fields of specs that older versions do not know, with the defaults that they get by an upgrade.
var added = map[string]any{"scaleDownPolicy": "Ignore"}

// startStock runs upstream's kube-scheduler as kubeadm does, as the user system:kube-scheduler with the
// permissions that every cluster gives to it.
func (c *chart) startStock(t *testing.T) {
	t.Helper()
	binary, err := program.StockScheduler(repository(t), t.TempDir())
	require.NoError(t, err)
	kubeconfig, err := clientcmd.LoadFromFile(c.kubeconfig)
	require.NoError(t, err)
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = "system:kube-scheduler"
	}
	file := filepath.Join(t.TempDir(), "scheduler.conf")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	port, err := controlplane.FreePort()
	require.NoError(t, err)
	runUntilTheEnd(t, binary, "--kubeconfig="+file, "--authentication-kubeconfig="+file, "--authorization-kubeconfig="+file,
		"--leader-elect=true", "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port))
}
