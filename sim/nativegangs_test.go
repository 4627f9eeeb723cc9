package sim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/build"
	"zonewise.dev/test/featuregates"
)

func TestMain(m *testing.M) { featuregates.Run(m) }

// nativeGang is a PodGroup of scheduling.k8s.io with so many members that wait, all of which it needs, and of which
// each asks for 2 CPUs.
func nativeGang(name string, members int, changes ...func(*v1.Pod)) []client.Object {
	objects := []client.Object{&kinds.NativePodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1},
		Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(members)}, //nolint:gosec // a few
		}},
	}}
	for i := range members {
		objects = append(objects, pod(fmt.Sprintf("%s-%d", name, i), name, "2", append([]func(*v1.Pod){func(p *v1.Pod) {
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
			p.GenerateName = name + "-"
		}}, changes...)...))
	}
	return objects
}

// released returns the status of the condition of PermitGate's on a PodGroup; empty without one.
func released(t *testing.T, s *sim.Sim, name string) metav1.ConditionStatus {
	t.Helper()
	group, ok := sim.Get[*kinds.NativePodGroup](s, "shop", name)
	require.True(t, ok)
	if c := apimeta.FindStatusCondition(group.Status.Conditions, native.ConditionReleased); c != nil {
		return c.Status
	}
	return ""
}

// zonesOf counts the pods of an app by zone; those that wait are in "".
func zonesOf(s *sim.Sim, app string) map[string]int {
	out := map[string]int{}
	for _, p := range sim.List[*v1.Pod](s) {
		if p.Labels["app"] == app {
			out[p.Labels[v1.LabelTopologyZone]]++
		}
	}
	return out
}

// twoZones is two nodes of 8 CPUs in each of two zones.
func twoZones() []client.Object {
	return []client.Object{node("a-0", "a", "8"), node("a-1", "a", "8"), node("b-0", "b", "8"), node("b-1", "b", "8")}
}

// TestNativeGangs: one that fits starts, one that does not holds nothing, and one that is lost with a zone is whole
// again elsewhere or waits for more room, all of it.
func TestNativeGangs(t *testing.T) {
	s := run(t, slices.Concat(twoZones(), nativeGang("small", 4), nativeGang("large", 17)), sim.Options{})
	require.Zero(t, zonesOf(s, "small")[""])
	require.Equal(t, metav1.ConditionTrue, released(t, s, "small"))
	require.Equal(t, map[string]int{"": 17}, zonesOf(s, "large"), "no member has a node")
	large, _ := sim.Get[*v1.Pod](s, "shop", "large-0")
	require.Contains(t, s.WhyWaits(large), "the cluster has no room for 17 members at once: short of cpu")

	s = run(t, slices.Concat(twoZones(), nativeGang("gang", 6)), sim.Options{})
	require.Zero(t, zonesOf(s, "gang")[""])
	lost := len(s.Lose(inZoneA).Displaced)
	require.NotZero(t, lost)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"b": 6}, zonesOf(s, "gang"))

	s = run(t, slices.Concat(twoZones(), nativeGang("gang", 10)), sim.Options{})
	require.Zero(t, zonesOf(s, "gang")[""])
	s.Lose(inZoneA)
	require.NoError(t, s.Run(t.Context()))
	require.LessOrEqual(t, zonesOf(s, "gang")["b"], 8)
	require.Equal(t, 10, zonesOf(s, "gang")["b"]+zonesOf(s, "gang")[""])
	_, err := s.AddNodes(2, "b-0")
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, map[string]int{"b": 10}, zonesOf(s, "gang"), "it takes room that comes")
}

// turnstile refuses all pods in Permit.
type turnstile struct{}

func (turnstile) Name() string { return "Turnstile" }

func (turnstile) Permit(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Unschedulable, "the turnstile is locked"), 0
}

// TestNativeGangIsRefusedInPermit: its members wait, and the copy comes to rest although no binding cycle follows on
// what they have reserved.
func TestNativeGangIsRefusedInPermit(t *testing.T) {
	cfg, err := sim.DefaultConfig()
	require.NoError(t, err)
	cfg.Profiles[0].Plugins.Permit.Enabled = append(cfg.Profiles[0].Plugins.Permit.Enabled, config.Plugin{Name: "Turnstile"})
	registry := frameworkruntime.Registry{"Turnstile": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return turnstile{}, nil }}
	s := run(t, slices.Concat(twoZones(), nativeGang("gang", 3)), sim.Options{Config: cfg, Registry: registry})
	require.Equal(t, map[string]int{"": 3}, zonesOf(s, "gang"))
}

// TestANativeGangPreempts: a whole gang takes the room of pods of a lower priority.
func TestANativeGangPreempts(t *testing.T) {
	objects := slices.Concat(twoZones(), nativeGang("gang", 4, func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](100) }))
	objects[4].(*kinds.NativePodGroup).Spec.Priority = ptr.To[int32](100)
	for i, on := range []string{"a-0", "a-1", "b-0", "b-1"} {
		objects = append(objects, pod(fmt.Sprintf("low-%d", i), "low", "7", func(p *v1.Pod) {
			p.Spec.NodeName, p.Status.Phase, p.UID = on, v1.PodRunning, types.UID("low-"+on)
		}))
	}
	s := run(t, objects, sim.Options{})
	require.Zero(t, zonesOf(s, "gang")[""])
	require.NotEmpty(t, s.Evicted())
}

// TestInvalidNativeGangsWait: the copy comes to an end although the scheduler finds an error in each attempt.
func TestInvalidNativeGangsWait(t *testing.T) {
	objects := slices.Concat(twoZones(), nativeGang("gang", 2))
	objects[5].(*v1.Pod).Spec.Priority = ptr.To[int32](100)
	s := run(t, objects, sim.Options{})
	require.Equal(t, map[string]int{"": 2}, zonesOf(s, "gang"))
	waits, _ := sim.Get[*v1.Pod](s, "shop", "gang-0")
	require.Contains(t, s.WhyWaits(waits), "same priority")
}

// TestMembersWithoutANativeGroup: they wait for the PodGroup, unless the cluster does not have the kind.
func TestMembersWithoutANativeGroup(t *testing.T) {
	objects := slices.Concat(twoZones(), nativeGang("gang", 2)[1:])
	s := run(t, objects, sim.Options{})
	require.Equal(t, map[string]int{"": 2}, zonesOf(s, "gang"))
	waits, _ := sim.Get[*v1.Pod](s, "shop", "gang-0")
	require.Contains(t, s.WhyWaits(waits), "PodGroup shop/gang")

	s = run(t, objects, sim.Options{NotInstalled: []string{kinds.NativePodGroups}})
	require.Zero(t, zonesOf(s, "gang")[""])
	require.NotNil(t, objects[4].(*v1.Pod).Spec.SchedulingGroup, "the objects stay as they were")
}

// TestNativeGangsOfOtherSchedulers: a plain kube-scheduler places them without PermitGate.
func TestNativeGangsOfOtherSchedulers(t *testing.T) {
	elsewhere := build.Scheduler("other")
	s := run(t, slices.Concat(twoZones(), nativeGang("small", 4, elsewhere), nativeGang("large", 20, elsewhere)), sim.Options{})
	require.Zero(t, zonesOf(s, "small")[""])
	require.Equal(t, map[string]int{"": 20}, zonesOf(s, "large"))
	_, err := s.AddNodes(3, "a-0")
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	require.Zero(t, zonesOf(s, "large")[""])
}

// TestNativeGangsGoWhereTheyDid: one seed gives one result.
func TestNativeGangsGoWhereTheyDid(t *testing.T) {
	places := func(seed int64) map[string]string {
		s := run(t, slices.Concat(twoZones(), nativeGang("one", 3), nativeGang("two", 3)), sim.Options{Seed: seed})
		s.Lose(inZoneA)
		require.NoError(t, s.Run(t.Context()))
		out := map[string]string{}
		for _, p := range sim.List[*v1.Pod](s) {
			out[p.Name] = p.Spec.NodeName
		}
		return out
	}
	first := places(1)
	for range 3 {
		require.Equal(t, first, places(1))
	}
}
