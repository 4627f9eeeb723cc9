package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// The shapes of kubernetes/kubernetes issues that ask for what a policy gives. Each places a workload from empty
// (or from the state that the issue describes) and looks at where the pods are.
func TestIssueShapes(t *testing.T) {
	abc := zoneNames(3)

	t.Run("121211: weights", func(t *testing.T) {
		counts := map[string]int64{}
		p := compile(t, withZones(weighted("a", 7), weighted("b", 3)))
		require.Equal(t, 100, place(p, 100, []string{"a", "b"}, nil, plenty, counts))
		require.Equal(t, map[string]int64{"a": 70, "b": 30}, counts)
	})
	t.Run("131139: at most a part of the replicas in a zone", func(t *testing.T) {
		counts := map[string]int64{}
		// The skew is wide open and zone a attracts every pod, as a cheap zone would: only the cap acts.
		p := compile(t, maxSkew(100), maxPerZone("40%"),
			withZones(weighted("a", 1000), weighted("b", 1), weighted("c", 1)))
		require.Equal(t, 10, place(p, 10, abc, nil, plenty, counts))
		require.EqualValues(t, 4, counts["a"])
	})
	t.Run("91234: soft spreading does not fade", func(t *testing.T) {
		counts := map[string]int64{"a": 3000, "b": 3000, "c": 2990}
		p := compile(t, scheduleAnyway)
		for range 10 {
			require.Equal(t, 1, place(p, 1, abc, nil, plenty, counts))
		}
		require.Equal(t, map[string]int64{"a": 3000, "b": 3000, "c": 3000}, counts)
		// And it does schedule anyway.
		require.Equal(t, 50, place(p, 50, abc, nil, func(zone string, _ int64) bool { return zone == "a" }, counts))
	})
	t.Run("116978: a full zone", func(t *testing.T) {
		p := compile(t)
		room := func(zone string, held int64) bool { return zone != "c" || held < 1 }
		counts := map[string]int64{}
		placed := place(p, 9, abc, nil, room, counts)
		require.Equal(t, 5, placed, "before the zone counts as full the others wait for it: 2, 2 and 1")
		placed += place(p, 9-placed, abc, policy.ZoneAvailability{"c": policy.Closed}, room, counts)
		require.Equal(t, 9, placed)
		require.Equal(t, map[string]int64{"a": 4, "b": 4, "c": 1}, counts)
	})
	t.Run("123019: a dead zone", func(t *testing.T) {
		p := compile(t)
		counts := map[string]int64{"a": 3, "b": 3}
		alive := func(zone string, _ int64) bool { return zone != "c" }
		stuck := map[string]int64{"a": 3, "b": 3}
		require.Zero(t, place(p, 3, abc, nil, alive, stuck))
		require.Equal(t, 3, place(p, 3, abc, policy.ZoneAvailability{"c": policy.Closed}, alive, counts))
		require.EqualValues(t, 9, counts["a"]+counts["b"])
		// It returns: new pods fill it first, and nothing is blocked while it can not take them.
		back := policy.ZoneAvailability{"c": policy.Recovering}
		require.Equal(t, 4, place(p, 4, abc, back, plenty, counts))
		require.EqualValues(t, 4, counts["c"])
		require.Equal(t, 6, place(p, 6, abc, back, alive, counts))
		require.EqualValues(t, 15, counts["a"]+counts["b"])
	})
	t.Run("98215: an old revision does not count", func(t *testing.T) {
		// 3 old pods in each of a and b while c was away. The new revision is counted by itself.
		p := compile(t)
		counts := map[string]int64{}
		require.Equal(t, 6, place(p, 6, abc, nil, plenty, counts))
		require.Equal(t, map[string]int64{"a": 2, "b": 2, "c": 2}, counts)
	})
}

// Placed one by one where the policy wants them, pods end up within maxSkew of their weighted part: no zone is ahead
// of its ideal by more, and measured against the emptiest zone, none by more either.
func TestGreedyPlacementIsNearTheWeightedIdeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "zones")
		r := rapid.IntRange(1, 80).Draw(t, "replicas")
		skew := rapid.Int32Range(1, 4).Draw(t, "maxSkew")
		names := zoneNames(n)
		weights, total := map[string]int64{}, int64(0)
		var declared []v1alpha1.ZoneSpreadZone
		for _, name := range names {
			w := rapid.Int32Range(1, 30).Draw(t, "weight "+name)
			weights[name], total = int64(w), total+int64(w)
			declared = append(declared, weighted(name, w))
		}
		p := compile(t, withZones(declared...), maxSkew(skew))
		counts := map[string]int64{}
		require.Equal(t, r, place(p, r, names, nil, plenty, counts))

		least := names[0]
		for _, name := range names {
			if counts[name]*weights[least] < counts[least]*weights[name] {
				least = name
			}
		}
		for _, name := range names {
			// counts - r*w/total <= maxSkew
			require.LessOrEqual(t, counts[name]*total-int64(r)*weights[name], int64(skew)*total, "%v of weights %v",
				counts, weights)
			require.LessOrEqual(t, counts[name]*weights[least]-counts[least]*weights[name], int64(skew)*weights[least],
				"%v of weights %v", counts, weights)
		}
	})
}

// Caps are never exceeded, whatever zones other plugins leave, and as long as they admit all replicas and there is
// room, all are placed.
func TestCapsHoldAndDoNotBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "zones")
		r := rapid.IntRange(1, 30).Draw(t, "replicas")
		p := drawPolicy(t, n, int64(r), true)
		names := zoneNames(n)
		caps := map[string]int64{}
		for _, name := range names {
			caps[name] = capOfZone(p, names, name, int64(r))
		}
		counts := map[string]int64{}
		require.Equal(t, r, place(p, r, names, nil, plenty, counts), "counts %v caps %v", counts, caps)
		for name, c := range counts {
			require.LessOrEqual(t, c, caps[name])
		}

		// With one zone out, the rest is filled to the caps and no further.
		view := policy.ZoneAvailability{"a": policy.Closed}
		counts = map[string]int64{}
		placed := place(p, r, names, view, func(zone string, _ int64) bool { return zone != "a" }, counts)
		room := int64(0)
		for _, name := range names[1:] {
			require.LessOrEqual(t, counts[name], caps[name])
			room += min(caps[name], int64(r))
		}
		require.EqualValues(t, min(int64(r), room), placed)
	})
}

// capOfZone reads a cap off the verdicts: the largest count at which a pod is still let in, with all other zones so
// full that skew does not matter.
func capOfZone(p *policy.Policy, names []string, zone string, r int64) int64 {
	for c := int64(0); ; c++ {
		var ds []policy.Domain
		for _, name := range names {
			ds = append(ds, policy.Domain{Name: name, Pods: c, Held: c, Eligible: true})
		}
		switch p.Evaluate(policy.Input{Domains: ds, Replicas: r}).Rule(zone) {
		case policy.MaxPods, policy.MaxPerZone, policy.QuorumSafe:
			return c
		default:
			if c > r {
				return c
			}
		}
	}
}

func ExampleTable_Message() {
	obj := object(maxPerZone("40%"))
	p, errs := policy.Compile(obj)
	if len(errs) > 0 {
		fmt.Println(errs)
		return
	}
	table := p.Evaluate(policy.Input{
		Domains: []policy.Domain{
			{Name: "a", Pods: 4, Held: 4, Eligible: true},
			{Name: "b", Pods: 3, Held: 3, Eligible: true},
			{Name: "c", Pods: 2, Held: 2, Eligible: true},
		},
		Replicas: 10,
	})
	fmt.Println(table.Message("a"))
	fmt.Println(table.Rule("c"), table.Scores([]string{"b", "c"}))
	// Output:
	// policy shop/web: zone a holds 4 of 10, share 3.3, cap 4 (maxPerZone 40%)
	// Pass [0 100]
}
