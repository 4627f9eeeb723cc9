package policy_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// costsOf returns the deletion costs of the own pods in zones a, b, c and so on.
func costsOf(p *policy.Policy, in policy.Input, own ...int) map[string][]int32 {
	byZone := map[string]int{}
	for i, name := range zoneNames(len(own)) {
		byZone[name] = own[i]
	}
	return p.Evaluate(in).DeletionCosts(byZone)
}

func TestDeletionCosts(t *testing.T) {
	type costs = map[string][]int32
	for name, tc := range map[string]struct {
		policy []change
		own    []int64 // of zones a, b, c
		// others are pods that count as well and do not leave.
		others       []int64
		replicas     int64
		availability policy.ZoneAvailability
		want         costs
	}{
		"as many in each zone":           {own: []int64{2, 2, 2}, want: costs{"a": {0, -1}, "b": {0, -1}, "c": {0, -1}}},
		"the fullest zone first":         {own: []int64{3, 1, 2}, want: costs{"a": {0, -1, -2}, "b": {0}, "c": {0, -1}}},
		"a zone without pods":            {own: []int64{3, 3, 0}, want: costs{"a": {0, -1, -2}, "b": {0, -1, -2}}},
		"a closed zone":                  {own: []int64{3, 3, 0}, availability: policy.ZoneAvailability{"c": policy.Closed}, want: costs{"a": {0, -1, -2}, "b": {0, -1, -2}}},
		"weights":                        {policy: []change{withZones(weighted("a", 2))}, own: []int64{4, 2, 2}, want: costs{"a": {0, -2, -4, -6}, "b": {0, -4}, "c": {0, -4}}},
		"weights with a common divisor":  {policy: []change{withZones(weighted("a", 20)), defaultWeight(10)}, own: []int64{4, 2, 2}, want: costs{"a": {0, -2, -4, -6}, "b": {0, -4}, "c": {0, -4}}},
		"equal weights above 1":          {policy: []change{defaultWeight(7)}, own: []int64{2, 1, 1}, want: costs{"a": {0, -1}, "b": {0}, "c": {0}}},
		"a forbidden zone":               {policy: []change{withZones(weighted("c", 0))}, own: []int64{2, 2, 2}, want: costs{"a": {0, -1}, "b": {0, -1}, "c": {-2, -3}}},
		"a zone above its cap":           {policy: []change{withZones(capped("c", 1, 1))}, own: []int64{3, 3, 2}, want: costs{"a": {0, -1, -2}, "b": {0, -1, -2}, "c": {0, -3}}},
		"no more than half in a zone":    {policy: []change{quorumSafe, withZones(weighted("a", 8))}, own: []int64{3, 2, 2}, replicas: 7, want: costs{"a": {0, -8, -65}, "b": {0, -64}, "c": {0, -64}}},
		"the first is the other's":       {own: []int64{1, 1, 1}, others: []int64{1, 0, 0}, want: costs{"a": {-1}, "b": {0}, "c": {0}}},
		"fewer zones than there must be": {policy: []change{minZones(4), withZones(weighted("a", 2))}, own: []int64{2, 2, 2}, want: costs{"a": {0, -2}, "b": {0, -4}, "c": {0, -4}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := policy.Input{Domains: domains(tc.own...), Availability: tc.availability, Replicas: tc.replicas}
			var own []int
			for i := range tc.own {
				own = append(own, int(tc.own[i]))
				if tc.others != nil {
					in.Domains[i].Pods += tc.others[i]
					in.Domains[i].Held += tc.others[i]
				}
			}
			require.Equal(t, tc.want, costsOf(compile(t, tc.policy...), in, own...))
		})
	}
}

// The k pods with the lowest costs are for every k those whose loss leaves the best spread that the loss of k pods can leave:
// brute force over all choices, and over the order of pods with equal costs. Without caps the skew is the least; with caps
// no cap is exceeded and no forbidden zone is used if that can be.
func TestDeletionCostsLeaveTheBestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "zones")
		names := zoneNames(n)
		own, others := make([]int, n), make([]int64, n)
		total := 0
		for i, name := range names {
			own[i] = rapid.IntRange(0, 5).Draw(t, "own "+name)
			if rapid.IntRange(0, 2).Draw(t, "more "+name) == 0 {
				others[i] = rapid.Int64Range(0, 3).Draw(t, "others "+name)
			}
			total += own[i] + int(others[i])
		}
		withCaps := rapid.Bool().Draw(t, "caps")
		view := policy.ZoneAvailability{}
		for _, name := range names {
			if a := rapid.SampledFrom([]policy.Availability{policy.Available, policy.Available, policy.Available, policy.Full, policy.Closed}).Draw(t, "state "+name); a != policy.Available {
				view[name] = a
			}
		}
		var more []change
		if rapid.IntRange(0, 3).Draw(t, "minZones") == 0 {
			more = append(more, minZones(rapid.Int32Range(1, 5).Draw(t, "minZones")))
		}
		if withCaps {
			more = append(more, replicas("Owner"))
		}
		changes := drawChanges(t, n, int64(max(total, 1)), withCaps, more...)
		p, measure := compile(t, changes...), compile(t, append(slices.Clone(changes), maxSkew(1))...)
		input := func(gone []int) policy.Input {
			in := policy.Input{Availability: view, Domains: make([]policy.Domain, n)}
			for i, name := range names {
				pods := int64(own[i]-gone[i]) + others[i]
				in.Replicas += pods
				in.Domains[i] = policy.Domain{Name: name, Pods: pods, Held: pods, Eligible: true}
			}
			return in
		}
		costs := costsOf(p, input(make([]int, n)), own...)
		require.Equal(t, costs, costsOf(measure, input(make([]int, n)), own...), "maxSkew makes no difference")

		// worst is what is wrong with the pods that are left: how many are where they may not be, and the skew, of which 1 is as
		// good as none where zones are not compared.
		worst := func(gone []int) (forbidden, skew int64) {
			in := input(gone)
			table := measure.Evaluate(in)
			for i, name := range names {
				limit, _ := measure.Cap(name, in.Replicas)
				forbidden += max(0, in.Domains[i].Held-limit)
				skew = max(skew, table.Above(name))
			}
			return forbidden, skew
		}
		for k := range sum(own) + 1 {
			bestForbidden, bestSkew := int64(-1), int64(-1)
			for gone := range choices(own, k) {
				forbidden, skew := worst(gone)
				if bestForbidden < 0 || cmp.Or(cmp.Compare(forbidden, bestForbidden), cmp.Compare(skew, bestSkew)) < 0 {
					bestForbidden, bestSkew = forbidden, skew
				}
			}
			for gone := range lowest(costs, names, k) {
				forbidden, skew := worst(gone)
				if withCaps {
					require.LessOrEqual(t, min(forbidden, 1), min(bestForbidden, 1), "without %v of %v and %v, costs %v", gone, own, others, costs)
				} else {
					require.Equal(t, bestSkew, skew, "without %v of %v and %v, costs %v", gone, own, others, costs)
				}
			}
		}
	})
}

// One pod more or less changes no other cost, while all zones can keep their shares.
func TestDeletionCostsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "zones")
		own := make([]int, n)
		counts := make([]int64, n)
		for i := range own {
			own[i] = rapid.IntRange(0, 20).Draw(t, "own")
			counts[i] = int64(own[i])
		}
		p := compile(t, defaultWeight(rapid.Int32Range(1, 10000).Draw(t, "weight")))
		before := costsOf(p, policy.Input{Domains: domains(counts...)}, own...)
		i := rapid.IntRange(0, n-1).Draw(t, "changed")
		own[i]++
		counts[i]++
		after := costsOf(p, policy.Input{Domains: domains(counts...)}, own...)
		changed := zoneNames(n)[i]
		require.Equal(t, before[changed], emptyAsNil(after[changed][:own[i]-1]))
		delete(before, changed)
		delete(after, changed)
		require.Equal(t, before, after)
	})
}

func emptyAsNil(costs []int32) []int32 {
	if len(costs) == 0 {
		return nil
	}
	return costs
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// choices yields all ways to take k pods from zones.
func choices(own []int, k int) func(yield func(gone []int) bool) {
	return func(yield func([]int) bool) {
		gone := make([]int, len(own))
		var take func(zone, left int) bool
		take = func(zone, left int) bool {
			if zone == len(own) {
				return left > 0 || yield(gone)
			}
			for gone[zone] = 0; gone[zone] <= min(own[zone], left); gone[zone]++ {
				if !take(zone+1, left-gone[zone]) {
					return false
				}
			}
			gone[zone] = 0
			return true
		}
		take(0, k)
	}
}

// lowest yields all ways in which the k pods with the lowest costs go, by zone: those with equal costs in any order.
func lowest(costs map[string][]int32, names []string, k int) func(yield func(gone []int) bool) {
	return func(yield func([]int) bool) {
		all := slices.Sorted(func(yield func(int32) bool) {
			for list := range maps.Values(costs) {
				for _, c := range list {
					if !yield(c) {
						return
					}
				}
			}
		})
		if k == 0 {
			yield(make([]int, len(names)))
			return
		}
		border := all[k-1]
		below, at := make([]int, len(names)), make([]int, len(names))
		for i, name := range names {
			for _, c := range costs[name] {
				switch {
				case c < border:
					below[i]++
				case c == border:
					at[i]++
				}
			}
		}
		for more := range choices(at, k-sum(below)) {
			gone := slices.Clone(below)
			for i := range gone {
				gone[i] += more[i]
			}
			if !yield(gone) {
				return
			}
		}
	}
}

// TestDeletionCostsOfManyPods: 30,000 pods in zones with the greatest weights have costs in order.
func TestDeletionCostsOfManyPods(t *testing.T) {
	p := compile(t, withZones(weighted("a", 10000), weighted("b", 9999)))
	costs := costsOf(p, policy.Input{Domains: domains(10_000, 10_000, 10_000)}, 10_000, 10_000, 10_000)
	for zone, list := range costs {
		require.Len(t, list, 10_000)
		require.True(t, slices.IsSortedFunc(list, func(a, b int32) int { return cmp.Compare(b, a) }), fmt.Sprint(zone))
		require.Len(t, slices.Compact(list), 10_000, "each pod of a zone has its own")
	}
}
