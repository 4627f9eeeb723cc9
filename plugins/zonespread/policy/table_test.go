package policy_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

func TestVerdicts(t *testing.T) {
	closed := policy.View{"c": policy.Unavailable}
	back := policy.View{"c": policy.Recovering}
	for _, test := range []struct {
		name     string
		p        *policy.Policy
		counts   []int64
		replicas int64
		view     policy.View
		want     []string
	}{
		{"plain spread", compile(t), []int64{2, 1, 1}, 9, nil, []string{"Skew", "Pass", "Pass"}},
		{"maxSkew 2", compile(t, maxSkew(2)), []int64{2, 1, 1}, 9, nil, []string{"Pass", "Pass", "Pass"}},
		{"weights 7:3, a may lead", compile(t, withZones(weighted("a", 7), weighted("b", 3))), []int64{6, 3}, 10, nil, []string{"Pass", "Skew"}},
		{"weights 7:3, a is ahead of its share", compile(t, withZones(weighted("a", 7), weighted("b", 3))), []int64{7, 2}, 10, nil, []string{"Skew", "Pass"}},
		{"weight 0 forbids", compile(t, withZones(weighted("b", 0))), []int64{0, 0}, 4, nil, []string{"Pass", "Forbidden"}},
		{"weight 0 does not count as empty", compile(t, withZones(weighted("c", 0))), []int64{3, 3, 0}, 9, nil, []string{"Pass", "Pass", "Forbidden"}},
		{"default weight 0 forbids", compile(t, withZones(weighted("a", 1)), defaultWeight(0)), []int64{3, 0}, 9, nil, []string{"Pass", "Forbidden"}},
		{"declared zone without nodes counts as empty", compile(t, withZones(weighted("z", 1))), []int64{1, 0}, 9, nil, []string{"Skew", "Pass"}},
		{"minZones above the zones", compile(t, minZones(3)), []int64{1, 0}, 9, nil, []string{"MinZones", "Pass"}},
		{"minZones met", compile(t, minZones(2)), []int64{3, 3}, 9, nil, []string{"Pass", "Pass"}},
		{"cap 40% of 10", compile(t, maxPerZone("40%")), []int64{4, 3, 3}, 10, nil, []string{"MaxPerZone", "Pass", "Pass"}},
		{"quorumSafe with 3", compile(t, quorumSafe), []int64{1, 1, 0}, 3, nil, []string{"QuorumSafe", "QuorumSafe", "Pass"}},
		{"a capped zone holds no other back", compile(t, withZones(capped("b", 3, 2), weighted("a", 7))), []int64{5, 2}, 10, nil, []string{"Pass", "MaxPods"}},
		{"a closed zone holds no other back", compile(t), []int64{3, 3, 0}, 9, closed, []string{"Pass", "Pass", "Pass"}},
		{"the survivors stay even", compile(t), []int64{4, 3, 0}, 9, closed, []string{"Skew", "Pass", "Pass"}},
		{"caps hold while a zone is closed", compile(t, maxPerZone("40%")), []int64{4, 4, 0}, 10, closed, []string{"MaxPerZone", "MaxPerZone", "Pass"}},
		{"minZones holds while a zone is closed", compile(t, minZones(3)), []int64{3, 3, 0}, 9, closed, []string{"MinZones", "MinZones", "Pass"}},
		{"a recovering zone holds no other back", compile(t), []int64{5, 4, 0}, 12, back, []string{"Skew", "Pass", "Pass"}},
		{"a recovering zone counts for minZones", compile(t, minZones(3)), []int64{4, 4, 0}, 12, back, []string{"Pass", "Pass", "Pass"}},
		{"a recovering zone that caught up is bound", compile(t), []int64{3, 4, 5}, 12, back, []string{"Pass", "Skew", "Skew"}},
		{
			"all recovering: compared with each other", compile(t),
			[]int64{2, 0, 1},
			12,
			policy.View{"a": policy.Recovering, "b": policy.Recovering, "c": policy.Recovering},
			[]string{"Skew", "Pass", "Skew"},
		},
		{
			"all full: what frees up may be used", compile(t, maxPerZone("60%")),
			[]int64{5, 2, 6},
			10,
			policy.View{"a": policy.Unavailable, "b": policy.Unavailable, "c": policy.Unavailable},
			[]string{"Pass", "Pass", "MaxPerZone"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := test.p.Judge(policy.Question{Domains: domains(test.counts...), Replicas: test.replicas, View: test.view})
			require.Equal(t, test.want, verdicts(table, len(test.counts)))
		})
	}
}

// TestMembership: which zones take part, by what the nodes and the availability of zone c are.
func TestMembership(t *testing.T) {
	declared, open := compile(t, withZones(weighted("a", 1), weighted("b", 1), weighted("c", 1))), compile(t)
	waits, free := []string{"Skew", "Skew", "Pass"}, []string{"Pass", "Pass", "Pass"}
	closing, closed := policy.View{"c": policy.Closing}, policy.View{"c": policy.Unavailable}
	for _, test := range []struct {
		name    string
		p       *policy.Policy
		c       *policy.Domain // nil: it has no nodes
		view    policy.View
		typical bool
		want    []string
	}{
		{"eligible", open, &policy.Domain{Eligible: true}, nil, true, waits},
		{"tainted just now, before that was observed", open, &policy.Domain{}, nil, true, waits},
		{"tainted for this pod only", open, &policy.Domain{}, nil, false, free},
		{"tainted for this pod only, declared", declared, &policy.Domain{}, nil, false, free},
		{"closing", open, &policy.Domain{}, closing, true, waits},
		{"closing, with what it holds", open, &policy.Domain{AllPods: 3}, closing, true, free},
		{"closing, for a pod that has other nodes", open, &policy.Domain{}, closing, false, waits},
		{"closing, its nodes are gone", open, nil, closing, true, waits},
		{"closing, but ruled out by the pod's own affinity", open, &policy.Domain{Excluded: true}, closing, true, free},
		{"closed", open, &policy.Domain{Eligible: true}, closed, true, free},
		{"closed, tainted", open, &policy.Domain{}, closed, true, free},
		{"closed, declared", declared, &policy.Domain{}, closed, true, free},
		{"closed, declared, its nodes are gone", declared, nil, closed, true, free},
		{"gone and forgotten", open, nil, nil, true, free},
		{"declared and without nodes", declared, nil, nil, true, waits},
		{"declared and ruled out by the pod's own affinity", declared, &policy.Domain{Excluded: true}, nil, true, free},
	} {
		t.Run(test.name, func(t *testing.T) {
			ds := []policy.Domain{{Name: "a", Pods: 3, AllPods: 3, Eligible: true}, {Name: "b", Pods: 3, AllPods: 3, Eligible: true}}
			if test.c != nil {
				c := *test.c
				c.Name = "c"
				ds = append(ds, c)
			}
			table := test.p.Judge(policy.Question{Domains: ds, Replicas: 9, View: test.view, Typical: test.typical})
			require.Equal(t, test.want, verdicts(table, 3))
		})
	}
	table := open.Judge(policy.Question{Domains: domains(3, 3), Replicas: 9})
	require.Equal(t, policy.Pass, table.Rule("unheard-of"))
	only := compile(t, withZones(weighted("a", 1)), defaultWeight(0))
	require.Equal(t, policy.Forbidden, only.Judge(policy.Question{Domains: domains(3)}).Rule("unheard-of"))
}

// TestCapsCountWhatIsHeld: caps and skew look at different pods.
func TestCapsCountWhatIsHeld(t *testing.T) {
	p := compile(t, maxPerZone("2"), maxSkew(5))
	table := p.Judge(policy.Question{Replicas: 6, Domains: []policy.Domain{
		{Name: "a", Pods: 0, AllPods: 0, Held: 2, Eligible: true}, {Name: "b", Pods: 4, AllPods: 4, Held: 1, Eligible: true},
	}})
	require.Equal(t, []string{"MaxPerZone", "Pass"}, verdicts(table, 2))
}

func TestCheckByNode(t *testing.T) {
	q := policy.Question{Domains: domains(2, 0), Replicas: 9}
	hard := compile(t).Judge(q)
	require.Equal(t, policy.NoLabel, hard.Check(map[string]string{"x": "y"}))
	require.Equal(t, policy.Skew, hard.Check(map[string]string{"topology.kubernetes.io/zone": "a"}))
	require.Equal(t, policy.Pass, hard.Check(map[string]string{"topology.kubernetes.io/zone": "b"}))
	soft := compile(t, scheduleAnyway).Judge(q)
	require.Equal(t, policy.Pass, soft.Check(map[string]string{"x": "y"}))
	require.Equal(t, policy.Pass, soft.Check(map[string]string{"topology.kubernetes.io/zone": "a"}))

	require.True(t, policy.Skew.Resolvable())
	require.True(t, policy.MaxPerZone.Resolvable())
	require.False(t, policy.NoLabel.Resolvable())
	require.False(t, policy.Forbidden.Resolvable())
}

func TestMessages(t *testing.T) {
	ask := func(p *policy.Policy, r int64, zone string, counts ...int64) string {
		return p.Judge(policy.Question{Domains: domains(counts...), Replicas: r}).Message(zone)
	}
	require.Equal(t, "policy shop/web: zone a holds 4 of 10, share 3.3, cap 4 (maxPerZone 40%)", ask(compile(t, maxPerZone("40%")), 10, "a", 4, 3, 2))
	require.Equal(t, "policy shop/web: zone a holds 4 of 10, share 3.3, cap 4 (maxPerZone 4)", ask(compile(t, maxPerZone("4")), 10, "a", 4, 3, 2))
	require.Equal(t, "policy shop/web: zone b holds 1 of 3, share 1.0, cap 1 (quorumSafe)", ask(compile(t, quorumSafe), 3, "b", 0, 1, 0))
	require.Equal(t, "policy shop/web: zone a holds 7 of 10, share 7.0, cap 7 (maxPods)",
		ask(compile(t, withZones(capped("a", 7, 7), weighted("b", 3))), 10, "a", 7, 3))
	require.Equal(t, "policy shop/web: zone a holds 7 of 10, share 7.0, maxSkew 1 over zone b with 2 of weight 3",
		ask(compile(t, withZones(weighted("a", 7), weighted("b", 3))), 10, "a", 7, 2))
	require.Equal(t, "policy shop/web: zone a holds 1 of 4, share 4.0, maxSkew 1 with 1 of minZones 2 available", ask(compile(t, minZones(2)), 4, "a", 1))
	require.Equal(t, "policy shop/web: zone d has weight 0", ask(compile(t, withZones(weighted("a", 1)), defaultWeight(0)), 4, "d", 0))
	require.Empty(t, ask(compile(t), 4, "a", 0))
	require.Equal(t, "policy shop/web: zone a holds 2, maxSkew 1 over zone b with 1 of weight 1", ask(compile(t, maxPerZone("40%")), policy.UnknownReplicas, "a", 2, 1))

	tied := domains(2, 1, 1)
	slices.Reverse(tied)
	require.Contains(t, compile(t).Judge(policy.Question{Domains: tied, Replicas: 4}).Message("a"), "over zone b with 1", "the first by name, in whatever order zones were seen")

	table := compile(t).Judge(policy.Question{Domains: domains(0), Replicas: 1})
	require.Equal(t, "policy shop/web: node has no label topology.kubernetes.io/zone", table.MessageFor(map[string]string{}))
	require.Empty(t, table.MessageFor(map[string]string{"topology.kubernetes.io/zone": "a"}))
}

// Add and Clone serve preemption: what they say must equal a table made from the changed counts.
func TestAddEqualsJudgingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "zones")
		r := rapid.Int64Range(1, 30).Draw(t, "replicas")
		p := drawPolicy(t, n, r, true)
		ds := domains(rapid.SliceOfN(rapid.Int64Range(0, 9), n, n).Draw(t, "pods")...)
		view := policy.View{}
		for i := range ds {
			view[ds[i].Name] = policy.Part(rapid.IntRange(0, 3).Draw(t, "part"))
			if ds[i].Eligible = rapid.Bool().Draw(t, "eligible"); !ds[i].Eligible {
				ds[i].Pods = 0
			}
		}
		q := policy.Question{Domains: ds, Replicas: r, Typical: rapid.Bool().Draw(t, "typical"), View: view}
		original := p.Judge(q)
		before, first := verdicts(original, n+1), original.Message("a")
		changed := original.Clone()
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			i := rapid.IntRange(0, n-1).Draw(t, "zone")
			delta := rapid.SampledFrom([]int64{-1, 1}).Draw(t, "delta")
			eligible := ds[i].Eligible && rapid.Bool().Draw(t, "on an eligible node")
			if ds[i].Pods+delta < 0 || ds[i].AllPods+delta < ds[i].Pods || ds[i].Held+delta < 0 {
				continue
			}
			change := policy.Change{AllPods: delta}
			ds[i].AllPods += delta
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
		changed.Add("unheard-of", policy.Change{Pods: 1, AllPods: 1, Held: 1})
		anew := p.Judge(q)
		require.Equal(t, verdicts(anew, n+1), verdicts(changed, n+1))
		for _, zone := range zoneNames(n + 1) {
			require.Equal(t, anew.Message(zone), changed.Message(zone))
		}
		require.Equal(t, before, verdicts(original, n+1), "the original is as it was")
		require.Equal(t, first, original.Message("a"))
	})
}

func TestRuleAllocatesNothing(t *testing.T) {
	table := compile(t, maxPerZone("40%")).Judge(policy.Question{Domains: domains(4, 3, 2), Replicas: 10})
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
		table := p.Judge(policy.Question{Domains: domains(counts...), Replicas: 20})
		for i, zone := range zoneNames(len(counts)) {
			require.Equal(t, upstreamAllows(counts, i, int64(skew), int64(domainsWanted)), table.Rule(zone).OK(), "zone %s", zone)
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
		view := policy.View{}
		for _, zone := range zoneNames(n) {
			view[zone] = policy.Part(rapid.IntRange(0, 3).Draw(t, "part "+zone))
		}
		table := p.Judge(policy.Question{Domains: domains(counts...), Replicas: r, View: view})
		available, capped, allowed := 0, 0, 0
		for _, zone := range zoneNames(n) {
			rule := table.Rule(zone)
			if view[zone] == policy.Unavailable {
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
