package workload

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var zones = []string{"a", "b", "c"}

func TestPlanIsAFunctionOfItsOptions(t *testing.T) {
	o := Options{Scale: 0.02, Seed: 7, Zones: zones}
	first, err := NewPlan(o)
	require.NoError(t, err)
	second, err := NewPlan(o)
	require.NoError(t, err)
	require.Equal(t, first, second)

	o.Seed = 8
	third, err := NewPlan(o)
	require.NoError(t, err)
	require.NotEqual(t, first.Order, third.Order)
	require.Equal(t, first.Services, third.Services)
}

func TestDefaultPlan(t *testing.T) {
	p, err := NewPlan(Options{Scale: DefaultScale, Seed: 1, Zones: zones})
	require.NoError(t, err)
	apps := map[string]bool{}
	for _, s := range p.Services {
		apps[s.App] = true
		require.Positive(t, s.Replicas)
	}
	require.Len(t, apps, 156)
	require.Len(t, p.Order, len(p.Services))
	require.Equal(t, "c", p.LostZone())

	names, shapes := map[string]bool{}, map[string]map[string]int{}
	for _, n := range p.Nodes {
		require.False(t, names[n.Name], "%s twice", n.Name)
		names[n.Name] = true
		if shapes[n.Zone] == nil {
			shapes[n.Zone] = map[string]int{}
		}
		shapes[n.Zone][n.Instance]++
	}
	require.Len(t, shapes, 3)
	require.Equal(t, shapes["a"], shapes["b"], "all zones are alike")
	require.Equal(t, shapes["a"], shapes["c"], "all zones are alike")
	require.Equal(t, Weighted, p.The(Weighted).Part)
}

// The plan promises that everything fits with one zone lost. This adds up
// rather than places: no resource may be short in what is left.
func TestPlannedNodesOfferMoreThanTheWorkloadAsksForOnceAZoneIsLost(t *testing.T) {
	for seed, scale := range []float64{0.001, 0.01, 0.03} {
		p, err := NewPlan(Options{Scale: scale, Seed: uint64(seed), Zones: zones})
		require.NoError(t, err)
		var asked, offered Resources
		for _, s := range p.Services {
			asked = asked.add(s.Each, int64(s.Replicas))
		}
		for _, g := range p.Gangs {
			if g.Fits {
				asked = asked.add(g.Each, int64(g.Members))
			}
		}
		for _, n := range p.Nodes {
			if n.Zone != p.LostZone() {
				offered = offered.add(n.Capacity, 1)
			}
		}
		require.True(t, offered.holds(asked), "asked %+v, offered %+v", asked, offered)
	}
}

// One gang cannot fit even in an empty cluster, and all but one of its members
// can: a scheduler that binds pods one by one would bind most of it.
func TestTheGangThatCannotFitMissesByOneMember(t *testing.T) {
	p, err := NewPlan(Options{Scale: 0.02, Seed: 1, Zones: zones})
	require.NoError(t, err)
	unfit := 0
	for _, g := range p.Gangs {
		slots := 0
		for _, n := range p.Nodes {
			for free := n.Capacity; free.holds(g.Each); free = free.add(g.Each, -1) {
				slots++
			}
		}
		if g.Fits {
			require.GreaterOrEqual(t, slots, g.Members, g.Name)
			continue
		}
		unfit++
		require.Equal(t, g.Members-1, slots, g.Name)
		require.Greater(t, g.Members, 1)
	}
	require.Equal(t, 1, unfit)
}

// Slots for half of the replicas in each of three zones: what each has to run once one is lost. The batch workers fill the
// rest of the shared nodes, and some are left over.
func TestSharedNodesHoldTheSlotsAndTheBatchWork(t *testing.T) {
	for _, scale := range []float64{0.001, 0.01, 0.03} {
		p, err := NewPlan(Options{Scale: scale, Seed: 1, Zones: zones})
		require.NoError(t, err)
		reserved := p.The(Reserved)
		require.GreaterOrEqual(t, reserved.Replicas, fewest)
		require.GreaterOrEqual(t, p.The(Weighted).Replicas, fewest)
		require.GreaterOrEqual(t, 2*p.SlotsPerZone, reserved.Replicas)
		require.Less(t, 2*p.SlotsPerZone, reserved.Replicas+2)

		room := 0
		for _, zone := range zones {
			slots := 0
			for _, n := range p.Nodes {
				if !n.Shared || n.Zone != zone {
					continue
				}
				free := n.Capacity
				for ; free.holds(reserved.Each) && slots < p.SlotsPerZone; free = free.add(reserved.Each, -1) {
					slots++
				}
				room += free.times(worker)
			}
			require.Equal(t, p.SlotsPerZone, slots, zone)
		}
		require.Equal(t, room+waiting, p.Workers)
	}
}

func TestOptionsOutOfRangeAreNamed(t *testing.T) {
	for _, tc := range []struct {
		give Options
		want string
	}{
		{Options{Scale: 0, Zones: zones}, "scale: must be above 0 and at most 1, got 0"},
		{Options{Scale: math.NaN(), Zones: zones}, "scale: must be above 0 and at most 1, got NaN"},
		{Options{Scale: 2, Zones: zones}, "scale: must be above 0 and at most 1, got 2"},
		{Options{Scale: 1, Zones: []string{"a"}}, "zones: at least two are needed, so that one can be lost"},
		{Options{Scale: 1, Seed: 1, Zones: zones}, "scale: 1: the workload needs more than 5000 nodes, which is what Kubernetes supports; choose a smaller scale"},
	} {
		_, err := NewPlan(tc.give)
		require.EqualError(t, err, tc.want)
	}
}

func TestMixSharesAllNodesInProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(1, 600), 1, 12).Draw(t, "counts")
		n := rapid.IntRange(0, 500).Draw(t, "n")
		shapes := make([]shape, len(counts), len(counts)+1)
		total := 0
		for i, c := range counts {
			shapes[i] = shape{pool: gpuNodes, count: c}
			total += c
		}
		shapes = append(shapes, shape{pool: cpuNodes, count: 5})
		got := mix(shapes, gpuNodes, n)
		sum := 0
		for i, c := range got {
			sum += c
			if i == len(counts) {
				if c != 0 {
					t.Fatalf("a shape of another pool got %d", c)
				}
				continue
			}
			exact := float64(n) * float64(counts[i]) / float64(total)
			if float64(c) < exact-1 || float64(c) > exact+1 {
				t.Fatalf("shape %d got %d, its share is %.2f", i, c, exact)
			}
		}
		if sum != n {
			t.Fatalf("%d of %d nodes", sum, n)
		}
	})
}
