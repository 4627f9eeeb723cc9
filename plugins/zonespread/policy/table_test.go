package policy_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

func TestVerdicts(t *testing.T) {
	closed := policy.ZoneAvailability{"c": policy.Closed}
	back := policy.ZoneAvailability{"c": policy.Recovering}
	full := policy.ZoneAvailability{"c": policy.Full}
	for _, test := range []struct {
		name     string
		p        *policy.Policy
		counts   []int64
		replicas int64
		view     policy.ZoneAvailability
		want     []string
	}{
		{"plain spread", compile(t), []int64{2, 1, 1}, 9, nil, []string{"Skew", "Pass", "Pass"}},
		{"maxSkew 2", compile(t, maxSkew(2)), []int64{2, 1, 1}, 9, nil, []string{"Pass", "Pass", "Pass"}},
		{
			"weights 7:3, a may lead", compile(t, withZones(weighted("a", 7), weighted("b", 3))),
			[]int64{6, 3},
			10, nil,
			[]string{"Pass", "Skew"},
		},
		{
			"weights 7:3, a is ahead of its share", compile(t, withZones(weighted("a", 7), weighted("b", 3))),
			[]int64{7, 2},
			10, nil,
			[]string{"Skew", "Pass"},
		},
		{
			"weight 0 forbids", compile(t, withZones(weighted("b", 0))),
			[]int64{0, 0},
			4, nil,
			[]string{"Pass", "Forbidden"},
		},
		{
			"weight 0 does not count as empty", compile(t, withZones(weighted("c", 0))),
			[]int64{3, 3, 0},
			9, nil,
			[]string{"Pass", "Pass", "Forbidden"},
		},
		{
			"default weight 0 forbids", compile(t, withZones(weighted("a", 1)), defaultWeight(0)),
			[]int64{3, 0},
			9, nil,
			[]string{"Pass", "Forbidden"},
		},
		{
			"declared zone without nodes counts as empty", compile(t, withZones(weighted("z", 1))),
			[]int64{1, 0},
			9, nil,
			[]string{"Skew", "Pass"},
		},
		{"minZones above the zones", compile(t, minZones(3)), []int64{1, 0}, 9, nil, []string{"MinZones", "Pass"}},
		{"minZones met", compile(t, minZones(2)), []int64{3, 3}, 9, nil, []string{"Pass", "Pass"}},
		{
			"cap 40% of 10", compile(t, maxPerZone("40%")),
			[]int64{4, 3, 3},
			10, nil,
			[]string{"MaxPerZone", "Pass", "Pass"},
		},
		{
			"quorumSafe with 3", compile(t, quorumSafe),
			[]int64{1, 1, 0},
			3, nil,
			[]string{"QuorumSafe", "QuorumSafe", "Pass"},
		},
		{
			"a capped zone holds no other back", compile(t, withZones(capped("b", 3, 2), weighted("a", 7))),
			[]int64{5, 2},
			10, nil,
			[]string{"Pass", "MaxPods"},
		},
		{
			"a closed zone holds no other back", compile(t),
			[]int64{3, 3, 0},
			9, closed,
			[]string{"Pass", "Pass", "Pass"},
		},
		{"the survivors stay even", compile(t), []int64{4, 3, 0}, 9, closed, []string{"Skew", "Pass", "Pass"}},
		{
			"caps hold while a zone is closed", compile(t, maxPerZone("40%")),
			[]int64{4, 4, 0},
			10, closed,
			[]string{"MaxPerZone", "MaxPerZone", "Pass"},
		},
		{
			"a full zone counts for minZones, so that fail-over is no full stop", compile(t, minZones(3)),
			[]int64{3, 3, 0},
			9, full,
			[]string{"Pass", "Pass", "Pass"},
		},
		{
			"the survivors of a full zone stay even", compile(t, minZones(3)),
			[]int64{4, 3, 0},
			9, full,
			[]string{"Skew", "Pass", "Pass"},
		},
		{
			"a closed zone counts for minZones", compile(t, minZones(3)),
			[]int64{3, 3, 0},
			9, closed,
			[]string{"Pass", "Pass", "Pass"},
		},
		{
			"so does one that a volume excludes", compile(t, minZones(3)),
			[]int64{3, 3, 0},
			9,
			policy.ZoneAvailability{"c": policy.Excluded},
			[]string{"Pass", "Pass", "Pass"},
		},
		{
			"one that never was open does not", compile(t, minZones(3)),
			[]int64{3, 3, 0},
			9,
			policy.ZoneAvailability{"c": policy.Absent},
			[]string{"MinZones", "MinZones", "Pass"},
		},
		{
			"a recovering zone holds no other back", compile(t),
			[]int64{5, 4, 0},
			12, back,
			[]string{"Skew", "Pass", "Pass"},
		},
		{
			"a recovering zone counts for minZones", compile(t, minZones(3)),
			[]int64{4, 4, 0},
			12, back,
			[]string{"Pass", "Pass", "Pass"},
		},
		{
			"a recovering zone that caught up is bound", compile(t),
			[]int64{3, 4, 5},
			12, back,
			[]string{"Pass", "Skew", "Skew"},
		},
		{
			"all recovering: compared with each other", compile(t),
			[]int64{2, 0, 1},
			12,
			policy.ZoneAvailability{"a": policy.Recovering, "b": policy.Recovering, "c": policy.Recovering},
			[]string{"Skew", "Pass", "Skew"},
		},
		{
			"all full: what frees up may be used", compile(t, maxPerZone("60%")),
			[]int64{5, 2, 6},
			10,
			policy.ZoneAvailability{"a": policy.Closed, "b": policy.Closed, "c": policy.Closed},
			[]string{"Pass", "Pass", "MaxPerZone"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := test.p.Evaluate(policy.Input{
				Domains: domains(test.counts...), Replicas: test.replicas,
				Availability: test.view,
			})
			require.Equal(t, test.want, verdicts(table, len(test.counts)))
		})
	}
}

// TestWhichZonesTakePart: which zones take part, by what the nodes and the availability of zone c are.
func TestWhichZonesTakePart(t *testing.T) {
	declared, open := compile(t, withZones(weighted("a", 1), weighted("b", 1), weighted("c", 1))), compile(t)
	waits, free := []string{"Skew", "Skew", "Pass"}, []string{"Pass", "Pass", "Pass"}
	closing, closed := policy.ZoneAvailability{"c": policy.Closing}, policy.ZoneAvailability{"c": policy.Closed}
	full := policy.ZoneAvailability{"c": policy.Full}
	for _, test := range []struct {
		name         string
		p            *policy.Policy
		c            *policy.Domain // nil: it has no nodes
		availability policy.ZoneAvailability
		want         []string
	}{
		{"eligible", open, &policy.Domain{Eligible: true}, nil, waits},
		{"not for this pod", open, &policy.Domain{}, nil, free},
		{"not for this pod, declared", declared, &policy.Domain{}, nil, free},
		{"closing", open, &policy.Domain{Eligible: true}, closing, waits},
		{"closing, with what it holds", open, &policy.Domain{Eligible: true, Pods: 3}, closing, free},
		{"closing, not for this pod", open, &policy.Domain{}, closing, free},
		{"closing, declared, its nodes are gone", declared, nil, closing, waits},
		{"closed", open, &policy.Domain{Eligible: true}, closed, free},
		{"closed, not for this pod", open, &policy.Domain{}, closed, free},
		{"closed, declared", declared, &policy.Domain{}, closed, free},
		{"closed, declared, its nodes are gone", declared, nil, closed, free},
		{"full", open, &policy.Domain{Eligible: true}, full, free},
		{"excluded by a volume", open, &policy.Domain{Eligible: true}, policy.ZoneAvailability{"c": policy.Excluded}, free},
		{"never was open", open, &policy.Domain{Eligible: true}, policy.ZoneAvailability{"c": policy.Absent}, free},
		{"gone", open, nil, nil, free},
		{"declared and without nodes", declared, nil, nil, waits},
	} {
		t.Run(test.name, func(t *testing.T) {
			ds := []policy.Domain{{Name: "a", Pods: 3, Eligible: true}, {Name: "b", Pods: 3, Eligible: true}}
			if test.c != nil {
				c := *test.c
				c.Name = "c"
				ds = append(ds, c)
			}
			table := test.p.Evaluate(policy.Input{Domains: ds, Replicas: 9, Availability: test.availability})
			require.Equal(t, test.want, verdicts(table, 3))
		})
	}
	table := open.Evaluate(policy.Input{Domains: domains(3, 3), Replicas: 9})
	require.Equal(t, policy.Pass, table.Rule("unheard-of"))
	only := compile(t, withZones(weighted("a", 1)), defaultWeight(0))
	require.Equal(t, policy.Forbidden, only.Evaluate(policy.Input{Domains: domains(3)}).Rule("unheard-of"))
}

// TestCapsCountWhatIsHeld: caps and skew look at different pods.
func TestCapsCountWhatIsHeld(t *testing.T) {
	p := compile(t, maxPerZone("2"), maxSkew(5))
	table := p.Evaluate(policy.Input{Replicas: 6, Domains: []policy.Domain{
		{Name: "a", Pods: 0, Held: 2, Eligible: true}, {Name: "b", Pods: 4, Held: 1, Eligible: true},
	}})
	require.Equal(t, []string{"MaxPerZone", "Pass"}, verdicts(table, 2))
}

func TestCheckByNode(t *testing.T) {
	q := policy.Input{Domains: domains(2, 0), Replicas: 9}
	hard := compile(t).Evaluate(q)
	require.Equal(t, policy.NoLabel, hard.Check(map[string]string{"x": "y"}))
	require.Equal(t, policy.Skew, hard.Check(map[string]string{"topology.kubernetes.io/zone": "a"}))
	require.Equal(t, policy.Pass, hard.Check(map[string]string{"topology.kubernetes.io/zone": "b"}))
	soft := compile(t, scheduleAnyway).Evaluate(q)
	require.Equal(t, policy.Pass, soft.Check(map[string]string{"x": "y"}))
	require.Equal(t, policy.Pass, soft.Check(map[string]string{"topology.kubernetes.io/zone": "a"}))

	require.True(t, policy.Skew.Resolvable())
	require.True(t, policy.MaxPerZone.Resolvable())
	require.False(t, policy.NoLabel.Resolvable())
	require.False(t, policy.Forbidden.Resolvable())
}

func TestMessages(t *testing.T) {
	ask := func(p *policy.Policy, r int64, zone string, counts ...int64) string {
		return p.Evaluate(policy.Input{Domains: domains(counts...), Replicas: r}).Message(zone)
	}
	require.Equal(t, "policy shop/web: zone a holds 4 of 10, share 3.3, cap 4 (maxPerZone 40%)",
		ask(compile(t, maxPerZone("40%")), 10, "a", 4, 3, 2))
	require.Equal(t, "policy shop/web: zone a holds 4 of 10, share 3.3, cap 4 (maxPerZone 4)",
		ask(compile(t, maxPerZone("4")), 10, "a", 4, 3, 2))
	require.Equal(t, "policy shop/web: zone b holds 1 of 3, share 1.0, cap 1 (quorumSafe)",
		ask(compile(t, quorumSafe), 3, "b", 0, 1, 0))
	require.Equal(t, "policy shop/web: zone a holds 7 of 10, share 7.0, cap 7 (maxPods)",
		ask(compile(t, withZones(capped("a", 7, 7), weighted("b", 3))), 10, "a", 7, 3))
	require.Equal(t, "policy shop/web: zone a holds 7 of 10, share 7.0, maxSkew 1 over zone b with 2 of weight 3",
		ask(compile(t, withZones(weighted("a", 7), weighted("b", 3))), 10, "a", 7, 2))
	require.Equal(t, "policy shop/web: zone a holds 1 of 4, share 4.0, maxSkew 1 with 1 of minZones 2",
		ask(compile(t, minZones(2)), 4, "a", 1))
	require.Equal(t, "policy shop/web: zone d has weight 0",
		ask(compile(t, withZones(weighted("a", 1)), defaultWeight(0)), 4, "d", 0))
	require.Empty(t, ask(compile(t), 4, "a", 0))
	missing := compile(t, quorumSafe).Evaluate(policy.Input{Domains: domains(0, 0, 0), OwnerMissing: true})
	require.Equal(t, []string{"OwnerUnknown", "OwnerUnknown", "OwnerUnknown"}, verdicts(missing, 3))
	require.Equal(t, "policy shop/web: the pod's controller is not known yet", missing.Message("a"))
	require.False(t, policy.OwnerUnknown.Resolvable())
	require.Equal(t, "policy shop/web: zone a holds 2, maxSkew 1 over zone b with 1 of weight 1",
		ask(compile(t, maxPerZone("40%")), policy.UnknownReplicas, "a", 2, 1))

	tied := domains(2, 1, 1)
	slices.Reverse(tied)
	require.Contains(t, compile(t).Evaluate(policy.Input{Domains: tied, Replicas: 4}).Message("a"),
		"over zone b with 1", "the first by name, in whatever order zones were seen")

	table := compile(t).Evaluate(policy.Input{Domains: domains(0), Replicas: 1})
	require.Equal(t, "policy shop/web: node has no label topology.kubernetes.io/zone",
		table.MessageFor(map[string]string{}))
	require.Empty(t, table.MessageFor(map[string]string{"topology.kubernetes.io/zone": "a"}))
}

// TestRefused: a pod's condition that has a message of the policy, as the scheduler joins them, says that the policy
// refuses it a zone.
func TestRefused(t *testing.T) {
	p := compile(t, withZones(weighted("a", 1), capped("b", 1, 1)), defaultWeight(0))
	table := p.Evaluate(policy.Input{Domains: domains(1, 1, 0), Replicas: 4})
	waits := func(reason, message string) *v1.Pod {
		return &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}}}}
	}
	for _, zone := range []string{"b", "c"} {
		require.NotEmpty(t, table.Message(zone))
		message := "0/3 nodes are available: 1 Insufficient cpu, 2 " + table.Message(zone) + ". preemption: 0/3 nodes are available."
		require.True(t, p.Refused(waits(v1.PodReasonUnschedulable, message)), message)
		require.False(t, p.Refused(waits(v1.PodReasonSchedulingGated, message)))
	}
	require.False(t, p.Refused(waits(v1.PodReasonUnschedulable, "0/3 nodes are available: 3 policy shop/web2: zone a has weight 0.")))
	require.False(t, p.Refused(waits(v1.PodReasonUnschedulable, "0/3 nodes are available: 3 Insufficient cpu.")))
	require.False(t, p.Refused(&v1.Pod{}))
}

// Add and Clone serve preemption: what they say must equal a table made from the changed counts.
func TestAddEqualsEvaluatingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "zones")
		r := rapid.Int64Range(1, 30).Draw(t, "replicas")
		p := drawPolicy(t, n, r, true)
		ds := domains(rapid.SliceOfN(rapid.Int64Range(0, 9), n, n).Draw(t, "pods")...)
		view := policy.ZoneAvailability{}
		for i := range ds {
			view[ds[i].Name] = policy.Availability(rapid.IntRange(0, 4).Draw(t, "part"))
			if ds[i].Eligible = rapid.Bool().Draw(t, "eligible"); !ds[i].Eligible {
				ds[i].Pods = 0
			}
		}
		q := policy.Input{Domains: ds, Replicas: r, Availability: view}
		original := p.Evaluate(q)
		before, first := verdicts(original, n+1), original.Message("a")
		changed := original.Clone()
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			i := rapid.IntRange(0, n-1).Draw(t, "zone")
			delta := rapid.SampledFrom([]int64{-1, 1}).Draw(t, "delta")
			eligible := ds[i].Eligible && rapid.Bool().Draw(t, "on an eligible node")
			if ds[i].Pods+delta < 0 || ds[i].Held+delta < 0 {
				continue
			}
			change := policy.Change{}
			if eligible {
				change.Pods = delta
				ds[i].Pods += delta
			}
			if rapid.Bool().Draw(t, "counts for caps") {
				change.Held = delta
				ds[i].Held += delta
			}
			changed.Add(ds[i].Name, change)
		}
		changed.Add("unheard-of", policy.Change{Pods: 1, Held: 1})
		anew := p.Evaluate(q)
		require.Equal(t, verdicts(anew, n+1), verdicts(changed, n+1))
		for _, zone := range zoneNames(n + 1) {
			require.Equal(t, anew.Message(zone), changed.Message(zone))
		}
		require.Equal(t, before, verdicts(original, n+1), "the original is as it was")
		require.Equal(t, first, original.Message("a"))
	})
}

func TestRuleAllocatesNothing(t *testing.T) {
	table := compile(t, maxPerZone("40%")).Evaluate(policy.Input{Domains: domains(4, 3, 2), Replicas: 10})
	node := map[string]string{"topology.kubernetes.io/zone": "a", "kubernetes.io/hostname": "n1"}
	refused := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !table.Check(node).OK() {
			refused++
		}
	}))
	require.Positive(t, refused)
}

// upstreamAllows is the rule of topologySpreadConstraints, written down once more: count with the pod, less the
// global minimum (0 when there are fewer domains than minDomains), must not be above maxSkew.
func upstreamAllows(counts []int64, zone int, maxSkew, minDomains int64) bool {
	least := counts[0]
	for _, c := range counts {
		least = min(least, c)
	}
	if int64(len(counts)) < minDomains {
		least = 0
	}
	return counts[zone]+1-least <= maxSkew
}

func TestEqualWeightsAreUpstreamsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Int64Range(0, 12), 1, 6).Draw(t, "counts")
		skew := rapid.Int32Range(1, 5).Draw(t, "maxSkew")
		domainsWanted := rapid.Int32Range(1, 7).Draw(t, "minZones")
		weight := rapid.Int32Range(1, 100).Draw(t, "weight")
		p := compile(t, maxSkew(skew), minZones(domainsWanted), defaultWeight(weight))
		table := p.Evaluate(policy.Input{Domains: domains(counts...), Replicas: 20})
		for i, zone := range zoneNames(len(counts)) {
			require.Equal(t, upstreamAllows(counts, i, int64(skew), int64(domainsWanted)), table.Rule(zone).OK(),
				"zone %s", zone)
		}
	})
}

// Whatever the counts are, all zones are refused only when every available zone is at its cap, or when too few zones
// are available for minZones.
func TestSomeZoneIsAlwaysAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "zones")
		r := rapid.Int64Range(1, 40).Draw(t, "replicas")
		p := drawPolicy(t, n, r, true)
		counts := rapid.SliceOfN(rapid.Int64Range(0, 14), n, n).Draw(t, "counts")
		view := policy.ZoneAvailability{}
		for _, zone := range zoneNames(n) {
			view[zone] = policy.Availability(rapid.IntRange(0, 4).Draw(t, "part "+zone))
		}
		table := p.Evaluate(policy.Input{Domains: domains(counts...), Replicas: r, Availability: view})
		available, capped, allowed := 0, 0, 0
		for _, zone := range zoneNames(n) {
			rule := table.Rule(zone)
			if view[zone] == policy.Closed || view[zone] == policy.Full {
				continue
			}
			available++
			switch rule {
			case policy.Pass:
				allowed++
			case policy.MaxPods, policy.MaxPerZone, policy.QuorumSafe:
				capped++
			}
		}
		if allowed == 0 {
			require.Equal(t, available, capped, "%v", verdicts(table, n))
		}
	})
}
