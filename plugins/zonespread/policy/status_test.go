package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

func TestInfeasible(t *testing.T) {
	for _, test := range []struct {
		name     string
		p        *policy.Policy
		zones    int
		replicas int64
		want     string
	}{
		{"no replicas", compile(t, quorumSafe), 3, 0, ""},
		{"no zones", compile(t), 0, 9, "NoZones"},
		{"no allowed zone", compile(t, withZones(weighted("z", 1)), defaultWeight(0)), 3, 9, "CapsBelowReplicas"},
		{"minZones, and yet room for all", compile(t, minZones(4)), 3, 3, ""},
		{"minZones of allowed ones", compile(t, minZones(3), withZones(weighted("a", 0))), 3, 9, "MinZonesAboveZones"},
		{"quorum of 1", compile(t, quorumSafe), 3, 1, "QuorumNeedsThreeReplicas"},
		{"quorum of 4 in 3 zones", compile(t, quorumSafe), 3, 4, "CapsBelowReplicas"},
		{"quorum of 4 in 4 zones", compile(t, quorumSafe), 4, 4, ""},
		{"33%, many", compile(t, maxPerZone("33%")), 3, 200, "CapsBelowReplicas"},
		{"33%, few", compile(t, maxPerZone("33%")), 3, 10, ""},
		{"a forbidden zone", compile(t, maxPerZone("50%"), withZones(weighted("a", 0))), 2, 6, "CapsBelowReplicas"},
		{"maxPods", compile(t, withZones(capped("a", 1, 2), capped("b", 1, 2))), 2, 7, "CapsBelowReplicas"},
		{"maxPods of one zone only", compile(t, withZones(capped("a", 1, 2))), 3, 7, ""},
		{"unknown zone, few replicas", compile(t, withZones(weighted("typo", 1))), 3, 3, ""},
		{"unknown zone", compile(t, withZones(weighted("typo", 1))), 3, 9, "SkewBelowReplicas"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, infeasible(t, test.p, test.zones, workload(test.replicas)))
		})
	}
}

// A policy is called infeasible exactly when greedy placement can not place all replicas, and the message tells how
// many it can place where it gives a number. (minZones and a quorum of less than three are infeasible by definition.)
func TestInfeasibleMeansThatPodsWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "zones")
		r := rapid.IntRange(1, 20).Draw(t, "replicas")
		var changes []change
		switch rapid.IntRange(0, 2).Draw(t, "cap") {
		case 0:
			changes = append(changes,
				maxPerZone([]string{
					"10%", "25%", "33%", "34%", "50%", "1",
					"3",
				}[rapid.IntRange(0, 6).Draw(t, "maxPerZone")]))
		case 1:
			if r >= 3 {
				changes = append(changes, quorumSafe)
			}
		}
		if rapid.Bool().Draw(t, "unknown zone") {
			changes = append(changes,
				withZones(weighted("typo", 1), weighted("a", rapid.Int32Range(1, 5).Draw(t, "weight"))))
		}
		changes = append(changes, maxSkew(rapid.Int32Range(1, 3).Draw(t, "maxSkew")))
		p := compile(t, changes...)
		zs := policy.NewZones(p, nil)
		zs.ObserveNodes(noon, readyZones(zoneNames(n)...))
		status := p.Status(zs, observed(p, []policy.Workload{workload(int64(r))}), v1alpha1.ZoneSpreadPolicyStatus{},
			noon)
		placed := place(p, r, zoneNames(n), nil, plenty, map[string]int64{})
		require.Equal(t, placed < r, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionInfeasible),
			"%d of %d: %v", placed, r, status.Conditions)
	})
}

func desiredOf(status v1alpha1.ZoneSpreadPolicyStatus) map[string]int64 {
	desired := map[string]int64{}
	for _, z := range status.Zones {
		desired[z.Name] = z.Desired
	}
	return desired
}

func TestDesired(t *testing.T) {
	ask := func(p *policy.Policy, r int64, pods counts, see func(*policy.Zones)) counts {
		zs := policy.NewZones(p, nil)
		zs.ObserveNodes(noon, readyZones("a", "b", "c"))
		if see != nil {
			see(zs)
		}
		return desiredOf(p.Status(zs, observed(p, []policy.Workload{workload(r)}, pods),
			v1alpha1.ZoneSpreadPolicyStatus{}, at(10*time.Minute)))
	}
	lost := func(zs *policy.Zones) { zs.ObserveNodes(at(time.Minute), zonesWith(cClosed)) }
	full := func(zs *policy.Zones) {
		zs.RecordRefusal(at(0), "c", web)
		zs.RecordRefusal(at(6*time.Minute), "c", web)
	}
	require.Equal(t, counts{"a": 3, "b": 3, "c": 3}, ask(compile(t), 9, nil, nil))
	require.Equal(t, counts{"a": 4, "b": 3, "c": 3}, ask(compile(t), 10, nil, nil))
	require.Equal(t, counts{"a": 7, "b": 2, "c": 1},
		ask(compile(t, withZones(weighted("a", 7), weighted("b", 2))), 10, nil, nil))
	require.Equal(t, counts{"a": 5, "b": 4, "c": 1}, ask(compile(t, withZones(capped("c", 1, 1))), 10, nil, nil),
		"what a cap turns away goes elsewhere")
	require.Equal(t, counts{"a": 4, "b": 3, "c": 3},
		ask(compile(t, maxPerZone("40%"), withZones(weighted("a", 100))), 10, nil, nil))
	require.Equal(t, counts{"a": 5, "b": 4, "c": 0}, ask(compile(t, withZones(weighted("c", 0))), 9, nil, nil))
	require.Equal(t, counts{"a": 5, "b": 4, "c": 0}, ask(compile(t), 9, counts{"c": 3}, lost),
		"a closed zone holds nothing")
	require.Equal(t, counts{"a": 4, "b": 4, "c": 0}, ask(compile(t, maxPerZone("40%")), 10, nil, lost),
		"caps hold: two have no place")
	require.Equal(t, counts{"a": 4, "b": 4, "c": 1}, ask(compile(t), 9, counts{"c": 1}, full),
		"a full zone keeps what it has")
	require.Equal(t, counts{"a": 1, "b": 1, "c": 1}, ask(compile(t), 3, counts{"c": 3}, full),
		"but no more than its part")
	require.Equal(t, counts{"a": 2, "b": 2, "c": 2, "z": 0}, ask(compile(t, withZones(weighted("z", 9))), 6, nil, nil),
		"where there are no nodes, no pods")
}

func TestDesiredAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "zones")
		r := rapid.Int64Range(0, 200).Draw(t, "replicas")
		p := drawPolicy(t, n, max(r, 1), r > 0)
		zs := policy.NewZones(p, nil)
		zs.ObserveNodes(noon, readyZones(zoneNames(n)...))
		status := p.Status(zs, observed(p, []policy.Workload{workload(r)}), v1alpha1.ZoneSpreadPolicyStatus{}, noon)
		sum, room := int64(0), int64(0)
		for _, z := range status.Zones {
			if z.State == v1alpha1.ZoneEmpty {
				require.Zero(t, z.Desired)
				continue
			}
			limit := capOfZone(p, zoneNames(n), z.Name, status.Replicas)
			require.LessOrEqual(t, z.Desired, limit)
			sum += z.Desired
			room += limit
		}
		require.Equal(t, min(status.Replicas, room), sum)
	})
}

func condition(t *testing.T, s *v1alpha1.ZoneSpreadPolicyStatus, kind string) *metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(s.Conditions, kind)
	require.NotNil(t, c)
	return c
}

func TestStatusConditions(t *testing.T) {
	p := compile(t, maxPerZone("40%"), withZones(weighted("f", 0)))
	zs := policy.NewZones(p, nil)
	zs.ObserveNodes(noon, readyZones("a", "b", "c", "f"))
	check := func(wantReason, wantMessage string, waiting int64, revisions ...counts) {
		t.Helper()
		o := observed(p, []policy.Workload{workload(10)}, revisions...)
		o.Waiting = waiting
		s := p.Status(zs, o, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
		c := condition(t, &s, v1alpha1.ConditionSatisfied)
		require.Equal(t, c.Reason == "Satisfied", c.Status == metav1.ConditionTrue)
		require.Equal(t, wantReason, c.Reason)
		require.Equal(t, wantMessage, c.Message)
	}
	const fine = "all placed pods obey the policy"
	check("Satisfied", fine, 0)
	check("Satisfied", fine, 0, counts{"a": 4, "b": 3, "c": 3})
	check("Satisfied", fine, 0, counts{"a": 3, "b": 3, "c": 3}, counts{"a": 1, "b": 2, "c": 1})
	check("SkewExceeded", "zone a is 4 pods ahead of its share, maxSkew 1", 0, counts{"a": 4})
	check("CapExceeded", "zone b holds 5 pods of one revision, cap 4 (maxPerZone)", 0, counts{"a": 4, "b": 5, "c": 1})
	check("PodsInForbiddenZone", "zone f has weight 0 and holds 2 pods", 0, counts{"a": 2, "b": 2, "c": 2, "f": 2})
	check("PodsWaiting", "2 pods wait because of the policy", 2, counts{"a": 2, "b": 2, "c": 2})

	s := p.Status(zs, observed(p, []policy.Workload{workload(10)}, counts{"a": 4, "b": 1}, counts{"a": 1}),
		v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	require.EqualValues(t, 10, s.Replicas)
	require.EqualValues(t, 6, s.Pods)
	require.EqualValues(t, 4, s.Skew)
	require.EqualValues(t, 3, s.ObservedGeneration)
	require.Equal(t, v1alpha1.ZoneStatus{Name: "a", Pods: 5, Desired: 4, State: v1alpha1.ZoneAvailable}, s.Zones[0])
	require.Equal(t, metav1.ConditionTrue, condition(t, &s, v1alpha1.ConditionAccepted).Status)
	ready := condition(t, &s, v1alpha1.ConditionReady)
	require.Equal(t, metav1.ConditionTrue, ready.Status)
	require.EqualValues(t, 3, ready.ObservedGeneration)

	typo := compile(t, withZones(weighted("typo", 1)))
	zs = policy.NewZones(typo, nil)
	zs.ObserveNodes(noon, readyZones("a"))
	s = typo.Status(zs, observed(typo, nil), v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	c := condition(t, &s, v1alpha1.ConditionAccepted)
	require.Equal(t, "ZonesWithoutNodes", c.Reason)
	require.Equal(t, `spec.zones: zone "typo" never had an open node with that value of topology.kubernetes.io/zone`,
		c.Message)
}

// TestEachWorkloadHasTheCapsForItself: two workloads of ten under one policy with 40% may have four pods each in a
// zone.
func TestEachWorkloadHasTheCapsForItself(t *testing.T) {
	web, api := workload(10), workload(10)
	api.UID, api.Name = "api", "Deployment api"
	four, five := counts{"a": 4, "b": 3, "c": 3}, counts{"a": 5, "b": 3, "c": 2}
	ask := func(p *policy.Policy, waiting []policy.Workload, revisions ...counts) v1alpha1.ZoneSpreadPolicyStatus {
		zs := policy.NewZones(p, nil)
		zs.ObserveNodes(noon, readyZones("a", "b", "c"))
		return p.Status(zs, observed(p, waiting, revisions...), v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	}
	both := []policy.Workload{web, api}
	owner := compile(t, maxPerZone("40%"), maxSkew(9))
	s := ask(owner, both, four, four)
	require.EqualValues(t, 20, s.Replicas)
	require.EqualValues(t, 8, s.Zones[0].Pods)
	require.EqualValues(t, 8, s.Zones[0].Desired)
	require.Equal(t, "Satisfied", condition(t, &s, v1alpha1.ConditionSatisfied).Reason)
	s = ask(owner, both, four, five)
	require.Equal(t, "zone a holds 5 pods of one revision, cap 4 (maxPerZone)",
		condition(t, &s, v1alpha1.ConditionSatisfied).Message)

	together := compile(t, maxPerZone("40%"), maxSkew(9), replicas("Matching"))
	s = ask(together, both, four, four)
	require.Equal(t, "Satisfied", condition(t, &s, v1alpha1.ConditionSatisfied).Reason, "8 of 20")
	s = ask(together, both, four, five)
	require.Equal(t, "zone a holds 9 pods of one revision, cap 8 (maxPerZone)",
		condition(t, &s, v1alpha1.ConditionSatisfied).Message)

	small := api
	small.Replicas = 2
	s = ask(compile(t, quorumSafe), []policy.Workload{web, small})
	c := condition(t, &s, v1alpha1.ConditionInfeasible)
	require.Equal(t, "QuorumNeedsThreeReplicas", c.Reason)
	require.Contains(t, c.Message, "Deployment api: ")

	unknown := policy.Workload{UID: "rollout", Name: "Rollout web"}
	s = ask(owner, []policy.Workload{unknown}, five)
	require.Equal(t, "ReplicasUnknown", condition(t, &s, v1alpha1.ConditionAccepted).Reason)
	require.Contains(t, condition(t, &s, v1alpha1.ConditionAccepted).Message, "Rollout web")
	require.Equal(t, "Satisfied", condition(t, &s, v1alpha1.ConditionSatisfied).Reason,
		"what is not known refuses nothing")
	require.EqualValues(t, 10, s.Replicas, "what there is of them")
}

// TestStatusCountsGangs: with unit PodGroup a gang counts once in each zone that has one of its pods.
func TestStatusCountsGangs(t *testing.T) {
	p := compile(t, countGangs, quorumSafe)
	zs := policy.NewZones(p, nil)
	zs.ObserveNodes(noon, readyZones("a", "b", "c"))
	o := policy.Observation{Tally: p.NewTally()}
	job := &policy.Workload{UID: "job"}
	ofGang := func(name string) labels.Set { return labels.Set{v1alpha1.PodGroupLabel: name} }
	for gang, zones := range map[string][]string{
		"one": {"a", "a", "a", "b"}, "two": {"b", "b"}, "three": {"c", "", ""},
		"four": {"", ""},
	} {
		for _, zone := range zones {
			o.Tally.Add(job, ofGang(gang), zone, nil)
		}
	}
	o.Tally.Add(&policy.Workload{}, nil, "a", nil)
	s := p.Status(zs, o, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	require.EqualValues(t, 5, s.Replicas, "four gangs and a pod")
	require.Equal(t, []int64{2, 2, 1}, []int64{s.Zones[0].Pods, s.Zones[1].Pods, s.Zones[2].Pods})
	require.Equal(t, "Satisfied", condition(t, &s, v1alpha1.ConditionSatisfied).Reason)
	o.Tally.Add(job, ofGang("four"), "a", nil)
	s = p.Status(zs, o, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	require.Equal(t, "CapExceeded", condition(t, &s, v1alpha1.ConditionSatisfied).Reason)
}

// Nothing is written when nothing happened, and a condition keeps the time of its change.
func TestStatusIsStable(t *testing.T) {
	p := compile(t)
	zs := policy.NewZones(p, nil)
	zs.ObserveNodes(noon, readyZones("a", "b", "c"))
	o := observed(p, []policy.Workload{workload(9)}, counts{"a": 3}, counts{"b": 3}, counts{"c": 3})
	first := p.Status(zs, o, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	kept := *first.DeepCopy()
	for range 20 {
		require.Empty(t, cmp.Diff(first, p.Status(zs, o, first, at(time.Hour))))
	}
	o = observed(p, []policy.Workload{workload(9)}, counts{"a": 3, "b": 3, "c": 3})
	later := p.Status(zs, o, first, at(time.Hour))
	require.Equal(t, at(time.Hour).Truncate(time.Second),
		condition(t, &later, v1alpha1.ConditionSatisfied).LastTransitionTime.Time)
	require.Equal(t, noon.Truncate(time.Second),
		condition(t, &later, v1alpha1.ConditionAccepted).LastTransitionTime.Time)
	require.Empty(t, cmp.Diff(kept, first), "the previous status is left alone")
}

// TestScaleDownIsNotObserved: until a controller has looked at a policy with KeepSpread, its status says so. What a
// controller has written stays, and goes when it is not asked for.
func TestScaleDownIsNotObserved(t *testing.T) {
	ordered := func(spec change, previous v1alpha1.ZoneSpreadPolicyStatus) (v1alpha1.ZoneSpreadPolicyStatus, *metav1.Condition) {
		p := compile(t, spec)
		s := p.Status(policy.NewZones(p, nil), observed(p, []policy.Workload{workload(9)}), previous, noon)
		return s, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionScaleDownOrdered)
	}
	keep := func(s *v1alpha1.ZoneSpreadPolicySpec) { s.ScaleDownPolicy = v1alpha1.ScaleDownKeepSpread }
	ignore := func(s *v1alpha1.ZoneSpreadPolicySpec) { s.ScaleDownPolicy = v1alpha1.ScaleDownIgnore }
	s, c := ordered(keep, v1alpha1.ZoneSpreadPolicyStatus{})
	require.Equal(t, []string{"Unknown", v1alpha1.ReasonNotObserved}, []string{string(c.Status), c.Reason})
	c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonOrdered
	_, c = ordered(keep, s)
	require.Equal(t, v1alpha1.ReasonOrdered, c.Reason)
	_, c = ordered(ignore, s)
	require.Nil(t, c)
}

// TestStatusByTheZonesOfItsPods: what the scheduler itself does is no fault, whichever zones its pods may not use.
func TestStatusByTheZonesOfItsPods(t *testing.T) {
	p := compile(t)
	web := workload(9)
	all, gpuOnly := map[string]bool{"d": true}, map[string]bool{"a": true, "b": true, "c": true}
	for _, test := range []struct {
		name   string
		placed string // a zone for each pod
		barred []map[string]bool
		skew   int64
		want   []int64 // desired
	}{
		{"none of the pods may use zone d", "aaabbbccc", []map[string]bool{all}, 0, []int64{3, 3, 3, 0}},
		{"all may", "aaabbbccc", []map[string]bool{nil}, 3, []int64{3, 2, 2, 2}},
		{"ahead of a zone that they may use", "aaaaabbbc", []map[string]bool{all}, 4, []int64{3, 3, 3, 0}},
		{"some may: each could go to none", "aaabbbddd", []map[string]bool{all, gpuOnly}, 0, []int64{3, 2, 2, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			zs := policy.NewZones(p, nil)
			zs.ObserveNodes(noon, readyZones("a", "b", "c", "d"))
			o := policy.Observation{Tally: p.NewTally()}
			for i, zone := range test.placed {
				o.Tally.Add(&web, labels.Set{"app": "web"}, string(zone), test.barred[i%len(test.barred)])
			}
			s := p.Status(zs, o, v1alpha1.ZoneSpreadPolicyStatus{}, noon)
			require.Equal(t, test.skew, s.Skew, "the skew among zones that every pod may use")
			var desired []int64
			for _, z := range s.Zones {
				desired = append(desired, z.Desired)
			}
			require.Equal(t, test.want, desired, "no pod is desired where none may go")
		})
	}
}

func TestRejected(t *testing.T) {
	obj := object(func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key:      "app",
			Operator: "Like", Values: []string{"web"},
		}}}
	})
	since := metav1.NewTime(noon)
	obj.Status.Zones = []v1alpha1.ZoneStatus{{Name: "a", State: v1alpha1.ZoneClosed, Since: &since}}
	p, errs := policy.Compile(obj)
	require.Nil(t, p)
	status := policy.Rejected(obj, errs, noon)
	c := condition(t, &status, v1alpha1.ConditionAccepted)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, "Invalid", c.Reason)
	require.Contains(t, c.Message, "spec.podSelector: ")
	require.NotContains(t, c.Message, "\n")
	require.Equal(t, metav1.ConditionFalse, condition(t, &status, v1alpha1.ConditionReady).Status)
	require.Equal(t, metav1.ConditionUnknown, condition(t, &status, v1alpha1.ConditionInfeasible).Status)
	require.Equal(t, obj.Status.Zones, status.Zones)
	require.EqualValues(t, 3, status.ObservedGeneration)
	require.Empty(t, obj.Status.Conditions)
}

func TestStatusOfManyZones(t *testing.T) {
	p := compile(t, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.TopologyKey = "example.com/rack" })
	zs := policy.NewZones(p, nil)
	nodes := map[string]policy.ZoneNodes{}
	var last string
	for i := range 3000 {
		last = string(rune('a'+i%26)) + time.Duration(i).String()
		nodes[last] = policy.ZoneNodes{Nodes: 1, Open: 1}
	}
	zs.ObserveNodes(noon, nodes)
	nodes[last] = policy.ZoneNodes{Nodes: 1}
	zs.ObserveNodes(noon, nodes)
	status := p.Status(zs, observed(p, nil), v1alpha1.ZoneSpreadPolicyStatus{}, noon)
	require.Len(t, status.Zones, policy.MaxStatusZones)
	require.True(t, slices.ContainsFunc(status.Zones, func(z v1alpha1.ZoneStatus) bool { return z.Name == last }),
		"what has to be remembered is kept")
}
