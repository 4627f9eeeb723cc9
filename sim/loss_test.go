package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
)

// TestFail: the nodes of a zone fail and their objects stay, as node-lifecycle-controller marks them. What becomes of a
// pod there is what taint eviction and its controller make of it.
func TestFail(t *testing.T) {
	onA := func(p *v1.Pod) { p.UID, p.Spec.NodeName, p.Status.Phase = "old", "n-a", v1.PodRunning }
	tolerating := func(t v1.Toleration) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{t} }
	}
	type pods map[string]string // what is there in the end, with its node; the old one is named with its state
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		want   pods
		staying, displaced, orphans,
		nodeBound int
	}{
		"of a ReplicaSet":           {ownedBy("apps/v1", "ReplicaSet"), pods{"old terminates": "n-a", "another": "n-b"}, 0, 1, 0, 0},
		"of a StatefulSet":          {ownedBy("apps/v1", "StatefulSet"), pods{"another": "n-b"}, 0, 1, 0, 0},
		"of a DaemonSet":            {ownedBy("apps/v1", "DaemonSet"), pods{"old": "n-a"}, 0, 0, 0, 0},
		"without a controller":      {func(p *v1.Pod) { p.OwnerReferences = nil }, pods{"old terminates": "n-a"}, 0, 0, 1, 0},
		"that tolerates it":         {tolerating(v1.Toleration{Operator: v1.TolerationOpExists}), pods{"old": "n-a"}, 1, 0, 0, 0},
		"that tolerates another":    {tolerating(v1.Toleration{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists}), pods{"old terminates": "n-a", "another": "n-b"}, 0, 1, 0, 0},
		"that tolerates scheduling": {tolerating(v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}), pods{"old terminates": "n-a", "another": "n-b"}, 0, 1, 0, 0},
		"that tolerates it for five minutes": {tolerating(v1.Toleration{
			Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		}), pods{"old terminates": "n-a", "another": "n-b"}, 0, 1, 0, 0},
		"that terminates": {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(-1)} }, pods{"old terminates": "n-a"}, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := func(p *v1.Pod) { // a node without room scores lower
				p.Spec.NodeName, p.Status.Phase = "n-b", v1.PodRunning
			}
			s := run(t, []client.Object{node("n-a", "a", "4"), node("n-b", "b", "4"), pod("old", "old", "1", onA, tc.change), pod("b", "b", "2", b)}, sim.Options{})
			s.Mark()
			before := s.Objects()
			for range 2 { // what fails can be taken back
				loss := s.Fail(inZoneA)
				require.Equal(t, []int{1, tc.staying, tc.displaced, tc.orphans, tc.nodeBound}, []int{
					len(loss.Nodes), len(loss.Staying), len(loss.Displaced), len(loss.Orphans), len(loss.NodeBound),
				})
				require.NoError(t, s.Run(t.Context()))
				is := pods{}
				for _, p := range sim.List[*v1.Pod](s) {
					switch {
					case p.Name == "b":
					case p.UID != "old":
						is["another"] = p.Spec.NodeName
					case p.DeletionTimestamp != nil:
						is["old terminates"] = p.Spec.NodeName
					default:
						is["old"] = p.Spec.NodeName
					}
				}
				require.Equal(t, tc.want, is)
				failed, _ := sim.Get[*v1.Node](s, "", "n-a")
				require.Equal(t, v1.ConditionUnknown, failed.Status.Conditions[0].Status)
				require.Len(t, failed.Spec.Taints, 2)
				require.Empty(t, s.Fail(inZoneA).Displaced, "asked again, nothing more happens")
				s.Rewind()
				require.NoError(t, s.Run(t.Context()))
				require.Equal(t, before, s.Objects())
			}
		})
	}
}

// TestControllersThatWaitReplaceLast while failed nodes are there: what they make then may preempt what others have made.
func TestControllersThatWaitReplaceLast(t *testing.T) {
	for kind, evicted := range map[string]int{"ReplicaSet": 0, "StatefulSet": 1} {
		t.Run(kind, func(t *testing.T) {
			onA := func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n-a", v1.PodRunning }
			high := func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](100) }
			s := run(t, []client.Object{
				node("n-a", "a", "4"), node("n-b", "b", "1"), pod("low", "low", "1", onA), pod("high", "high", "1", onA, high, ownedBy("apps/v1", kind)),
			}, sim.Options{})
			s.Fail(inZoneA)
			require.NoError(t, s.Run(t.Context()))
			require.Len(t, s.Evicted(), evicted)
			for _, p := range sim.List[*v1.Pod](s) {
				if p.Spec.NodeName == "n-b" {
					require.Equal(t, int32(100), *p.Spec.Priority)
				}
			}
		})
	}
}

// TestReplacedOneByOne: a pod that comes first takes the room, also if one of a higher priority comes later and evicts
// none. When both are there at once, the scheduler begins with the latter.
func TestReplacedOneByOne(t *testing.T) {
	for oneByOne, want := range map[bool]int32{true: 0, false: 100} {
		for name, lose := range map[string]func(*sim.Sim, func(*v1.Node) bool) *sim.Loss{"nodes go": (*sim.Sim).Lose, "nodes stay": (*sim.Sim).Fail} {
			for _, kind := range []string{"ReplicaSet", "StatefulSet"} {
				onA := func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n-a", v1.PodRunning }
				high := func(p *v1.Pod) {
					p.Spec.Priority, p.Spec.PreemptionPolicy = ptr.To[int32](100), ptr.To(v1.PreemptNever)
				}
				s := run(t, []client.Object{
					node("n-a", "a", "4"), node("n-b", "b", "1"),
					pod("high", "high", "1", onA, high, ownedBy("apps/v1", kind)), pod("low", "low", "1", onA, ownedBy("apps/v1", kind)),
				}, sim.Options{OneByOne: oneByOne, Rank: func(p *v1.Pod) []int64 { return []int64{int64(ptr.Deref(p.Spec.Priority, 0))} }})
				require.Len(t, lose(s, inZoneA).Displaced, 2)
				require.NoError(t, s.Run(t.Context()))
				there := map[string][]int32{}
				for _, p := range sim.List[*v1.Pod](s) {
					if p.DeletionTimestamp == nil {
						there[p.Spec.NodeName] = append(there[p.Spec.NodeName], ptr.Deref(p.Spec.Priority, 0))
					}
				}
				require.Equal(t, map[string][]int32{"n-b": {want}, "": {100 - want}}, there, "%s, one by one %v, of a %s", name, oneByOne, kind)
			}
		}
	}
}
