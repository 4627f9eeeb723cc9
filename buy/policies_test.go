package buy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// spread is policy shop/web for app web, with zones a, b and c.
func spread(change func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec: v1alpha1.ZoneSpreadPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Zones:       []v1alpha1.ZoneSpreadZone{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			Buy:         &v1alpha1.PolicyBuy{Max: 10},
		},
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func compiled(t require.TestingT, p *v1alpha1.ZoneSpreadPolicy) *policy.Policy {
	out, errs := policy.Compile(p)
	require.Empty(t, errs)
	return out
}

// decide is the decision of a policy with so many pods in the zones that have nodes.
func decide(t require.TestingT, p *v1alpha1.ZoneSpreadPolicy, replicas int64, pods map[string]int64) *policy.Table {
	in := policy.Input{Replicas: replicas}
	for zone, n := range pods {
		in.Domains = append(in.Domains, policy.Domain{Name: zone, Pods: n, Held: n, Eligible: true})
	}
	return compiled(t, p).Evaluate(in)
}

// refusedFor is the condition of a pod that a policy has made wait for so long.
func refusedFor(waited time.Duration, key string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(start.Add(-waited)),
			Message:            "0/2 nodes are available: 2 policy " + key + ": zone a holds 1 of 4, share 2.0, maxSkew 1 over zone c with 0 of weight 1.",
		}}
	}
}

func several(n int, options ...func(*v1.Pod)) (out []*v1.Pod) {
	for i := range n {
		out = append(out, waits(fmt.Sprint("web-", i), time.Hour, options...))
	}
	return out
}

// TestWaits: which pods a policy makes wait.
func TestWaits(t *testing.T) {
	p := compiled(t, spread(nil))
	refused := refusedFor(time.Minute, "shop/web")
	for _, tc := range []struct {
		name    string
		options []func(*v1.Pod)
		want    bool
	}{
		{"it is refused", []func(*v1.Pod){refused}, true},
		{"another policy refuses it", []func(*v1.Pod){refusedFor(time.Minute, "shop/web2")}, false},
		{"nothing is known of it", nil, false},
		{"it has a node", []func(*v1.Pod){refused, func(pod *v1.Pod) { pod.Spec.NodeName = "a1" }}, false},
		{"it preempts", []func(*v1.Pod){refused, func(pod *v1.Pod) { pod.Status.NominatedNodeName = "a1" }}, false},
		{"it is gated", []func(*v1.Pod){refused, func(pod *v1.Pod) {
			pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		}}, false},
		{"it is being deleted", []func(*v1.Pod){refused, func(pod *v1.Pod) {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(start))
		}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Waits(waits("web", time.Hour, tc.options...), p))
		})
	}
}

// TestPolicyWants: room is wanted where the policy lets the waiting pods go, and not where it will let them go later.
func TestPolicyWants(t *testing.T) {
	perZone := func(n int) func(*v1alpha1.ZoneSpreadPolicySpec) {
		return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone, s.MaxSkew = ptr.To(intstr.FromInt(n)), 100 }
	}
	for _, tc := range []struct {
		name     string
		change   func(*v1alpha1.ZoneSpreadPolicySpec)
		replicas int64
		pods     map[string]int64
		waiting  int
		options  []func(*v1.Pod)
		want     map[string]int32
	}{
		{
			name: "a declared zone without nodes", replicas: 6, pods: map[string]int64{"a": 1, "b": 1}, waiting: 4,
			want: map[string]int32{"c": 2},
		},
		{
			name: "a cap", change: perZone(2), replicas: 6, pods: map[string]int64{"a": 2, "b": 2}, waiting: 2,
			want: map[string]int32{"c": 2},
		},
		{
			name: "all zones are at the cap", change: perZone(2), replicas: 7, pods: map[string]int64{"a": 2, "b": 2},
			waiting: 3, want: map[string]int32{"c": 2},
		},
		{
			name:     "a majority has to remain",
			change:   func(s *v1alpha1.ZoneSpreadPolicySpec) { s.QuorumSafe, s.MaxSkew = true, 100 },
			replicas: 5, pods: map[string]int64{"a": 2, "b": 2}, waiting: 1, want: map[string]int32{"c": 1},
		},
		{
			name: "weights", change: func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Zones[0].Weight = new(int32(3)) },
			replicas: 10, pods: map[string]int64{"a": 1, "b": 2, "c": 2}, waiting: 5, want: map[string]int32{"a": 5},
		},
		{
			name:     "a forbidden zone",
			change:   func(s *v1alpha1.ZoneSpreadPolicySpec) { s.DefaultWeight = new(int32(0)) },
			replicas: 3, pods: map[string]int64{"a": 1, "b": 1, "c": 0, "d": 0}, waiting: 1,
			want: map[string]int32{"c": 1},
		},
		{name: "nothing is refused", replicas: 6, pods: map[string]int64{"a": 2, "b": 2, "c": 2}, waiting: 3},
		{
			name: "a zone where the pods cannot be", replicas: 6, pods: map[string]int64{"a": 1, "b": 1}, waiting: 4,
			options: []func(*v1.Pod){func(pod *v1.Pod) {
				pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "a"}
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := spread(tc.change)
			d := PolicyDemand(
				p, []Refused{{Table: decide(t, p, tc.replicas, tc.pods), Pods: several(tc.waiting, tc.options...)}},
				&Cluster{Now: start},
			)
			var got map[string]int32
			for _, w := range d.Wants {
				if got == nil {
					got = map[string]int32{}
				}
				got[w.Zone] += w.Pods
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, v1alpha1.Buy{Namespace: "shop", Max: 10}, d.Buy)
		})
	}
}

// TestPoliciesAgree: where another policy refuses a zone, nothing is asked for there.
func TestPoliciesAgree(t *testing.T) {
	p, other := spread(nil), spread(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Zones[2].Weight = new(int32(0)) })
	pods := map[string]int64{"a": 1, "b": 1}
	refused := Refused{Table: decide(t, p, 6, pods), Pods: several(2)}
	require.Len(t, PolicyDemand(p, []Refused{refused}, &Cluster{Now: start}).Wants, 1)
	refused.Beside = []*policy.Table{decide(t, other, 6, pods)}
	require.Empty(t, PolicyDemand(p, []Refused{refused}, &Cluster{Now: start}).Wants)
}

// TestPodThatFitsNowhere: one pod that the policies let go nowhere stops none behind it.
func TestPodThatFitsNowhere(t *testing.T) {
	p := spread(nil)
	fixed := several(1, func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "a"} })
	d := PolicyDemand(
		p, []Refused{{Table: decide(t, p, 6, map[string]int64{"a": 1, "b": 1}), Pods: append(fixed, several(1)...)}},
		&Cluster{Now: start},
	)
	require.Len(t, d.Wants, 1)
	require.Equal(t, "c", d.Wants[0].Zone)
}

// TestShapes: pods that differ in where they may be have buffers of their own, and those that keep apart from each
// other by nodes keep apart in the buffer.
func TestShapes(t *testing.T) {
	apart := v1.PodAffinityTerm{
		TopologyKey:    v1.LabelHostname,
		LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		MatchLabelKeys: []string{"x"},
	}
	pods := several(3)
	pods[1].Spec.Tolerations = []v1.Toleration{{Key: "web", Operator: v1.TolerationOpExists}}
	pods[2].Spec.Affinity = &v1.Affinity{
		NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpExists}},
		}}}},
		PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{apart},
		},
	}
	p := spread(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 9 })
	d := PolicyDemand(
		p, []Refused{{Table: decide(t, p, 20, map[string]int64{"a": 9, "b": 9}), Pods: pods}}, &Cluster{Now: start},
	)
	buffers, _ := d.Plan(nil, start)
	require.Len(t, buffers, 3)
	seen := map[string]bool{}
	for i := range buffers {
		require.Equal(t, "c", buffers[i].Zone)
		spec := d.PodTemplate(&buffers[i]).Template.Spec
		require.Equal(t, map[string]string{v1.LabelTopologyZone: "c"}, spec.NodeSelector)
		switch {
		case spec.Affinity != nil:
			require.Equal(t, pods[2].Spec.Affinity.NodeAffinity, spec.Affinity.NodeAffinity)
			terms := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			require.Len(t, terms, 2)
			require.Equal(t, map[string]string{OwnerLabel: "1"}, terms[0].LabelSelector.MatchLabels)
			require.Equal(t, apart.LabelSelector, terms[1].LabelSelector)
			require.Empty(t, terms[1].MatchLabelKeys, "the PodTemplate lacks the labels")
			seen["apart"] = true
		case len(spec.Tolerations) > 0:
			seen["tolerating"] = true
		default:
			seen["plain"] = true
		}
	}
	require.Len(t, seen, 3)
}

// TestArrivedPodsEndTheRequest: what is asked for ends at once when the pods run, not after FallAfter; if they are gone
// instead, it falls as usual.
func TestArrivedPodsEndTheRequest(t *testing.T) {
	p := spread(nil)
	cluster := &Cluster{
		Now: start, Nodes: []*v1.Node{node("a1", "a", true), node("b1", "b", true), node("c1", "c", true)},
	}
	d := PolicyDemand(
		p, []Refused{{Table: decide(t, p, 6, map[string]int64{"a": 1, "b": 1}), Pods: several(4)}}, cluster,
	)
	buffers, _ := d.Plan(nil, start)
	require.Len(t, buffers, 1)
	require.Equal(t, int32(2), buffers[0].Asked)

	placed := several(2, func(pod *v1.Pod) {
		pod.Spec.NodeName = "c1"
		pod.Status.Conditions = []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(start)},
		}
	})
	cluster.Pods = placed
	after, _ := PolicyDemand(p, nil, cluster).Plan(buffers, start)
	require.Empty(t, after)
	cluster.Pods = placed[:1]
	after, _ = PolicyDemand(p, nil, cluster).Plan(buffers, start)
	require.Equal(t, int32(1), after[0].Asked)
	cluster.Pods = nil
	after, _ = PolicyDemand(p, nil, cluster).Plan(buffers, start)
	require.Equal(t, int32(2), after[0].Asked)
	after, _ = PolicyDemand(p, nil, cluster).Plan(after, start.Add(FallAfter))
	require.Empty(t, after)

	// They count once: what is not wanted for a moment later stays.
	wants := demand(9, want("c", "1", 6))
	buffers, _ = wants.Plan(nil, start)
	wants.Wants, wants.Arrived = nil, map[string][]time.Time{"c": {start.Add(time.Second), start.Add(time.Second)}}
	for i := 1; i < 5; i++ {
		buffers, _ = wants.Plan(buffers, start.Add(time.Duration(i)*15*time.Second))
		require.Equal(t, int32(4), buffers[0].Asked)
	}

	cluster.Nodes[1] = node("b1", "b", false)
	lost := PolicyDemand(p, nil, cluster)
	require.Empty(t, lost.Frozen, "in the other zones room may be missing")
	require.Equal(t, []string{"b"}, lost.Lost)
}

// world is a cluster of one policy, with an autoscaler that gives each buffer room.
type world struct {
	policy   *v1alpha1.ZoneSpreadPolicy
	replicas int64
	pods     map[string]int64 // by zone
	room     map[string]int64 // for so many more, by zone with nodes
	buffers  []Buffer
	bought   int64
	now      time.Time
	arrived  map[string][]time.Time
}

// place places pods as the scheduler does, where the policy admits them and there is room, and returns how many wait.
func (w *world) place(t require.TestingT) (waiting int64) {
	for waiting = w.replicas; waiting > 0; waiting-- {
		total := int64(0)
		for _, n := range w.pods {
			total += n
		}
		if total == w.replicas {
			return 0
		}
		waiting = w.replicas - total
		zone, ok := decide(t, w.policy, w.replicas, w.pods).Emptiest(func(zone string) bool { return w.room[zone] > 0 })
		if !ok {
			return waiting
		}
		w.pods[zone]++
		w.room[zone]--
		w.arrived[zone] = append(w.arrived[zone], w.now)
	}
	return 0
}

// look plans for the pods that wait, and has the autoscaler give the buffers room.
func (w *world) look(t require.TestingT, waiting int64) *Demand {
	d := PolicyDemand(
		w.policy, []Refused{{Table: decide(t, w.policy, w.replicas, w.pods), Pods: several(int(waiting))}},
		&Cluster{Now: w.now},
	)
	d.Arrived = w.arrived
	w.buffers, _ = d.Plan(w.buffers, w.now)
	for _, b := range w.buffers {
		if _, exists := w.pods[b.Zone]; !exists {
			w.pods[b.Zone] = 0
		}
		if lack := int64(b.Asked) - w.room[b.Zone]; lack > 0 {
			w.room[b.Zone] += lack
			w.bought += lack
		}
	}
	return d
}

// TestPolicyBuys: whatever the policy and wherever its pods are, with an autoscaler that gives what is asked for
//   - no more is wanted than pods wait, and no more asked for than max;
//   - it is only asked for zones in which the policy lets a pod run;
//   - pods wait in the end only if the policy lets them go nowhere, or if it refuses no zone, so that an autoscaler sees what is missing;
//   - no room is bought twice: each pod that waited has brought room for one at most;
//   - nothing is asked for in the end.
func TestPolicyBuys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			policy: spread(func(s *v1alpha1.ZoneSpreadPolicySpec) {
				s.MaxSkew = rapid.Int32Range(1, 3).Draw(t, "maxSkew")
				for i := range s.Zones {
					s.Zones[i].Weight = new(rapid.Int32Range(0, 3).Draw(t, "weight"))
				}
				s.Zones[0].Weight = new(rapid.Int32Range(1, 3).Draw(t, "weight of a"))
				if rapid.Bool().Draw(t, "capped") {
					s.MaxPerZone = ptr.To(intstr.FromInt32(rapid.Int32Range(1, 5).Draw(t, "maxPerZone")))
				}
				s.QuorumSafe = rapid.Bool().Draw(t, "quorumSafe")
				s.Buy.Max = rapid.Int32Range(1, 12).Draw(t, "max")
			}),
			replicas: rapid.Int64Range(1, 12).Draw(t, "replicas"), pods: map[string]int64{}, room: map[string]int64{},
			now: start, arrived: map[string][]time.Time{},
		}
		for _, zone := range []string{"a", "b", "c", "d"} {
			if rapid.Bool().Draw(t, "nodes in "+zone) {
				w.pods[zone], w.room[zone] = 0, rapid.Int64Range(0, 6).Draw(t, "room in "+zone)
			}
		}
		waited := w.place(t)
		waiting := waited
		for range 60 {
			waiting = w.place(t)
			d := w.look(t, waiting)
			var asked, wanted int32
			for _, b := range w.buffers {
				asked, wanted = asked+b.Asked, wanted+b.Wanted
				if b.Wanted > 0 && !decide(t, w.policy, w.replicas, w.pods).Rule(b.Zone).OK() {
					t.Fatalf("%d are wanted in zone %s, which the policy refuses", b.Wanted, b.Zone)
				}
			}
			if asked > d.Buy.Max || int64(wanted) > waiting {
				t.Fatalf(
					"%d are wanted and %d asked for, of at most %d, while %d wait", wanted, asked, d.Buy.Max, waiting,
				)
			}
			w.now = w.now.Add(15 * time.Second)
		}
		table := decide(t, w.policy, w.replicas, w.pods)
		if _, ok := table.Emptiest(func(string) bool { return true }); waiting > 0 && ok && table.Refuses() {
			t.Fatalf("%d of %d pods wait, with %v placed and %v asked for", waiting, w.replicas, w.pods, w.buffers)
		}
		if w.bought > waited {
			t.Fatalf("room for %d was bought, for %d pods that waited", w.bought, waited)
		}
		if len(w.buffers) > 0 {
			t.Fatalf("%v are left", w.buffers)
		}
	})
}
