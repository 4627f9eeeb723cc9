package holds

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// TestFit: a node of 10 CPUs and 20 places for pods, pods that take 4 CPUs, and holds of web and db.
func TestFit(t *testing.T) {
	holdsOf := func(edit func(*Holds)) *NodeHolds {
		s := New()
		s.SetClaim(claimOf("web", UseLast, 2, 2))
		s.SetClaim(claimOf("db", UseLast, 1, 1))
		s.Change("web", []Change{{Node: "n", Add: *cpus(4, 2)}})
		s.Change("db", []Change{{Node: "n", Add: *cpus(1, 1)}})
		if edit != nil {
			edit(s)
		}
		return s.Node("n")
	}
	// amounts has web hold the same as amounts.
	amounts := func(s *Holds) {
		c := claimOf("web", UseLast, 0, 2)
		c.Slot = ledger.Resources{}
		s.SetClaim(c)
	}
	guarantee := func(use Use) func(*Holds) {
		return func(s *Holds) { s.SetClaim(claimOf("web", use, 2, 2)) }
	}
	// 10 - 4 = 6 are left, of which 5 are held.
	for name, tc := range map[string]struct {
		edit      func(*Holds)
		who       Requester
		request   *ledger.Resources
		requested int64 // CPUs, 4 when it is 0
		owned     map[types.UID]*ledger.Resources
		want      FitResult
	}{
		"beside all that is held":               {request: cpus(1, 1), want: FitResult{Fits: true}},
		"a stranger in held room":               {request: cpus(2, 1), want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "web"}}},
		"nothing is asked for":                  {request: cpus(0, 1), want: FitResult{Fits: true}},
		"it ignores holds":                      {request: cpus(9, 1), who: Requester{IgnoreHolds: true}, want: FitResult{Fits: true}},
		"of a higher priority":                  {request: cpus(6, 1), who: Requester{Priority: 1}, want: FitResult{Fits: true}},
		"an owner beside all":                   {request: cpus(1, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true}},
		"an owner that needs a slot":            {request: cpus(2, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true, UsesOwn: true, Takes: *cpus(2, 1)}},
		"an owner that has outgrown its slot":   {request: cpus(4, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true, UsesOwn: true, Takes: *cpus(4, 2)}},
		"an owner that all its slots do not do": {request: cpus(6, 1), who: Requester{Claim: "web"}, want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "db"}}},
		"an owner of a priority above its own": {
			request: cpus(5, 1), who: Requester{Claim: "web", Priority: 1}, want: FitResult{Fits: true, UsesOwn: true, Takes: *cpus(4, 2)},
		},
		"a slot first":        {edit: guarantee(UseFirst), request: cpus(1, 1), who: Requester{Claim: "web", Use: UseFirst}, want: FitResult{Fits: true, UsesOwn: true}},
		"none, and free room": {edit: guarantee(UseFirst), request: cpus(1, 1), who: Requester{Claim: "other", Use: UseFirst}, want: FitResult{Fits: true}},
		"all slots are used": {
			edit: guarantee(UseFirst), request: cpus(1, 1), who: Requester{Claim: "web", Use: UseFirst}, owned: map[types.UID]*ledger.Resources{"web": cpus(3, 2)}, want: FitResult{Fits: true},
		},
		"a part of a slot is no slot": {
			edit: guarantee(UseFirst), request: cpus(1, 1), who: Requester{Claim: "web", Use: UseFirst}, owned: map[types.UID]*ledger.Resources{"web": cpus(3, 1)}, want: FitResult{Fits: true},
		},
		"slots only":                         {edit: guarantee(UseOnly), request: cpus(4, 1), who: Requester{Claim: "web", Use: UseOnly}, want: FitResult{Fits: true, UsesOwn: true}},
		"slots only, too large":              {edit: guarantee(UseOnly), request: cpus(5, 1), requested: 1, who: Requester{Claim: "web", Use: UseOnly}, want: FitResult{}},
		"slots only, and none":               {request: cpus(1, 1), who: Requester{Claim: "other", Use: UseOnly}, want: FitResult{}},
		"slots only, and pods in their room": {edit: guarantee(UseOnly), request: cpus(2, 1), requested: 8, who: Requester{Claim: "web", Use: UseOnly}, want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "db"}}},
		"slots only, and one is left": {
			edit: guarantee(UseOnly), request: cpus(2, 1), who: Requester{Claim: "web", Use: UseOnly}, owned: map[types.UID]*ledger.Resources{"web": cpus(2, 1)}, want: FitResult{Fits: true, UsesOwn: true},
		},
		"slots only, and no place is left": {
			edit: guarantee(UseOnly), request: cpus(1, 1), who: Requester{Claim: "web", Use: UseOnly}, owned: map[types.UID]*ledger.Resources{"web": cpus(2, 2)}, want: FitResult{},
		},
		"what owners use keeps nothing":     {edit: guarantee(UseFirst), request: cpus(3, 1), owned: map[types.UID]*ledger.Resources{"web": cpus(2, 1)}, want: FitResult{Fits: true}},
		"what they leave of a slot does":    {edit: guarantee(UseFirst), request: cpus(3, 1), owned: map[types.UID]*ledger.Resources{"web": cpus(1, 1)}, want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "web"}}},
		"headroom is beside its owners":     {request: cpus(3, 1), owned: map[types.UID]*ledger.Resources{"web": cpus(2, 1)}, want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "web"}}},
		"owners that use more than is held": {edit: guarantee(UseFirst), request: cpus(5, 1), owned: map[types.UID]*ledger.Resources{"web": cpus(9, 9)}, want: FitResult{Fits: true}},
		"an amount, and free room":          {edit: amounts, request: cpus(1, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true}},
		"of an amount what is lacking":      {edit: amounts, request: cpus(3, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true, UsesOwn: true}},
		"all of an amount":                  {edit: amounts, request: cpus(5, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true, UsesOwn: true}},
		"more than an amount":               {edit: amounts, request: cpus(6, 1), who: Requester{Claim: "web"}, want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "db"}}},
		"a stranger in an amount":           {edit: amounts, request: cpus(2, 1), want: FitResult{Lacks: "cpu", HeldBy: &Claim{UID: "web"}}},
		"a stranger in a used amount":       {edit: amounts, request: cpus(2, 1), owned: map[types.UID]*ledger.Resources{"web": cpus(1, 1)}, want: FitResult{Fits: true}},
		"an amount of which a part is used": {
			edit: amounts, owned: map[types.UID]*ledger.Resources{"web": cpus(3, 2)}, requested: 7, request: cpus(2, 1), who: Requester{Claim: "web"}, want: FitResult{Fits: true, UsesOwn: true},
		},
		"a place of an amount": {edit: amounts, request: cpus(1, 1), who: Requester{Claim: "web"}, requested: -1, want: FitResult{Fits: true, UsesOwn: true}},
		"no place for a pod":   {request: cpus(1, 1), who: Requester{}, requested: -1, want: FitResult{Lacks: "pods", HeldBy: &Claim{UID: "web"}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := holdsOf(tc.edit)
			requested := cpus(4, 4)
			switch {
			case tc.requested > 0:
				requested.MilliCPU = 1000 * tc.requested
			case tc.requested < 0:
				requested = cpus(0, 17)
			}
			got := n.Fit(&FitInput{Requester: &tc.who, Request: tc.request, Allocatable: cpus(10, 20), Requested: requested, Owned: owning(tc.owned)})
			if tc.want.HeldBy != nil {
				require.NotNil(t, got.HeldBy)
				require.Equal(t, tc.want.HeldBy.UID, got.HeldBy.UID)
				tc.want.HeldBy, got.HeldBy = nil, nil
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestFitOfScalarResources: they are compared by name, and only those that both sides name.
func TestFitOfScalarResources(t *testing.T) {
	s := New()
	c := claimOf("web", UseLast, 1, 1)
	c.Slot.Scalar = map[v1.ResourceName]int64{gpu: 2}
	s.SetClaim(c)
	s.Change("web", []Change{{Node: "n", Add: c.SlotsAmount(2)}})
	node := &ledger.Resources{MilliCPU: 100_000, Pods: 100, Scalar: map[v1.ResourceName]int64{gpu: 8}}
	ask := func(who Requester, gpus int64) FitResult {
		request := &ledger.Resources{MilliCPU: 1000, Pods: 1, Scalar: map[v1.ResourceName]int64{gpu: gpus}}
		return s.Node("n").Fit(&FitInput{Requester: &who, Request: request, Allocatable: node, Requested: &ledger.Resources{}})
	}
	require.True(t, ask(Requester{}, 4).Fits)
	require.Equal(t, gpu, ask(Requester{}, 5).Lacks)
	require.Equal(t, c.SlotsAmount(1), ask(Requester{Claim: "web"}, 5).Takes)
	require.Equal(t, c.SlotsAmount(2), ask(Requester{Claim: "web"}, 7).Takes)
	part := c.SlotsAmount(1)
	_, err := s.Take("web", "n", &part)
	require.NoError(t, err)
	require.True(t, ask(Requester{}, 6).Fits, "it is no longer held")
	require.Equal(t, gpu, ask(Requester{}, 7).Lacks)
}

// TestLeavesOfAnAmountWithoutAPlace: an amount that has no place for a pod keeps off pods, too.
func TestLeavesOfAnAmountWithoutAPlace(t *testing.T) {
	s := New()
	v := s.NewView()
	leaves := func(milliCPU int64) bool {
		request := &ledger.Resources{MilliCPU: milliCPU, Pods: 1}
		return v.FitsBesideLargest(request, &ledger.Resources{MilliCPU: 8000, Pods: 110}, &ledger.Resources{MilliCPU: 1000, Pods: 110})
	}
	v.Update()
	require.True(t, leaves(3000), "nothing is held")
	s.SetClaim(Claim{UID: "web"})
	s.Change("web", []Change{{Node: "n", Add: ledger.Resources{MilliCPU: 6000}}})
	v.Update()
	require.False(t, leaves(3000))
	require.True(t, leaves(1000), "no place is held")
}

// TestKept: what unused holds keep from a pod, without those that it may use or that it outranks.
func TestKept(t *testing.T) {
	s := New()
	for i, name := range []string{"web", "db"} {
		c := claimOf(name, UseLast, int64(i+1), 1)
		c.Priority = int32(i)
		s.SetClaim(c)
		s.Change(c.UID, []Change{{Node: "n", Add: c.SlotsAmount(2)}})
	}
	guarantee := claimOf("web", UseFirst, 1, 1)
	s.SetClaim(guarantee)
	kept := func(who Requester, owned *ledger.Resources) []int64 {
		amounts := []int64{100, 0}
		s.Node("n").Kept(&who, owning(map[types.UID]*ledger.Resources{"web": owned}), []v1.ResourceName{"cpu", "pods"}, amounts)
		return amounts
	}
	require.Equal(t, []int64{5100, 3}, kept(Requester{}, cpus(1, 1)))
	require.Equal(t, []int64{6100, 4}, kept(Requester{}, nil))
	require.Equal(t, []int64{4100, 2}, kept(Requester{Claim: "web"}, nil))
	require.Equal(t, []int64{4100, 2}, kept(Requester{Priority: 1}, nil))
	require.Equal(t, []int64{100, 0}, kept(Requester{IgnoreHolds: true}, nil))
	var none *NodeHolds
	none.Kept(&Requester{}, nil, nil, nil)
}

// TestSlotsAreTakenInTheSizeThatTheyHave, although the claim has another size already.
func TestSlotsAreTakenInTheSizeThatTheyHave(t *testing.T) {
	s := New()
	c := claimOf("web", UseLast, 1, 1)
	s.SetClaim(c)
	s.Change("web", []Change{{Node: "n", Add: c.SlotsAmount(4)}})
	s.SetClaim(claimOf("web", UseLast, 2, 1))
	allocatable, pod := cpus(4, 20), cpus(2, 1)
	input := &FitInput{Requester: &Requester{Claim: "web"}, Request: pod, Allocatable: allocatable, Requested: &ledger.Resources{}}
	result := s.Node("n").Fit(input)
	require.Equal(t, *cpus(2, 2), result.Takes)
	_, err := s.Take("web", "n", &result.Takes)
	require.NoError(t, err)
	require.Equal(t, *cpus(2, 2), s.Node("n").Of("web").Amount, "the pod has room beside what is left")
}
