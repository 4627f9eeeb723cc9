package buy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
)

// refused says that a policy has made pods wait for a minute.
func refused(key string, pods ...*v1.Pod) {
	for _, pod := range pods {
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(clitest.Now.Add(-time.Minute)),
			Message:            "0/2 nodes are available: 2 policy " + key + ": zone a holds 2 of 6, share 2.0, cap 2 (maxPerZone 2).",
		}}
	}
}

// TestPoliciesBuy: what the policies of a cluster want, counted as the scheduler counts.
func TestPoliciesBuy(t *testing.T) {
	buys := func(most int32, change func(*v1alpha1.ZoneSpreadPolicySpec)) func(*v1alpha1.ZoneSpreadPolicySpec) {
		return func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.MaxSkew, s.Zones, s.Buy = 100, []v1alpha1.ZoneSpreadZone{{Name: "c"}}, &v1alpha1.PolicyBuy{Max: most}
			if change != nil {
				change(s)
			}
		}
	}
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	c.Node("b", "b", "8", "32Gi")
	// Caps of a share of the replicas: they are the Deployment's, and each revision counts for itself.
	web := c.Deployment("web", 6, "1", "1Gi", nil)
	web("a")
	web("a")
	web("b")
	web("b")
	refused("shop/web", web(""), web(""))
	c.Policy("web", buys(10, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = new(intstr.FromString("33%")) }))
	// One that waits for something else.
	other := c.Deployment("other", 6, "1", "1Gi", nil)
	other("a")
	refused("shop/some", other(""))
	c.Policy("other", buys(10, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 1 }))
	// One with two policies that made it wait: the first one buys, where the second admits it.
	both := c.Deployment("both", 2, "1", "1Gi", nil)
	both("a")
	pod := both("")
	refused("shop/both", pod)
	for _, name := range []string{"both", "second"} {
		p := c.Policy("both", buys(10, func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.MaxSkew = 1
			if name == "second" {
				s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "b", Weight: new(int32(0))}, {Name: "c"}}
			}
		}))
		p.Name = name
	}
	pod.Status.Conditions[0].Message += " 1 policy shop/second: zone a holds 1 of 2."
	// One that wanted something before.
	c.Policy("past", nil).Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionBuying}}
	c.Policy("never", nil)

	all := map[string]*buyer{}
	for _, b := range buyersOf(c.Snapshot, clitest.Now, refusals{}) {
		all[b.name] = b
	}
	require.Len(t, all, 5)
	require.Nil(t, all["shop/past"].demand)
	wants := func(name string) map[string]int32 {
		out := map[string]int32{}
		for _, w := range all["shop/"+name].demand.Wants {
			out[w.Zone] += w.Pods
		}
		return out
	}
	require.Equal(t, map[string]int32{"c": 2}, wants("web"), "zones a and b are at 33% of 6, rounded up")
	require.Empty(t, wants("other"))
	require.Equal(t, map[string]int32{"c": 1}, wants("both"))
	require.Empty(t, wants("second"))

	c.Missing = []snapshot.Missing{{Resource: "replicasets.apps", Reason: snapshot.Forbidden}}
	for _, b := range buyersOf(c.Snapshot, clitest.Now, refusals{}) {
		if b.demand != nil {
			require.Equal(t, "replicasets.apps cannot be read", b.demand.Frozen)
		}
	}
}

// TestWorkloadsOfOnePolicy: two Deployments with caps of their own, whose pods count for each other's skew, ask
// together for no more than the policy lets into the zone. Pods with another node selector are decided by themselves.
func TestWorkloadsOfOnePolicy(t *testing.T) {
	for name, want := range map[string]int32{"the same nodes": 2, "other nodes": 4} {
		t.Run(name, func(t *testing.T) {
			c := clitest.New()
			for _, zone := range []string{"a", "b"} {
				c.Node(zone, zone, "8", "32Gi").Labels["disk"] = "ssd"
			}
			for _, app := range []string{"web", "api"} {
				add := c.Deployment(app, 4, "1", "1Gi", func(p *v1.PodTemplateSpec) {
					if app == "api" && name == "other nodes" {
						p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
					}
				})
				add("a")
				add("b")
				refused("shop/both", add(""), add(""))
			}
			p := c.Policy("both", func(s *v1alpha1.ZoneSpreadPolicySpec) {
				s.MaxSkew, s.MaxPerZone, s.Zones = 1, new(intstr.FromString("50%")), []v1alpha1.ZoneSpreadZone{
					{Name: "c"},
				}
				s.Buy = &v1alpha1.PolicyBuy{Max: 10}
			})
			p.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "api"}},
			}}
			got := map[string]int32{}
			for _, w := range buyersOf(c.Snapshot, clitest.Now, refusals{})[0].demand.Wants {
				got[w.Zone] += w.Pods
			}
			require.Equal(t, map[string]int32{"c": want}, got)
		})
	}
}

// TestClosingZone: while downAfter runs, a zone whose nodes are gone holds the others back, as it does in the
// scheduler.
func TestClosingZone(t *testing.T) {
	c := clitest.New()
	lost := c.Node("a", "a", "8", "32Gi", v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule})
	lost.Status.Conditions[0].Status = v1.ConditionUnknown
	lost.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clitest.Now.Add(-time.Minute))
	c.Node("b", "b", "8", "32Gi")
	c.Node("c", "c", "8", "32Gi")
	add := c.Deployment("web", 7, "1", "1Gi", nil)
	for _, node := range []string{"a", "b", "b", "c", "c", "c"} {
		add(node)
	}
	refused("shop/web", add(""))
	p := c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew, s.Buy = 1, &v1alpha1.PolicyBuy{Max: 10} })
	for _, zone := range []string{"a", "b", "c"} {
		p.Status.Zones = append(p.Status.Zones, v1alpha1.ZoneStatus{Name: zone, State: v1alpha1.ZoneAvailable})
	}
	zones := func(now time.Time) (out []string) {
		c.TakenAt = now
		for _, w := range buyersOf(c.Snapshot, now, refusals{})[0].demand.Wants {
			out = append(out, w.Zone)
		}
		return out
	}
	require.Equal(t, []string{"a"}, zones(clitest.Now))
	require.Equal(t, []string{"b"}, zones(clitest.Now.Add(2*time.Minute)))
}

// TestHowLongAPodIsRefused: room is asked for within the hour since the policy was seen to refuse a pod, and of one
// that has been gated not in the first 30 seconds of it.
func TestHowLongAPodIsRefused(t *testing.T) {
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	web := c.Deployment("web", 2, "1", "1Gi", nil)
	web("a")
	pod := web("")
	refused("shop/web", pod)
	pod.Status.Conditions[0].LastTransitionTime.Time = clitest.Now.Add(-24 * time.Hour) // a gate kept it until now
	pod.Generation = 2
	c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.MaxSkew, s.Zones, s.Buy = 1, []v1alpha1.ZoneSpreadZone{{Name: "c"}}, &v1alpha1.PolicyBuy{Max: 10}
	})
	seen := refusals{}
	wants := func(after time.Duration) int {
		return len(buyersOf(c.Snapshot, clitest.Now.Add(after), seen)[0].demand.Wants)
	}
	require.Zero(t, wants(0))
	require.Zero(t, wants(buy.WaitsAtLeast-time.Second))
	require.Equal(t, 1, wants(buy.WaitsAtLeast))
	require.Equal(t, 1, wants(buy.WaitsAtMost-time.Second))
	require.Zero(t, wants(buy.WaitsAtMost))

	pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "again"}}
	require.Zero(t, wants(buy.WaitsAtMost))
	require.Empty(t, seen)
	pod.Spec.SchedulingGates = nil
	require.Zero(t, wants(buy.WaitsAtMost))
	require.Equal(t, 1, wants(buy.WaitsAtMost+buy.WaitsAtLeast))

	// One that never had a gate: its condition says since when it waits, to a controller that has just started as well.
	pod.Generation = 1
	seen = refusals{}
	require.Equal(t, 1, wants(0))
}
