package sim_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
)

// TestPodsOfOtherSchedulersTakeRoom: of two displaced pods only one finds room. The first to be replaced gets it,
// whoever schedules it.
func TestPodsOfOtherSchedulersTakeRoom(t *testing.T) {
	objects := []client.Object{
		node("node-a", "a", "4"), node("node-b", "b", "2"),
		pod("batch", "batch", "2", build.Scheduler("elsewhere"), build.Bound("node-a")), pod("web", "web", "2", build.Bound("node-a")),
	}
	for first, placed := range map[string]int{"batch": 0, "web": 1} {
		s := run(t, objects, sim.Options{Rank: func(p *v1.Pod) []int64 {
			if p.Name == first {
				return []int64{0}
			}
			return []int64{1}
		}})
		s.Lose(func(n *v1.Node) bool { return n.Name == "node-a" })
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, map[string]int{"b": 1, "": 1}, zones(s))
		got := 0
		for _, p := range sim.List[*v1.Pod](s) {
			require.Equal(t, p.Labels["app"] == "batch", s.OfOtherScheduler(p))
			if p.Labels["app"] == "web" && p.Spec.NodeName != "" {
				got++
			}
			if p.Spec.NodeName == "" {
				require.Contains(t, s.WhyWaits(p), "Insufficient cpu")
			}
		}
		require.Equal(t, placed, got, "%s is replaced first", first)
		require.Equal(t, []string{"default-scheduler"}, s.Profiles(), "those of the configuration")
	}
}

// refuser is a plugin that somebody else has written: it refuses every node of zone b, and looks at ConfigMaps.
type refuser struct{}

func (refuser) Name() string { return "Refuser" }

func (refuser) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) *fwk.Status {
	if n.Node().Labels[v1.LabelTopologyZone] == "b" {
		return fwk.NewStatus(fwk.Unschedulable, "not b")
	}
	return nil
}

// TestPluginsOfTheCallersOwn: the copy has them, and says of what it has no objects for them.
func TestPluginsOfTheCallersOwn(t *testing.T) {
	cfg, err := sim.DefaultConfig()
	require.NoError(t, err)
	cfg.Profiles[0].Plugins.Filter.Enabled = append(cfg.Profiles[0].Plugins.Filter.Enabled, config.Plugin{Name: "Refuser"})
	s := run(t, []client.Object{node("node-a", "a", "1"), node("node-b", "b", "8"), pod("web-1", "web", "1"), pod("web-2", "web", "1")}, sim.Options{
		Config: cfg, Registry: frameworkruntime.Registry{"Refuser": func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			h.SharedInformerFactory().Core().V1().ConfigMaps().Informer()
			return refuser{}, nil
		}},
	})
	require.Equal(t, map[string]int{"a": 1, "": 1}, zones(s))
	require.Equal(t, []string{"ConfigMap"}, s.KindsWithoutObjects())
}

// TestExtendersAreNotCalledUnlessAsked: they are programs elsewhere, which may act on what they are asked.
func TestExtendersAreNotCalledUnlessAsked(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer server.Close()
	cfg, err := sim.DefaultConfig()
	require.NoError(t, err)
	cfg.Extenders = []config.Extender{{URLPrefix: server.URL, FilterVerb: "filter", Weight: 1, Ignorable: true}}
	objects := []client.Object{node("node-a", "a", "1"), pod("web", "web", "1")}
	require.Equal(t, map[string]int{"a": 1}, zones(run(t, objects, sim.Options{Config: cfg})))
	require.Zero(t, calls.Load())
	require.Equal(t, map[string]int{"a": 1}, zones(run(t, objects, sim.Options{Config: cfg, CallExtenders: true})))
	require.Positive(t, calls.Load())
}

// TestProfilesThatTheSchedulerRefuses: an answer about a scheduler that would not start would be about none.
func TestProfilesThatTheSchedulerRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ profile, want string }{
		"PermitGate behind DefaultPreemption": {
			"{multiPoint: {enabled: [{name: PermitGate}]}}",
			"profiles[0].plugins.postFilter: DefaultPreemption comes before PermitGate",
		},
		"ZoneSpread behind DefaultPreemption": {
			"{multiPoint: {enabled: [{name: ZoneSpread}], disabled: [{name: PodTopologySpread}]}}",
			"profiles[0].plugins.postFilter: DefaultPreemption comes before ZoneSpread",
		},
		"a plugin behind PermitGate": {
			"{multiPoint: {enabled: [{name: PermitGate}]}, postFilter: {enabled: [{name: PermitGate}]}, preBind: {enabled: [{name: PermitGate}]}}",
			"profiles[0].plugins.preBind: DynamicResources comes after PermitGate",
		},
		"ZoneSpread beside PodTopologySpread": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}}",
			"profiles[0].plugins: ZoneSpread replaces PodTopologySpread",
		},
		"PodTopologySpread that filters and does not score": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}, score: {disabled: [{name: PodTopologySpread}]}}",
			"profiles[0].plugins: ZoneSpread replaces PodTopologySpread",
		},
		"PodTopologySpread without a part in filtering": {
			"{multiPoint: {enabled: [{name: ZoneSpread}]}, postFilter: {enabled: [{name: ZoneSpread}]}, filter: {disabled: [{name: PodTopologySpread}]}}", "",
		},
		"PodTopologySpread alone": {"{}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sim.ParseConfig([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins: " + tc.profile + "\n"))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
