package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// TestVerdicts: the rule for each zone, where the examples of the documentation do not show it.
func TestVerdicts(t *testing.T) {
	const all = "{zones: [{name: a}, {name: b}, {name: c}]}"
	for _, test := range []struct {
		name, spec, zones string
		replicas          int64
		want              string
	}{
		{"more than its weight", "{zones: [{name: a, weight: 7}, {name: b, weight: 3}]}", "a 7, b 2", 10, "Skew Pass"},
		{"weight 0", "{zones: [{name: c, weight: 0}]}", "a 3, b 3, c 0", 9, "Pass Pass Forbidden"},
		{"default weight 0", "{defaultWeight: 0, zones: [{name: a}]}", "a 3, b 0", 9, "Pass Forbidden"},
		{"too few zones", "{minZones: 3}", "a 1, b 0", 9, "MinZones Pass"},
		{"enough zones", "{minZones: 2}", "a 3, b 3", 9, "Pass Pass"},
		{"a zone that never was open is too few", "{minZones: 3}", "a 3, b 3, c 0 never-open", 9, "MinZones MinZones Pass"},
		{"40% of 10", "{maxPerZone: 40%}", "a 4, b 3, c 3", 10, "MaxPerZone Pass Pass"},
		{"a quorum of 3", "{quorumSafe: true}", "a 1, b 1, c 0", 3, "QuorumSafe QuorumSafe Pass"},
		{
			"a capped zone holds no other back", "{zones: [{name: a, weight: 7}, {name: b, weight: 3, maxPods: 2}]}", "a 5, b 2",
			10, "Pass MaxPods",
		},
		{"caps while a zone is closed", "{maxPerZone: 40%}", "a 4, b 4, c 0 closed", 10, "MaxPerZone MaxPerZone Pass"},
		{"caught up", "{}", "a 3, b 4, c 5 recovering", 12, "Pass Skew Skew"},
		{"all recover", "{}", "a 2 recovering, b 0 recovering, c 1 recovering", 12, "Skew Pass Skew"},
		{"all are closed", "{maxPerZone: 60%}", "a 5 closed, b 2 closed, c 6 closed", 10, "Pass Pass MaxPerZone"},
		{"closing, with what it holds", "{}", "a 3, b 3, c 3 closing", 9, "Pass Pass Pass"},
		{"closing, not for this pod", "{}", "a 3, b 3, c 0 ineligible closing", 9, "Pass Pass Pass"},
		{"closing, declared, its nodes are gone", all, "a 3, b 3, c 0 gone closing", 9, "Skew Skew Pass"},
		{"closed, declared, its nodes are gone", all, "a 3, b 3, c 0 gone closed", 9, "Pass Pass Pass"},
		{"declared, not for this pod", all, "a 3, b 3, c 0 ineligible", 9, "Pass Pass Pass"},
		{"excluded by a volume", "{minZones: 3}", "a 3, b 3, c 0 excluded", 9, "Pass Pass Pass"},
		{"never was open", "{}", "a 3, b 3, c 0 never-open", 9, "Pass Pass Pass"},
		{"gone", "{}", "a 3, b 3, c 0 gone", 9, "Pass Pass Pass"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := situation(t, test.zones)
			in.Replicas = test.replicas
			require.Equal(t, test.want, verdicts(written(t, test.spec).Evaluate(in), len(strings.Split(test.zones, ", "))))
		})
	}
	only := compile(t, withZones(weighted("a", 1)), defaultWeight(0))
	require.Equal(t, policy.Forbidden, only.Evaluate(policy.Input{Domains: domains(3)}).Rule("unheard-of"))
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
	require.Equal(t, "OwnerUnknown OwnerUnknown OwnerUnknown", verdicts(missing, 3))
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
