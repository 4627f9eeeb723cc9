package holds

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/ledger"
)

func drawAmount(t *rapid.T, label string, most int64) ledger.Resources {
	r := ledger.Resources{
		MilliCPU: rapid.Int64Range(0, most).Draw(t, label+" cpu"),
		Memory:   rapid.Int64Range(0, most).Draw(t, label+" memory"),
		Pods:     1,
	}
	if n := rapid.Int64Range(0, most).Draw(t, label+" gpu"); n > 0 {
		r.Scalar = map[v1.ResourceName]int64{gpu: n}
	}
	return r
}

// TestFitIsTheRule compares Fit with the rule of the package: by each resource, and for each number of slots that the pod could take.
func TestFitIsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		uids := []types.UID{"a", "b", "c"}
		owned := map[types.UID]*ledger.Resources{}
		for i, uid := range uids {
			c := claimOf(string(uid), Use(rapid.IntRange(0, 2).Draw(t, "use")), 1, i)
			c.Slot = drawAmount(t, "slot", 3)
			c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
			held := c.SlotsAmount(rapid.IntRange(0, 3).Draw(t, "slots"))
			if rapid.Bool().Draw(t, "named nodes") {
				c.Use, c.Slot = UseLast, ledger.Resources{}
				held = drawAmount(t, "amount", 9)
				held.Pods = rapid.Int64Range(0, 3).Draw(t, "places")
			}
			s.SetClaim(c)
			s.Change(uid, []Change{{Node: "n", Add: held}})
			if rapid.Bool().Draw(t, "owners") {
				asks := drawAmount(t, "owners ask for", 5)
				asks.Pods = rapid.Int64Range(1, 3).Draw(t, "owners")
				owned[uid] = &asks
			}
		}
		requester := Requester{
			Priority: int32(rapid.IntRange(0, 2).Draw(t, "pod's priority")),
			Claim:    rapid.SampledFrom(append(uids, "", "none")).Draw(t, "pod's claim"),
		}
		n := s.Node("n")
		own := n.Of(requester.Claim)
		if own != nil {
			requester.Use = own.Claim.Use
		}
		request, allocatable, requested := drawAmount(t, "request", 6), drawAmount(t, "allocatable", 20), drawAmount(t, "requested", 6)
		allocatable.Pods, requested.Pods = rapid.Int64Range(1, 20).Draw(t, "places"), rapid.Int64Range(0, 6).Draw(t, "pods")
		input := FitInput{Requester: &requester, Request: &request, Allocatable: &allocatable, Requested: &requested, Owned: owning(owned)}

		// unused is by claim.
		names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, gpu}
		unused := map[types.UID]ledger.Resources{}
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				var rest ledger.Resources
				for _, name := range names {
					left := h.Amount.Amount(name)
					if pods := owned[h.Claim.UID]; pods != nil && (h.Claim.Use != UseLast || !h.Claim.HasSlots()) {
						left = max(0, left-pods.Amount(name))
					}
					rest.Put(name, left)
					require.Equal(t, left, h.UnusedOf(name, input.Owned))
				}
				got := h.Unused(input.Owned)
				require.True(t, got.Equal(&rest), "what is unused is the amount without what its pods ask for, or all")
				unused[h.Claim.UID] = rest
			}
		}
		mine := unused[requester.Claim]
		// over is what is too much of a resource beside what others hold and some of what the pod's own claim does.
		over := func(own *ledger.Resources, name v1.ResourceName) int64 {
			kept := own.Amount(name)
			for uid, rest := range unused {
				if uid != requester.Claim && n.Of(uid).Claim.Priority >= requester.Priority {
					kept += rest.Amount(name)
				}
			}
			if request.Amount(name) <= 0 || kept <= 0 {
				return 0
			}
			return request.Amount(name) + kept - (allocatable.Amount(name) - requested.Amount(name))
		}
		fits := func(own ledger.Resources) bool {
			return !slices.ContainsFunc(names, func(name v1.ResourceName) bool { return over(&own, name) > 0 })
		}
		lies := true
		if requester.Use == UseOnly && requester.Claim != "" {
			lies = own != nil && mine.Pods > 0
			for _, name := range names {
				lies = lies && (own.Claim.Slot.Amount(name) == 0 || request.Amount(name) <= mine.Amount(name))
			}
		}

		got := n.Fit(&input)
		require.Equal(t, fits(ledger.Resources{}) && lies, got.Fits)
		switch {
		case !got.Fits:
			require.Equal(t, !lies, got.HeldBy == nil)
			require.Equal(t, !lies, got.Lacks == "")
			require.False(t, got.UsesOwn)
		case own == nil:
			require.Equal(t, FitResult{Fits: true}, got)
		case requester.Use == UseOnly:
			require.True(t, got.UsesOwn)
		case requester.Use == UseFirst:
			require.Equal(t, own.Claim.UnusedSlots(int(own.Amount.Pods), orNone(owned[requester.Claim])) > 0, got.UsesOwn)
		default:
			require.Equal(t, !fits(mine), got.UsesOwn)
		}
		if got.Fits && own != nil && !own.Claim.Inclusive() {
			least := 0
			for ; least < int(own.Amount.Pods) && !fits(own.Claim.SlotsAmount(int(own.Amount.Pods)-least)); least++ {
			}
			require.Equal(t, own.Claim.SlotsAmount(least), got.Takes)
		} else {
			require.True(t, got.Takes.IsZero())
		}

		// Kept is what the pod may not use.
		if n != nil {
			var want ledger.Resources
			for i := range n.Holds {
				if c := n.Holds[i].Claim; c.UID != requester.Claim && c.Priority >= requester.Priority {
					rest := unused[c.UID]
					want.Add(&rest, 1)
				}
			}
			kept := make([]int64, len(names))
			n.Kept(&requester, input.Owned, names, kept)
			for i, name := range names {
				require.Equal(t, want.Amount(name), kept[i])
			}
		}

		// Excess: what is left without it fits beside what stays with used slots, and one slot, or one unit of a resource, more of the first
		// claim that has any does not.
		excess, movable := map[types.UID]ledger.Resources{}, map[types.UID]ledger.Resources{}
		for _, e := range n.Excess(&allocatable, &requested, input.Owned) {
			require.False(t, e.Amount.IsZero())
			excess[e.Claim] = e.Amount
		}
		room := allocatable.Minus(&requested)
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				kept := h.Unused(input.Owned)
				if h.Claim.HasSlots() {
					whole := h.Claim.SlotsAmount(h.Claim.UnusedSlots(int(h.Amount.Pods), orNone(owned[h.Claim.UID])))
					rest := kept.Minus(&whole)
					room = room.Minus(&rest)
					kept = whole
				}
				movable[h.Claim.UID] = kept
			}
			for i := range n.Holds {
				h := &n.Holds[i]
				over, kept := excess[h.Claim.UID], movable[h.Claim.UID]
				kept = kept.Minus(&over)
				require.False(t, kept.Negative(&over))
				if !kept.IsZero() {
					require.Empty(t, kept.Exceeds(&room))
				}
				if more := kept.Clone(); h.Claim.HasSlots() && !over.IsZero() {
					more.Add(&h.Claim.Slot, 1)
					require.NotEmpty(t, more.Exceeds(&room))
				}
				for name := range over.Named() {
					require.True(t, h.Claim.HasSlots() || kept.Amount(name) >= room.Amount(name))
				}
				room.Add(&kept, -1)
			}
		}
	})
}

func orNone(r *ledger.Resources) *ledger.Resources {
	if r == nil {
		return &ledger.Resources{}
	}
	return r
}
