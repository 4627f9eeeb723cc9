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
		present := map[types.UID]bool{}
		var taken []Taken
		for i, uid := range uids {
			c := claimOf(string(uid), Use(rapid.IntRange(0, 2).Draw(t, "use")), 1, i)
			c.Slot = drawAmount(t, "slot", 3)
			c.Priority = int32(rapid.IntRange(0, 2).Draw(t, "priority"))
			s.SetClaim(c)
			slots := rapid.IntRange(0, 3).Draw(t, "slots")
			s.Change(uid, []Change{{Node: "n", Add: slots}})
			free := slots
			for _, pod := range []types.UID{"1", "2"} {
				pod = uid + pod
				n := rapid.IntRange(0, free).Draw(t, "takes")
				if n == 0 {
					continue
				}
				free -= n
				if rapid.Bool().Draw(t, "recorded") {
					require.NoError(t, s.Take(pod, "n", uid, n, nil))
					present[pod] = rapid.Bool().Draw(t, "present")
				} else {
					taken = append(taken, Taken{Claim: uid, Pod: pod, Slots: n})
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
			Present: func(uid types.UID) bool { return present[uid] },
		}

		// unused is by claim, in slots.
		unused := map[types.UID]int{}
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				unused[h.Claim.UID] = h.Slots(question.Present)
				for _, p := range taken {
					if p.Claim == h.Claim.UID {
						unused[h.Claim.UID] -= p.Slots
					}
				}
			}
		}
		rule := func(k int) bool {
			var kept ledger.Resources
			if n != nil {
				for i := range n.Holds {
					c := n.Holds[i].Claim
					switch {
					case c.UID == who.Claim:
						kept.Add(&c.Slot, int64(unused[c.UID]-k))
					case c.Priority >= who.Priority:
						kept.Add(&c.Slot, int64(unused[c.UID]))
					}
				}
			}
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, gpu} {
				if request.Amount(name) > 0 && kept.Amount(name) > 0 && request.Amount(name)+kept.Amount(name) > allocatable.Amount(name)-requested.Amount(name) {
					return false
				}
			}
			return true
		}
		least := -1
		for k := 0; k <= unused[who.Claim] && least < 0; k++ {
			if rule(k) {
				least = k
			}
		}

		got := n.Fit(&question)
		switch {
		case own != nil && who.Use == UseOnly:
			cover := Cover(&request, &own.Claim.Slot)
			fits := cover <= unused[who.Claim] && least >= 0 && least <= cover
			require.Equal(t, fits, got.Fits)
			if fits {
				require.Equal(t, cover, got.Slots)
				require.True(t, rule(cover))
			}
		case least < 0:
			require.False(t, got.Fits)
			require.NotNil(t, got.By)
			require.NotEmpty(t, got.Lacks)
		default:
			require.True(t, got.Fits)
			require.True(t, rule(got.Slots))
			want := least
			if own != nil && who.Use == UseFirst {
				want = max(least, min(Cover(&request, &own.Claim.Slot), unused[who.Claim]))
			}
			require.Equal(t, want, got.Slots)
		}

		// Kept is what the pod may not use.
		if n != nil && len(taken) == 0 {
			var want ledger.Resources
			for i := range n.Holds {
				if c := n.Holds[i].Claim; c.UID != who.Claim && c.Priority >= who.Priority {
					want.Add(&c.Slot, int64(unused[c.UID]))
				}
			}
			names := []v1.ResourceName{v1.ResourceCPU, v1.ResourcePods, gpu}
			kept := make([]int64, len(names))
			n.Kept(&who, question.Present, names, kept)
			for i, name := range names {
				require.Equal(t, want.Amount(name), kept[i])
			}
		}

		// Excess: what is left without it fits, and one slot more of the first claim that has any does not.
		excess := map[types.UID]int{}
		for _, e := range n.Excess(&allocatable, &requested, question.Present) {
			excess[e.Claim] += e.Slots
		}
		room := allocatable.Clone()
		room.Add(&requested, -1)
		if n != nil {
			for i := range n.Holds {
				h := &n.Holds[i]
				slots := int64(h.Slots(question.Present) - excess[h.Claim.UID])
				require.GreaterOrEqual(t, slots, int64(0))
				kept := times(&h.Claim.Slot, int(slots))
				if slots > 0 {
					require.Empty(t, kept.Exceeds(&room))
				}
				if excess[h.Claim.UID] > 0 {
					more := times(&h.Claim.Slot, int(slots)+1)
					require.NotEmpty(t, more.Exceeds(&room))
				}
				room.Add(&kept, -1)
			}
		}
	})
}
