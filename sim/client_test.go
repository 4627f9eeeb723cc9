package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher is a filter that notes of each cycle whether the framework measures it, and has the client of plugins.
type watcher struct {
	client   kubernetes.Interface
	measured []bool
}

func (*watcher) Name() string { return "Watcher" }

func (w *watcher) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	w.measured = append(w.measured, state.ShouldRecordPluginMetrics())
	return nil
}

// withWatcher returns a copy with a watcher.
func withWatcher(t *testing.T, objects ...client.Object) (*Sim, *watcher) {
	t.Helper()
	cfg, err := ParseConfig([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: {enabled: [{name: Watcher}]}}}]
`))
	require.NoError(t, err)
	var w watcher
	objects = append(objects, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{"pods": resource.MustParse("1000")}},
	})
	s, err := New(t.Context(), objects, Options{Config: cfg, Registry: frameworkruntime.Registry{
		"Watcher": func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			w.client = h.ClientSet()
			return &w, nil
		},
	}})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, &w
}

func podOn(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{SchedulerName: "default-scheduler", NodeName: node},
	}
}

// TestBindsAreAnsweredAsByTheAPI: the scheduler's client, which binds without a request, refuses what the API does.
func TestBindsAreAnsweredAsByTheAPI(t *testing.T) {
	ending := podOn("ending", "")
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{}, []string{"x"}
	s, w := withWatcher(t, podOn("bound", "node"), ending, podOn("waits", ""))
	direct, ok := w.client.(directClient)
	require.True(t, ok)
	for _, tt := range []struct {
		pod, uid string
		options  metav1.CreateOptions
		refused  bool
	}{
		{pod: "none", refused: true},
		{pod: "bound", refused: true},
		{pod: "ending", refused: true},
		{pod: "waits", uid: "another", refused: true},
		{pod: "waits", uid: "uid-waits", options: metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}},
		{pod: "waits", uid: "uid-waits"},
	} {
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tt.pod, UID: types.UID(tt.uid)}, Target: v1.ObjectReference{Name: "node"}}
		for name, c := range map[string]kubernetes.Interface{"by a request": direct.Interface, "directly": direct} {
			fresh, wait := get[*v1.Pod](s.store, "default/waits")
			require.True(t, wait)
			err := c.CoreV1().Pods("default").Bind(t.Context(), binding, tt.options)
			require.Equal(t, tt.refused, err != nil, "%s, %s: %v", tt.pod, name, err)
			bound, _ := get[*v1.Pod](s.store, "default/waits")
			require.Equal(t, !tt.refused && tt.options.DryRun == nil, bound.Spec.NodeName == "node", "%s, %s", tt.pod, name)
			require.NoError(t, s.store.put(fresh))
		}
	}
}

// TestCopiesMeasureNoPlugins: a scheduler measures how long each call takes in one cycle of ten.
func TestCopiesMeasureNoPlugins(t *testing.T) {
	var pods []client.Object
	for i := range 200 {
		pods = append(pods, podOn(fmt.Sprint("pod-", i), ""))
	}
	s, w := withWatcher(t, pods...)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, make([]bool, len(pods)), w.measured)
}

// TestSeededNumbers are the hash FNV-1a of the seed and the names with a byte 0 before each.
func TestSeededNumbers(t *testing.T) {
	h := fnv.New64a()
	_, _ = h.Write([]byte("-zz\x00a\x00\x00bc"))
	require.Equal(t, h.Sum64(), seededNumber(-(35*36+35), "a", "", "bc"))
	require.Equal(t, h.Sum64(), numberWith(seededNumber(-(35*36+35), "a", ""), "bc"))
}
