package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/build"
)

// TestWatcherFindsWhatIsWrong: the check that all tests rely on can fail.
func TestWatcherFindsWhatIsWrong(t *testing.T) {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a1"},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("2"),
		}},
	}
	bound := func(name, cpu string, options ...podOption) *v1.Pod {
		pod := newPod(name, cpu, options...)
		pod.UID, pod.Spec.NodeName = types.UID(name), "a1"
		return pod
	}
	start := func() *watcher {
		w := newWatcher()
		w.setNode(node)
		return w
	}

	t.Run("nothing", func(t *testing.T) {
		w := start()
		w.see(watch.Modified, bound("one", "1"))
		w.see(watch.Modified, bound("two", "1"))
		w.see(watch.Modified, bound("two", "1")) // the same pod again
		w.see(watch.Deleted, bound("one", "1"))
		w.see(watch.Modified, bound("three", "1"))
		require.Empty(t, w.found())
	})
	t.Run("too much cpu, for a moment", func(t *testing.T) {
		w := start()
		w.see(watch.Modified, bound("one", "1500m"))
		w.see(watch.Modified, bound("two", "1"))
		w.see(watch.Deleted, bound("one", "1500m"))
		require.Equal(t, []string{"node a1 was given 2500m of cpu, it has 2"}, w.found())
	})
	t.Run("too many pods", func(t *testing.T) {
		w := start()
		for _, name := range []string{"one", "two", "three"} {
			w.see(watch.Added, bound(name, "100m"))
		}
		require.Equal(t, []string{"node a1 was given 3 pods, it takes 2"}, w.found())
	})
	t.Run("a node that was never there", func(t *testing.T) {
		w := start()
		pod := bound("one", "1")
		pod.Spec.NodeName = "b1"
		w.see(watch.Modified, pod)
		require.Equal(t, []string{"a pod was bound to node b1, which was never there"}, w.found())
	})
	t.Run("a member that is bound alone", func(t *testing.T) {
		w := start()
		l := ledger.New(ledger.DefaultOptions())
		w.setLedger(l)
		w.setGang("train", 2)
		first, second := bound("one", "1", build.Member("train")), bound("two", "1", build.Member("train"))
		_, err := l.AddPod(first)
		require.NoError(t, err)
		w.see(watch.Modified, first)
		require.Equal(t, []string{"one was bound when 1 of the 2 members of gang train were bound or assumed"}, w.found())

		_, err = l.AddPod(second)
		require.NoError(t, err)
		w.see(watch.Modified, second)
		require.Len(t, w.found(), 1, "with its sibling bound the second is fine")
	})
}
