package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"zonewise.dev/test/build"
)

var pods, nodes = v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithResource("nodes")

// refuseBinds asks f before each bind; nil has all pass.
func (c *cluster) refuseBinds(f func(pod string) error) { c.server.BeforeBind(f) }

// newNode makes a node that is ready, with so many CPUs; zone "" for none.
func newNode(name, zone, cpu string) *v1.Node {
	return build.Node(name, zone, cpu, build.Capacity(v1.ResourcePods, "200"), func(node *v1.Node) {
		node.Status.Conditions[0].LastTransitionTime = metav1.Now()
	})
}

// add puts an object into the API server and, but for benchmarks, waits until that is seen: pods come by another watch.
func (c *cluster) add(o runtime.Object) {
	c.t.Helper()
	c.server.SetVersion(o)
	require.NoError(c.t, c.client.Tracker().Add(o))
	if _, benchmark := c.t.(*testing.B); !benchmark {
		c.settle()
	}
}

// createPods creates pods, each a little later than the one before.
func (c *cluster) createPods(pods ...*v1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		if pod.CreationTimestamp.IsZero() {
			c.created++
			pod.CreationTimestamp = metav1.Time{Time: c.clock.Now().Add(time.Duration(c.created))}
		}
		_, err := c.client.CoreV1().Pods(pod.Namespace).Create(context.Background(), pod, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

// getPod returns what the API server has of a pod.
func (c *cluster) getPod(name string) *v1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod.DeepCopy()
}

// listPods returns the pods of all namespaces with a name that begins so.
func (c *cluster) listPods(prefix string) []v1.Pod {
	o, err := c.client.Tracker().List(pods, v1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	require.NoError(c.t, err)
	return slices.DeleteFunc(o.(*v1.PodList).Items, func(pod v1.Pod) bool { return !strings.HasPrefix(pod.Name, prefix) })
}

// editNode changes a node and waits until that is seen: pods come by another watch.
func (c *cluster) editNode(name string, edit func(*v1.Node)) {
	c.t.Helper()
	o, err := c.client.Tracker().Get(nodes, "", name)
	require.NoError(c.t, err)
	node := o.(*v1.Node).DeepCopy()
	edit(node)
	c.server.SetVersion(node)
	require.NoError(c.t, c.client.Tracker().Update(nodes, node, ""))
	c.settle()
}

// deleteNode deletes a node and waits until that is seen.
func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	require.NoError(c.t, c.client.Tracker().Delete(nodes, "", name))
	c.settle()
}

// editPod changes what the API server has of a pod.
func (c *cluster) editPod(name string, edit func(*v1.Pod)) {
	c.t.Helper()
	require.NoError(c.t, c.server.EditPod(metav1.NamespaceDefault, name, edit))
}

// delete asks for the deletion of pods.
func (c *cluster) delete(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// finish takes pods away, as the kubelet does at the end of their grace period.
func (c *cluster) finish(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.Tracker().Delete(pods, metav1.NamespaceDefault, name))
	}
}

// recorder keeps events as "object reason: note".
type recorder struct {
	mu     sync.Mutex // guards events
	events []string
}

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	object := ""
	switch o := regarding.(type) {
	case *v1.Pod:
		object = "Pod " + o.Name
	case *v1.ObjectReference:
		object = o.Kind + " " + o.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", object, reason, fmt.Sprintf(note, args...)))
}

func (r *recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// count returns how many events begin with prefix and contain words.
func (r *recorder) count(prefix, words string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if strings.HasPrefix(e, prefix) && strings.Contains(e, words) {
			n++
		}
	}
	return n
}

// requireEvent waits for one event that begins with prefix and contains words, and for no second.
func (c *cluster) requireEvent(prefix, words string) {
	c.t.Helper()
	c.soon(func() bool { return c.recorder.count(prefix, words) > 0 })
	require.Equal(c.t, 1, c.recorder.count(prefix, words), "%s ... %s", prefix, words)
}
