package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlanIsAFunctionOfItsSeed(t *testing.T) {
	first := NewPlan(0.02, 7)
	require.Equal(t, first, NewPlan(0.02, 7))

	third := NewPlan(0.02, 8)
	require.NotEqual(t, first.Services, third.Services)
	require.Len(t, third.Services, len(first.Services))
}

func TestPlanOfTheDemo(t *testing.T) {
	p := NewPlan(DemoScale, 1)
	apps := map[string]bool{}
	for _, s := range p.Services {
		apps[s.App] = true
		require.Positive(t, s.Replicas)
		if s.DefaultPolicy() {
			require.GreaterOrEqual(t, s.Replicas, len(Zones), "each zone loses some of %s", s.Name())
		}
	}
	require.Len(t, apps, 156)

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
	require.Equal(t, shapes["zone-a"], shapes["zone-b"], "all zones are alike")
	require.Equal(t, shapes["zone-a"], shapes["zone-c"], "all zones are alike")
}

// The plan promises that everything fits with one zone lost. This adds up
// rather than places: no resource may be short in what is left.
func TestPlannedNodesOfferMoreThanTheWorkloadAsksForOnceAZoneIsLost(t *testing.T) {
	for seed, scale := range []float64{0.001, 0.01, 0.02, 0.03} {
		p := NewPlan(scale, uint64(seed))
		var asked, offered Resources
		for _, s := range p.Services {
			asked = asked.plus(s.Each, int64(s.Replicas))
		}
		for _, g := range p.Gangs {
			if g.Fits {
				asked = asked.plus(g.Each, int64(g.Members))
			}
		}
		for _, n := range p.Nodes {
			if n.Zone != LostZone {
				offered = offered.plus(n.Capacity, 1)
			}
		}
		require.True(t, offered.fits(asked), "asked %+v, offered %+v", asked, offered)
	}
}

// One gang cannot fit even in an empty cluster, and all but one of its members
// can: a scheduler that binds pods one by one would bind most of it.
func TestTheGangThatCannotFitMissesByOneMember(t *testing.T) {
	p := NewPlan(0.02, 1)
	unfit := 0
	for _, g := range p.Gangs {
		slots := 0
		for _, n := range p.Nodes {
			for free := n.Capacity; free.fits(g.Each); free = free.plus(g.Each, -1) {
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

// The shared nodes of each zone have room for half of the replicas, which is what they have to run once one of three
// zones is lost. There are more batch workers than fit beside any replicas.
func TestSharedNodesHaveRoomForTheServiceInTwoZones(t *testing.T) {
	for _, scale := range []float64{0.001, 0.01, 0.02, 0.03} {
		p := NewPlan(scale, 1)
		service := p.Shared()
		require.GreaterOrEqual(t, service.Replicas, fewest)
		require.GreaterOrEqual(t, p.Weighted().Replicas, fewest)
		workers := 0
		for _, zone := range Zones {
			replicas := 0
			for _, n := range p.Nodes {
				if n.Shared && n.Zone == zone {
					replicas += n.Capacity.countOf(service.Each)
					workers += n.Capacity.countOf(worker)
				}
			}
			require.GreaterOrEqual(t, 2*replicas, service.Replicas, zone)
		}
		require.Equal(t, workers, p.Workers)
	}
}
