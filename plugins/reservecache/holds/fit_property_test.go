package holds

import (
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

// TestFitIsTheRule compares Fit with the rule of the package, tried for each number of slots that the pod could use.
func TestFitIsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		uids := []types.UID{"a", "b", "c"}
		present := map[types.UID]ledger.Resources{}
		var taken []Taken
		for i, uid := range uids {
			c := claimOf(string(uid), Use(rapid.IntRange(0, 2).Draw(t, "use")), 1, i)
			c.Slot = drawAmount(t, "slot", 3)
			c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
			free := c.Slots(rapid.IntRange(0, 3).Draw(t, "slots"))
			if c.Amounts = rapid.Bool().Draw(t, "amounts"); c.Amounts {
				c.Use, c.Slot = UseLast, ledger.Resources{}
				free = drawAmount(t, "amount", 9)
				free.Pods = rapid.Int64Range(0, 3).Draw(t, "places")
			}
			s.SetClaim(c)
			s.Change(uid, []Change{{Node: "n", Add: free}})
			for _, pod := range []types.UID{"1", "2"} {
				pod = uid + pod
				part := c.Slots(rapid.IntRange(0, int(free.Pods)).Draw(t, "takes"))
				if c.Amounts {
					part = drawAmount(t, "takes", 5)
					part.Lower(&free)
				}
				if part.IsZero() {
					continue
				}
				free.Add(&part, -1)
				if rapid.Bool().Draw(t, "recorded") {
					require.NoError(t, s.Take(pod, "n", uid, part, nil))
					if rapid.Bool().Draw(t, "present") {
						present[pod] = drawAmount(t, "asks for", 5)
					}
				} else {
					taken = append(taken, Taken{Claim: uid, Pod: pod, Took: part})
				}
			}
		}
		who := Asker{
			Priority: int32(rapid.IntRange(0, 2).Draw(t, "pod's priority")),
			Claim:    rapid.SampledFrom(append(uids, "", "none")).Draw(t, "pod's claim"),
		}
		n := s.Node("n")
		own := n.Of(who.Claim)
		if own != nil {
			who.Use = own.Claim.Use
		}
		request, allocatable, requested := drawAmount(t, "request", 6), drawAmount(t, "allocatable", 20), drawAmount(t, "requested", 6)
		allocatable.Pods, requested.Pods = rapid.Int64Range(1, 20).Draw(t, "places"), rapid.Int64Range(0, 6).Draw(t, "pods")
		question := Question{
			Who: &who, Request: &request, Allocatable: &allocatable, Requested: &requested, Taken: taken,
			Present: asking(present),
		}

		// unused is by claim.
		unused := map[types.UID]ledger.Resources{}
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				rest := h.Amount.Clone()
				for _, c := range h.Consumers {
					requests, there := present[c.UID]
					if there && h.Claim.Use == UseLast && !h.Claim.Amounts {
						rest = rest.Less(&c.Took)
					} else if there {
						uses := c.Took.Clone()
						requests.Pods = c.Took.Pods
						uses.Lower(&requests)
						rest = rest.Less(&uses)
					}
				}
				got := h.Unused(question.Present)
				require.True(t, got.Equal(&rest), "what is unused is the amount without what its pods ask for of it")
				for _, p := range taken {
					if p.Claim == h.Claim.UID {
						rest = rest.Less(&p.Took)
					}
				}
				unused[h.Claim.UID] = rest
			}
		}
		names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, gpu}
		mine := unused[who.Claim]
		// over is what is too much of a resource when the pod uses a part of its claim.
		over := func(part *ledger.Resources, name v1.ResourceName) int64 {
			kept := int64(0)
			for uid, rest := range unused {
				switch c := n.Of(uid).Claim; {
				case uid == who.Claim && !c.Amounts:
					kept += c.Slot.Amount(name)*rest.Pods - part.Amount(name)
				case uid == who.Claim:
					kept += rest.Amount(name) - part.Amount(name)
				case c.Priority >= who.Priority:
					kept += rest.Amount(name)
				}
			}
			if request.Amount(name) <= 0 || kept <= 0 {
				return 0
			}
			return request.Amount(name) + kept - (allocatable.Amount(name) - requested.Amount(name))
		}
		rule := func(part ledger.Resources) bool {
			for _, name := range names {
				if over(&part, name) > 0 {
					return false
				}
			}
			return true
		}

		got := n.Fit(&question)
		if own != nil && own.Claim.Amounts {
			// least is the smallest part with which the pod fits, of each resource by itself.
			var least ledger.Resources
			for _, name := range names {
				for over(&least, name) > 0 && least.Amount(name) < mine.Amount(name) {
					least.Put(name, least.Amount(name)+1)
				}
			}
			if !least.IsZero() {
				least.Pods = max(least.Pods, min(1, mine.Pods))
			}
			require.Equal(t, rule(least), got.Fits)
			if got.Fits {
				require.Equal(t, least, got.Takes)
			} else {
				require.NotNil(t, got.By)
				require.NotEmpty(t, got.Lacks)
			}
		} else {
			slots := int(mine.Pods)
			size := func(k int) ledger.Resources {
				if own == nil {
					return ledger.Resources{}
				}
				return own.Claim.Slots(k)
			}
			least := -1
			for k := 0; k <= slots && least < 0; k++ {
				if rule(size(k)) {
					least = k
				}
			}
			switch {
			case own != nil && who.Use == UseOnly:
				cover := Cover(&request, &own.Claim.Slot)
				fits := cover <= slots && least >= 0 && least <= cover
				require.Equal(t, fits, got.Fits)
				if fits {
					require.Equal(t, size(cover), got.Takes)
					require.True(t, rule(size(cover)))
				}
			case least < 0:
				require.False(t, got.Fits)
				require.NotNil(t, got.By)
				require.NotEmpty(t, got.Lacks)
			default:
				require.True(t, got.Fits)
				require.True(t, rule(got.Takes))
				want := least
				if own != nil && who.Use == UseFirst {
					want = max(least, min(Cover(&request, &own.Claim.Slot), slots))
				}
				require.Equal(t, size(want), got.Takes)
			}
		}

		// Kept is what the pod may not use.
		if n != nil && len(taken) == 0 {
			var want ledger.Resources
			for i := range n.Holds {
				if c := n.Holds[i].Claim; c.UID != who.Claim && c.Priority >= who.Priority {
					rest := unused[c.UID]
					want.Add(&rest, 1)
				}
			}
			kept := make([]int64, len(names))
			n.Kept(&who, question.Present, names, kept)
			for i, name := range names {
				require.Equal(t, want.Amount(name), kept[i])
			}
		}

		// Excess: what is left without it fits, and one slot, or one unit of a resource, more of the first claim that has any does not.
		excess := map[types.UID]ledger.Resources{}
		for _, e := range n.Excess(&allocatable, &requested, question.Present) {
			require.False(t, e.Amount.IsZero())
			excess[e.Claim] = e.Amount
		}
		room := allocatable.Less(&requested)
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				over := excess[h.Claim.UID]
				kept := h.Unused(question.Present)
				if !h.Claim.Amounts {
					whole := h.Claim.Slots(int(kept.Pods))
					rest := kept.Less(&whole) // it stays with the used slots, room or not
					room = room.Less(&rest)
					kept = whole
				}
				kept = kept.Less(&over)
				require.False(t, kept.Negative(&over))
				if !kept.IsZero() {
					require.Empty(t, kept.Exceeds(&room))
				}
				if more := kept.Clone(); !h.Claim.Amounts && !over.IsZero() {
					more.Add(&h.Claim.Slot, 1)
					require.NotEmpty(t, more.Exceeds(&room))
				}
				for name := range over.Named() {
					require.True(t, !h.Claim.Amounts || kept.Amount(name) >= room.Amount(name))
				}
				room.Add(&kept, -1)
			}
		}
	})
}
