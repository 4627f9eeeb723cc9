package policy_test

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// costsOf returns the deletion costs of the pods that a ReplicaSet has in zones a, b, c and so on.
func costsOf(p *policy.Policy, own ...int) map[string][]int32 {
	out := map[string][]int32{}
	for i, name := range zoneNames(len(own)) {
		for rank := range own[i] {
			out[name] = append(out[name], p.DeletionCost(name, rank))
		}
	}
	return out
}

func TestDeletionCost(t *testing.T) {
	type costs = map[string][]int32
	for name, tc := range map[string]struct {
		policy []change
		own    []int // in zones a, b, c
		want   costs
	}{
		"as many in each zone":    {own: []int{2, 2, 2}, want: costs{"a": {0, -1}, "b": {0, -1}, "c": {0, -1}}},
		"the fullest zone first":  {own: []int{3, 1, 2}, want: costs{"a": {0, -1, -2}, "b": {0}, "c": {0, -1}}},
		"weights":                 {policy: []change{withZones(weighted("a", 7), weighted("b", 3)), defaultWeight(0)}, own: []int{4, 3}, want: costs{"a": {0, -1428, -2857, -4285}, "b": {0, -3333, -6666}}},
		"equal weights above 1":   {policy: []change{withZones(weighted("a", 7)), defaultWeight(7)}, own: []int{2, 1, 1}, want: costs{"a": {0, -1}, "b": {0}, "c": {0}}},
		"a forbidden zone":        {policy: []change{withZones(weighted("c", 0))}, own: []int{2, 1, 2}, want: costs{"a": {0, -1}, "b": {0}, "c": {-1000000000, -1000000001}}},
		"caps make no difference": {policy: []change{withZones(capped("c", 1, 1)), quorumSafe}, own: []int{3, 3, 2}, want: costs{"a": {0, -1, -2}, "b": {0, -1, -2}, "c": {0, -1}}},
		"minZones makes none":     {policy: []change{minZones(4)}, own: []int{1, 2, 1}, want: costs{"a": {0}, "b": {0, -1}, "c": {0}}},
		"one zone alone":          {own: []int{0, 0, 3}, want: costs{"c": {0, -1, -2}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, costsOf(compile(t, tc.policy...), tc.own...)) })
	}
}

// The k pods with the lowest costs are, for every k, those whose loss leaves the least skew that the loss of k pods can
// leave, as long as weights are equal; with any weights zones are no further ahead of their share than before, and not
// at all if they were not. Pods in zones of weight 0 leave first. Brute force over all choices, and over the order of
// pods with equal costs.
func TestDeletionCostsKeepTheSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "zones")
		names := zoneNames(n)
		weights := []int32{0, 1, 1}
		if rapid.Bool().Draw(t, "unequal") {
			weights = []int32{0, 1, 1, 2, 3, 7, 50, 99}
		}
		own := make([]int, n)
		var zones []v1alpha1.ZoneSpreadZone
		for i, name := range names {
			own[i] = rapid.IntRange(0, 6).Draw(t, "own "+name)
			zones = append(zones, weighted(name, rapid.SampledFrom(weights).Draw(t, "weight "+name)))
		}
		p := compile(t, withZones(zones...), maxSkew(1))
		costs := costsOf(p, own...)
		// broken is how many pods are in forbidden zones, and by how many the worst of the others is ahead of its share
		// and maxSkew.
		broken := func(gone []int) (forbidden, ahead int64) {
			in := policy.Input{Domains: make([]policy.Domain, n)}
			for i, name := range names {
				pods := int64(own[i] - gone[i])
				in.Domains[i] = policy.Domain{Name: name, Pods: pods, Held: pods, Eligible: true}
			}
			table := p.Evaluate(in)
			for i, name := range names {
				if above := table.Above(name); *zones[i].Weight == 0 {
					forbidden += above
				} else {
					ahead = max(ahead, above)
				}
			}
			return forbidden, ahead
		}
		_, before := broken(make([]int, n))
		for k := range sum(own) + 1 {
			bestForbidden, best := int64(math.MaxInt64), int64(math.MaxInt64)
			for gone := range choices(own, k) {
				if forbidden, ahead := broken(gone); cmp.Or(cmp.Compare(forbidden, bestForbidden), cmp.Compare(ahead, best)) < 0 {
					bestForbidden, best = forbidden, ahead
				}
			}
			for gone := range lowest(costs, names, k) {
				forbidden, ahead := broken(gone)
				require.Equal(t, bestForbidden, forbidden, "without %v of %v, costs %v", gone, own, costs)
				require.LessOrEqual(t, ahead, before, "without %v of %v, costs %v", gone, own, costs)
				if len(weights) == 3 {
					require.Equal(t, best, ahead, "without %v of %v, costs %v", gone, own, costs)
				}
			}
		}
	})
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

// TestDeletionCostsOfManyPods: 30,000 pods of a zone have costs in order, whatever its weight.
func TestDeletionCostsOfManyPods(t *testing.T) {
	p := compile(t, withZones(weighted("a", 10_000), weighted("b", 9999), weighted("c", 1), weighted("d", 0)))
	for zone, costs := range costsOf(p, 30_000, 30_000, 30_000, 30_000) {
		require.Len(t, costs, 30_000)
		for rank := 1; rank < len(costs); rank++ {
			require.Less(t, costs[rank], costs[rank-1], "rank %d of zone %s", rank, zone)
		}
	}
}
