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
	used := func(uid types.UID, claim string, part *ledger.Resources) func(*Holds) {
		return func(s *Holds) { require.NoError(t, s.Take(uid, "n", types.UID(claim), *part, nil)) }
	}
	// amounts has web hold the same as amounts.
	amounts := func(s *Holds) {
		c := claimOf("web", UseLast, 0, 2)
		c.Amounts, c.Slot = true, ledger.Resources{}
		s.SetClaim(c)
	}
	guarantee := func(use Use) func(*Holds) {
		return func(s *Holds) { s.SetClaim(claimOf("web", use, 2, 2)) }
	}
	// 10 - 4 = 6 are left, of which 5 are held.
	for name, tc := range map[string]struct {
		edit      func(*Holds)
		who       Asker
		request   *ledger.Resources
		requested int64 // CPUs, 4 when it is 0
		present   Present
		taken     []Taken
		want      Verdict
	}{
		"beside all that is held":               {request: cpus(1, 1), want: Verdict{Fits: true}},
		"a stranger in held room":               {request: cpus(2, 1), want: Verdict{Lacks: "cpu", By: &Claim{UID: "web"}}},
		"nothing is asked for":                  {request: cpus(0, 1), want: Verdict{Fits: true}},
		"it ignores holds":                      {request: cpus(9, 1), who: Asker{IgnoreHolds: true}, want: Verdict{Fits: true}},
		"of a higher priority":                  {request: cpus(6, 1), who: Asker{Priority: 1}, want: Verdict{Fits: true}},
		"an owner beside all":                   {request: cpus(1, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true}},
		"an owner that needs a slot":            {request: cpus(2, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true, Takes: *cpus(2, 1)}},
		"an owner that has outgrown its slot":   {request: cpus(4, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true, Takes: *cpus(4, 2)}},
		"an owner that all its slots do not do": {request: cpus(6, 1), who: Asker{Claim: "web"}, want: Verdict{Lacks: "cpu", By: &Claim{UID: "db"}}},
		"an owner of a priority above its own": {
			request: cpus(5, 1), who: Asker{Claim: "web", Priority: 1}, want: Verdict{Fits: true, Takes: *cpus(4, 2)},
		},
		"a slot first":                       {edit: guarantee(UseFirst), request: cpus(1, 1), who: Asker{Claim: "web", Use: UseFirst}, want: Verdict{Fits: true, Takes: *cpus(2, 1)}},
		"as many as cover it":                {edit: guarantee(UseFirst), request: cpus(3, 1), requested: 1, who: Asker{Claim: "web", Use: UseFirst}, want: Verdict{Fits: true, Takes: *cpus(4, 2)}},
		"as far as there are":                {edit: guarantee(UseFirst), request: cpus(5, 1), requested: 1, who: Asker{Claim: "web", Use: UseFirst}, want: Verdict{Fits: true, Takes: *cpus(4, 2)}},
		"none, and free room":                {edit: guarantee(UseFirst), request: cpus(1, 1), who: Asker{Claim: "other", Use: UseFirst}, want: Verdict{Fits: true}},
		"slots only":                         {edit: guarantee(UseOnly), request: cpus(4, 1), who: Asker{Claim: "web", Use: UseOnly}, want: Verdict{Fits: true, Takes: *cpus(4, 2)}},
		"slots only, too large":              {edit: guarantee(UseOnly), request: cpus(5, 1), requested: 1, who: Asker{Claim: "web", Use: UseOnly}, want: Verdict{}},
		"slots only, and none":               {request: cpus(1, 1), who: Asker{Claim: "other", Use: UseOnly}, want: Verdict{}},
		"slots only, and pods in their room": {edit: guarantee(UseOnly), request: cpus(2, 1), requested: 6, who: Asker{Claim: "web", Use: UseOnly}, want: Verdict{Lacks: "cpu", By: &Claim{UID: "db"}}},
		"a used slot keeps nothing":          {edit: used("w", "web", cpus(2, 1)), request: cpus(3, 1), present: on("w"), want: Verdict{Fits: true}},
		"a slot whose consumer is away":      {edit: used("w", "web", cpus(2, 1)), request: cpus(3, 1), present: on(), want: Verdict{Lacks: "cpu", By: &Claim{UID: "web"}}},
		"a slot that is taken, not recorded": {taken: []Taken{{Claim: "web", Pod: "w", Took: *cpus(2, 1)}}, request: cpus(3, 1), want: Verdict{Fits: true}},
		"an amount, and free room":           {edit: amounts, request: cpus(1, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true}},
		"of an amount what is lacking":       {edit: amounts, request: cpus(3, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true, Takes: *cpus(2, 1)}},
		"all of an amount":                   {edit: amounts, request: cpus(5, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true, Takes: *cpus(4, 1)}},
		"more than an amount":                {edit: amounts, request: cpus(6, 1), who: Asker{Claim: "web"}, want: Verdict{Lacks: "cpu", By: &Claim{UID: "db"}}},
		"a stranger in an amount":            {edit: amounts, request: cpus(2, 1), want: Verdict{Lacks: "cpu", By: &Claim{UID: "web"}}},
		"an amount of which a part is taken": {edit: amounts, taken: []Taken{{Claim: "web", Pod: "w", Took: *cpus(3, 2)}}, requested: 7, request: cpus(2, 1), who: Asker{Claim: "web"}, want: Verdict{Fits: true, Takes: *cpus(1, 0)}},
		"a place of an amount":               {edit: amounts, request: cpus(1, 1), who: Asker{Claim: "web"}, requested: -1, want: Verdict{Fits: true, Takes: *cpus(0, 1)}},
		"no place for a pod":                 {request: cpus(1, 1), who: Asker{}, requested: -1, want: Verdict{Lacks: "pods", By: &Claim{UID: "web"}}},
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
			got := n.Fit(&Question{Who: &tc.who, Request: tc.request, Allocatable: cpus(10, 20), Requested: requested, Present: tc.present, Taken: tc.taken})
			if tc.want.By != nil {
				require.NotNil(t, got.By)
				require.Equal(t, tc.want.By.UID, got.By.UID)
				tc.want.By, got.By = nil, nil
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
	s.Change("web", []Change{{Node: "n", Add: c.Slots(2)}})
	node := &ledger.Resources{MilliCPU: 100_000, Pods: 100, Scalar: map[v1.ResourceName]int64{gpu: 8}}
	ask := func(who Asker, gpus int64) Verdict {
		request := &ledger.Resources{MilliCPU: 1000, Pods: 1, Scalar: map[v1.ResourceName]int64{gpu: gpus}}
		return s.Node("n").Fit(&Question{Who: &who, Request: request, Allocatable: node, Requested: &ledger.Resources{}})
	}
	require.True(t, ask(Asker{}, 4).Fits)
	require.Equal(t, gpu, ask(Asker{}, 5).Lacks)
	require.Equal(t, c.Slots(1), ask(Asker{Claim: "web"}, 5).Takes)
	require.Equal(t, c.Slots(2), ask(Asker{Claim: "web"}, 7).Takes)
	require.NoError(t, s.Take("w", "n", "web", c.Slots(1), nil))
	require.True(t, ask(Asker{}, 6).Fits, "its own gpus are in the node's sum")
	require.Equal(t, gpu, ask(Asker{}, 7).Lacks)
}

// TestLeavesOfAnAmountWithoutAPlace: an amount that has no place for a pod keeps off pods, too.
func TestLeavesOfAnAmountWithoutAPlace(t *testing.T) {
	s := New()
	v := s.NewView()
	leaves := func(milliCPU int64) bool {
		request := &ledger.Resources{MilliCPU: milliCPU, Pods: 1}
		return v.Leaves(request, &ledger.Resources{MilliCPU: 8000, Pods: 110}, &ledger.Resources{MilliCPU: 1000, Pods: 110})
	}
	v.Update()
	require.True(t, leaves(3000), "nothing is held")
	s.SetClaim(Claim{UID: "web", Amounts: true})
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
		s.Change(c.UID, []Change{{Node: "n", Add: c.Slots(2)}})
	}
	require.NoError(t, s.Take("w", "n", "web", *cpus(1, 1), nil))
	kept := func(who Asker, present Present) []int64 {
		amounts := []int64{100, 0}
		s.Node("n").Kept(&who, present, []v1.ResourceName{"cpu", "pods"}, amounts)
		return amounts
	}
	require.Equal(t, []int64{5100, 3}, kept(Asker{}, on("w")))
	require.Equal(t, []int64{6100, 4}, kept(Asker{}, on()))
	require.Equal(t, []int64{4100, 2}, kept(Asker{Claim: "web"}, on("w")))
	require.Equal(t, []int64{4100, 2}, kept(Asker{Priority: 1}, on("w")))
	require.Equal(t, []int64{100, 0}, kept(Asker{IgnoreHolds: true}, on("w")))
	var none *NodeHolds
	none.Kept(&Asker{}, nil, nil, nil)
}

// TestAUsedSlotStaysWhole: what a small owner does not ask for of a slot of a Guarantee is kept for the next one. Headroom is replaced
// elsewhere, as a whole.
func TestAUsedSlotStaysWhole(t *testing.T) {
	small := asking(map[types.UID]ledger.Resources{"small": {MilliCPU: 500, Pods: 1}})
	for _, use := range []Use{UseLast, UseFirst, UseOnly} {
		s := New()
		s.SetClaim(claimOf("web", use, 2, 0))
		s.Change("web", []Change{{Node: "n", Add: *cpus(2, 1)}})
		require.NoError(t, s.Take("small", "n", "web", *cpus(2, 1), nil))
		fits := func(request int64) bool {
			verdict := s.Node("n").Fit(&Question{
				Who: &Asker{}, Request: cpus(request, 1), Allocatable: cpus(4, 10), Requested: &ledger.Resources{MilliCPU: 500, Pods: 1}, Present: small,
			})
			return verdict.Fits
		}
		require.True(t, fits(2))
		require.Equal(t, use == UseLast, fits(3))
	}
}
