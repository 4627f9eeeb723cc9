package survival

import (
	"context"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestOrdersOfTheCertificate: the planner finds room in other orders than those of the certificate, until this has
// found one in which a pod waits. Then the planner begins with the certificate's.
func TestOrdersOfTheCertificate(t *testing.T) {
	seeds := func(p *planner) (out []int64) {
		for pass := range maxPasses {
			for order := range p.orders {
				out = append(out, p.seedOf(pass, order))
			}
		}
		return out
	}
	own := seeds(&planner{orders: 3})
	seen := map[int64]bool{}
	for _, seed := range own {
		require.False(t, seen[seed], "twice: %d", seed)
		require.Less(t, seed, int64(certificateSeeds))
		seen[seed] = true
	}
	broken := seeds(&planner{orders: 3, broken: true})
	for i := range int64(3) {
		require.Equal(t, certificateSeeds+i, broken[i])
	}
	require.Equal(t, own[:len(own)-3], broken[3:])
}

// TestReplaysOf: fewer replays of large losses, and more of small ones where a certificate judges, unless the caller
// says how many.
func TestReplaysOf(t *testing.T) {
	for displaced, want := range map[int][2]int{
		0: {3, 12}, 1: {3, 12}, 200: {3, 12}, 201: {3, 11}, 600: {3, 4}, 800: {3, 3}, 20_000: {3, 3}, 20_001: {2, 2}, 30_000: {2, 2}, 30_001: {1, 1}, 60_001: {1, 1},
	} {
		o, five := Options{}, Options{Replays: 5}
		require.Equal(t, want, [2]int{o.replaysOf(displaced, DefaultReplays), o.replaysOf(displaced, mostReplays)}, "%d pods", displaced)
		require.Equal(t, [2]int{5, 5}, [2]int{five.replaysOf(displaced, DefaultReplays), five.replaysOf(displaced, mostReplays)}, "%d pods", displaced)
	}
}

// TestTheNextPlanIsTheSame: where pods go depends on the order and on what is held. A plan that begins with what
// another has found replays each loss in each order once, and finds nothing lacking.
func TestTheNextPlanIsTheSame(t *testing.T) {
	for cluster := range uint64(300) {
		p := &planner{orders: 3, losses: []*loss{{zone: "a"}, {zone: "b"}}, sites: map[string]*site{}}
		nodes := []string{"n0", "n1", "n2"}
		for _, name := range nodes {
			p.sites[name] = &site{zone: "c"}
		}
		replays := 0
		play := func(_ context.Context, l *loss, _ int, seed int64, held amounts) ([]placement, error) {
			replays++
			sum := held.total()
			r := rand.New(rand.NewPCG(cluster, uint64(seed)<<32+uint64(sum.MilliCPU)+uint64(l.zone[0]))) //nolint:gosec // not negative
			cpu := *resource.NewQuantity(1+r.Int64N(2), resource.DecimalSI)
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: cpu}}}}}}
			to := placement{pod: pod, node: nodes[r.IntN(len(nodes))], foundAt: openFree}
			if is, request := held[to.node], footprintOf(pod); request.Exceeds(&is) == "" {
				to.foundAt = openHeld
			}
			return []placement{to}, nil
		}
		first, err := p.growAmounts(t.Context(), play, amounts{})
		require.NoError(t, err)
		require.Less(t, replays, maxPasses*6)
		held := maps.Clone(first.held)
		replays = 0
		again, err := p.growAmounts(t.Context(), play, first.held)
		require.NoError(t, err)
		require.Equal(t, held, again.held, "cluster %d", cluster)
		require.Equal(t, 6, replays, "cluster %d", cluster)
	}
}
