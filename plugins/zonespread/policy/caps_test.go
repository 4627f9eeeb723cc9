package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// capOf finds the cap of zone a by filling it.
func capOf(t require.TestingT, p *policy.Policy, r int64) int64 {
	for c := int64(0); ; c++ {
		table := p.Evaluate(policy.Input{Domains: domains(c, c, c), Replicas: r})
		if !table.Rule("a").OK() {
			return c
		}
		require.Less(t, c, int64(5000))
	}
}

func TestCaps(t *testing.T) {
	for _, test := range []struct {
		name string
		p    *policy.Policy
		r    int64
		want int64
	}{
		{"40% of 1 lets one in", compile(t, maxPerZone("40%")), 1, 1},
		{"40% of 4 rounded up", compile(t, maxPerZone("40%")), 4, 2},
		{"40% of 4 rounded down", compile(t, maxPerZone("40%"), roundDown), 4, 1},
		{"10% of 2 rounded down lets one in", compile(t, maxPerZone("10%"), roundDown), 2, 1},
		{"a number does not follow the replicas", compile(t, maxPerZone("3")), 100, 3},
		{"quorum of 2 is infeasible and lets one in", compile(t, quorumSafe), 2, 1},
		{"the smallest counts: quorum", compile(t, quorumSafe, maxPerZone("90%")), 10, 4},
		{"the smallest counts: percent", compile(t, quorumSafe, maxPerZone("20%")), 10, 2},
		{"the smallest counts: maxPods", compile(t, maxPerZone("20%"), withZones(capped("a", 1, 1))), 10, 1},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, capOf(t, test.p, test.r)) })
	}
}

// A zone filled to its cap under quorumSafe leaves more than half of the replicas elsewhere.
func TestQuorumSafeLeavesAMajority(t *testing.T) {
	p := compile(t, quorumSafe, maxSkew(1_000_000))
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.Int64Range(3, 60).Draw(t, "replicas")
		n := rapid.IntRange(3, 6).Draw(t, "zones")
		names := zoneNames(n)
		counts := map[string]int64{}
		// Pods arrive anywhere that the policy lets them, not where it would like them.
		for range r {
			q := policy.Input{Replicas: r}
			for _, name := range names {
				q.Domains = append(q.Domains,
					policy.Domain{Name: name, Pods: counts[name], Held: counts[name], Eligible: true})
			}
			table := p.Evaluate(q)
			var open []string
			for _, name := range names {
				if table.Rule(name).OK() {
					open = append(open, name)
				}
			}
			if len(open) == 0 {
				break
			}
			counts[rapid.SampledFrom(open).Draw(t, "zone")]++
		}
		total := int64(0)
		for _, c := range counts {
			total += c
		}
		if feasible := int64(n)*((r-1)/2) >= r; feasible {
			require.Equal(t, r, total, "all are placed")
		}
		for name, c := range counts {
			require.Greater(t, 2*(r-c), r, "zone %s holds %d of %d", name, c, r)
		}
	})
}

// TestScalingFindsEveryChange: when another R lets a pod into a zone that was refused, Scaling says so beforehand.
func TestScalingFindsEveryChange(t *testing.T) {
	helped, spared := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "zones")
		before, after := rapid.Int64Range(1, 30).Draw(t, "before"), rapid.Int64Range(1, 30).Draw(t, "after")
		p := drawPolicy(t, n, before, true)
		ds := domains(rapid.SliceOfN(rapid.Int64Range(0, 9), n, n).Draw(t, "pods")...)
		view := policy.ZoneAvailability{}
		for i := range ds {
			view[ds[i].Name] = policy.Availability(rapid.IntRange(0, 6).Draw(t, "part"))
			ds[i].Held = rapid.Int64Range(0, 9).Draw(t, "held")
		}
		q := policy.Input{Domains: ds, Replicas: before, Availability: view}
		first := p.Evaluate(q)
		q.Replicas = after
		second := p.Evaluate(q)
		opens := false
		for _, zone := range zoneNames(n) {
			opens = opens || !first.Rule(zone).OK() && second.Rule(zone).OK()
		}
		scaling := first.Scaling()
		says := after > before && scaling.Helped(p, after) || after < before && scaling.Freed(p, after)
		if opens {
			require.True(t, says, "%v, and then %v", verdicts(first, n), verdicts(second, n))
			helped++
		} else if !says {
			spared++
		}
	})
	if !testing.Short() { // a few cases may show neither
		require.Positive(t, helped)
		require.Positive(t, spared)
	}
}
