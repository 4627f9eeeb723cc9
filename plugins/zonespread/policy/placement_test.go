package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

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
