package floor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// TestOneClaim: whatever comes and goes, a claim that may be in one zone has as many slots as it wants, or as many as
// fit; no pod of others lowers that; and one that is derived from nothing has the same.
func TestOneClaim(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 8, 1)
		c := drawClaim(t, "c", 1)
		w.apply(c)
		for range rapid.IntRange(20, 80).Draw(t, "steps") {
			before, stranger := held(w.floor, c.UID)["a"], false
			if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
				w.leave(rapid.IntRange(0, 7).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			} else {
				p := drawPod(t)
				if stranger = rapid.Bool().Draw(t, "stranger"); !stranger {
					p = pod{request: c.Slot, own: c.UID}
				}
				w.place(drawOrder(t, 8), p)
			}
			now := held(w.floor, c.UID)["a"]
			require.Equal(t, min(c.Zones["a"], w.most("a", &c)), now, "as many slots as are wanted, or as fit")
			require.Equal(t, now, held(w.build(nil), c.UID)["a"], "a new floor derives the same")
			if stranger {
				require.Equal(t, before, now, "no pod of others lowers a floor")
			}
		}
	})
}

// TestSlotsShift: a claim over several zones has as many slots in all as it wants, or as fit in all of its zones, and
// those at home that have room there.
func TestSlotsShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 9, 3)
		c := drawClaim(t, "c", 3)
		w.apply(c)
		for range rapid.IntRange(20, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
				w.leave(rapid.IntRange(0, 8).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			} else {
				w.place(drawOrder(t, 9), drawPod(t))
			}
			wanted, fit, have := 0, 0, 0
			now := held(w.floor, c.UID)
			for zone, n := range c.Zones {
				wanted, fit, have = wanted+n, fit+w.most(zone, &c), have+now[zone]
				require.GreaterOrEqual(t, now[zone], min(n, w.most(zone, &c)), "home comes first, in zone %s: %v", zone, now)
			}
			require.Equal(t, min(wanted, fit), have, "%v", now)
		}
	})
}

// TestFraction: a fraction of each zone is filled, and no more, whatever comes and goes: room that is free only later
// is a slot's as well, and a zone whose last node goes begins again when one returns.
func TestFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 5
		w := newLimitedWorld(t, nodes, 2, rapid.Float64Range(0.1, 0.9).Draw(t, "fraction"))
		c := drawClaim(t, "c", 2)
		w.apply(c)
		for range rapid.IntRange(20, 80).Draw(t, "steps") {
			before := held(w.floor, c.UID)
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				w.toggle(rapid.IntRange(0, nodes-1).Draw(t, "toggled"))
			case 1:
				w.leave(rapid.IntRange(0, nodes-1).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			default:
				w.place(drawOrder(t, nodes), drawPod(t))
			}
			wanted, fit, have := 0, 0, 0
			now := held(w.floor, c.UID)
			for zone, n := range c.Zones {
				most := min(w.most(zone, &c), w.allowed(zone, &c))
				wanted, fit, have = wanted+n, fit+most, have+now[zone]
				require.GreaterOrEqual(t, now[zone], min(n, most), "what is allowed is held in zone %s", zone)
				require.LessOrEqual(t, now[zone], max(before[zone], w.allowed(zone, &c)), "no slot is added beyond the fraction of zone %s", zone)
			}
			require.GreaterOrEqual(t, have, min(wanted, fit), "what one zone has no room for is held in the other: %v", now)
		}
	})
}

// TestNoneIsShortBesideRoom: of several claims of several modes none lacks slots while a node of its zones has room for
// one and the fraction allows it, also where owners of a Guarantee take up what the fraction counted as held, and where
// an edit of one leaves others more of the fraction.
func TestNoneIsShortBesideRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 4
		w := newLimitedWorld(t, nodes, 2, rapid.Float64Range(0.1, 1).Draw(t, "fraction"))
		var claims []floor.Claim
		for i := range 3 {
			c := drawClaim(t, fmt.Sprint("c", i), 2)
			c.PerNode, c.Inclusive = 0, rapid.Bool().Draw(t, "inclusive")
			claims = append(claims, c)
		}
		w.apply(claims...)
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				i := rapid.IntRange(0, len(claims)-1).Draw(t, "edited")
				inclusive := rapid.Bool().Draw(t, "now inclusive")
				claims = slices.Clone(claims)
				claims[i].Zones, claims[i].Inclusive = drawClaim(t, "now", 2).Zones, inclusive
				w.apply(claims...)
			case 1, 2:
				w.leave(rapid.IntRange(0, nodes-1).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			default:
				p := drawPod(t)
				if i := rapid.IntRange(0, 4).Draw(t, "owner"); i < len(claims) {
					p.own = claims[i].UID
					if rapid.Bool().Draw(t, "whole slot") {
						p.request = claims[i].Slot
					}
				}
				w.place(drawOrder(t, nodes), p)
			}
			for i := range claims {
				c := &claims[i]
				r, _ := w.floor.Report(c.UID)
				if r.Held >= r.Desired {
					continue
				}
				for zone := range c.Zones {
					require.Empty(t, w.roomFor(zone, c), "%s holds %d of %d slots", c.Name, r.Held, r.Desired)
				}
			}
		}
	})
}

// TestEditUpToTheFraction: slots of another size take the place of those that were there until the fraction allows no
// more.
func TestEditUpToTheFraction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newLimitedWorld(t, 4, 2, rapid.Float64Range(0.1, 1).Draw(t, "fraction"))
		var c floor.Claim
		for range 2 {
			c = drawClaim(t, "c", 2)
			c.PerNode = 0
			w.apply(c)
		}
		if r, _ := w.floor.Report(c.UID); r.Held < r.Desired {
			for zone := range c.Zones {
				require.Empty(t, w.roomFor(zone, &c), "holds %d of %d slots", r.Held, r.Desired)
			}
		}
	})
}

// TestNoneTakesWhatAnotherHas: a pod takes no slot that it may not use, of whichever claim it is an owner, whichever it
// outranks, and also where claims of several modes share nodes without any other room.
func TestNoneTakesWhatAnotherHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 4
		w := newWorld(t, nodes, 2)
		var claims []floor.Claim
		for i := range 3 {
			c := drawClaim(t, fmt.Sprint("c", i), 2)
			c.Inclusive, c.Priority = rapid.Bool().Draw(t, "inclusive"), rapid.Int32Range(0, 2).Draw(t, "priority")
			claims = append(claims, c)
		}
		w.apply(claims...)
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
				w.leave(rapid.IntRange(0, nodes-1).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
				continue
			}
			p := drawPod(t)
			p.priority = rapid.Int32Range(0, 2).Draw(t, "priority of the pod")
			if i := rapid.IntRange(0, 4).Draw(t, "owner"); i < len(claims) {
				p.own = claims[i].UID
			}
			before := map[types.UID]int{}
			for i := range claims {
				r, _ := w.floor.Report(claims[i].UID)
				before[claims[i].UID] = r.Held
			}
			w.place(drawOrder(t, nodes), p)
			for i := range claims {
				if uid := claims[i].UID; uid != p.own && claims[i].Priority >= p.priority {
					r, _ := w.floor.Report(uid)
					require.GreaterOrEqual(t, r.Held, before[uid], "%s after a pod of %q and priority %d", uid, p.own, p.priority)
				}
			}
		}
	})
}

// TestRestart: a floor that begins with what the status of the one before said has no slot less, for any of several
// claims of several sizes and modes in a crowded cluster, also where pods have been nominated to its nodes since.
func TestRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 12, 3)
		var claims []floor.Claim
		for i := range 4 {
			c := drawClaim(t, fmt.Sprint("c", i), 3)
			c.Inclusive = rapid.Bool().Draw(t, "inclusive")
			claims = append(claims, c)
		}
		w.apply(claims...)
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1:
				w.leave(rapid.IntRange(0, 11).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			case 2:
				request := ledger.Resources{}
				if rapid.Bool().Draw(t, "nominated") {
					request = drawPod(t).request
				}
				w.nominate(rapid.IntRange(0, 11).Draw(t, "node"), request)
			default:
				p := drawPod(t)
				if i := rapid.IntRange(0, 7).Draw(t, "owner"); i < len(claims) {
					p.own = claims[i].UID
				}
				w.place(drawOrder(t, 12), p)
			}
		}
		after := w.build(w.seeds())
		for _, c := range claims {
			old, derived := held(w.floor, c.UID), held(after, c.UID)
			sum := func(counts map[string]int) (n int) {
				for _, k := range counts {
					n += k
				}
				return n
			}
			require.GreaterOrEqual(t, sum(derived), sum(old), "claim %s had %v, and has %v", c.UID, old, derived)
		}
	})
}

// TestEdit: while an edit of any field has no room for its target, what was held is kept: no pod of others comes to
// have room that it did not have before, unless fewer slots are wanted.
func TestEdit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 6, 2)
		c := drawClaim(t, "c", 2)
		c.PerNode = 0
		c.Inclusive = rapid.Bool().Draw(t, "inclusive")
		w.apply(c)
		field := rapid.SampledFrom([]string{"slot", "selector", "zones", "per node"}).Draw(t, "edit")
		for range 12 {
			if c.Inclusive && field == "zones" {
				break // owners in the zone that stays would count there
			}
			w.place(drawOrder(t, 6), pod{request: c.Slot, own: c.UID})
		}
		one := pod{request: size(1000, 1)}
		fill := func() (n int) {
			for w.place([]int{0, 1, 2, 3, 4, 5}, one) {
				n++
			}
			return n
		}
		fill()
		edited := c
		switch field {
		case "slot":
			edited.Slot = size(c.Slot.MilliCPU+rapid.Int64Range(100, 2000).Draw(t, "more"), c.Slot.Memory>>30)
		case "selector":
			edited.Nodes = floor.NewNodeRequirements(map[string]string{"pool": "0"}, nil, false)
		case "zones":
			edited.Zones = map[string]int{"a": c.Zones["a"] + c.Zones["b"]}
		case "per node":
			edited.PerNode = 1
		}
		w.apply(edited)
		require.Zero(t, fill(), "an edit opens room to others before its target has room: %+v", edited)

		// Owners that leave come back.
		for i := range w.pods {
			for k, p := range w.pods[i] {
				if p.own != "" && c.Inclusive && c.Zones[zoneName(i%2)] >= 12 {
					w.leave(i, k)
					require.Zero(t, fill(), "others get what an owner has left")
					require.True(t, w.place([]int{0, 1, 2, 3, 4, 5}, p), "an owner of a guarantee comes back")
					return
				}
			}
		}
	})
}

// TestEditOfSlotsAwayFromHome: fewer slots for each node open nothing on a node of another zone, where an owner runs
// beside the slot that is held there meanwhile.
func TestEditOfSlotsAwayFromHome(t *testing.T) {
	w := newWorld(t, 6, 2)
	c := floor.Claim{UID: "c", Name: "c", Nodes: anyNode, Slot: size(5000, 1), Zones: map[string]int{"a": 0, "b": 10}, Inclusive: true}
	w.apply(c)
	owner, other := pod{request: c.Slot, own: c.UID}, pod{request: size(1000, 1)}
	for range 11 {
		w.place([]int{0, 1, 2, 3, 4, 5}, owner)
	}
	w.place([]int{4}, owner)
	for w.place([]int{0, 1, 2, 3, 4, 5}, other) {
	}
	c.PerNode = 1
	w.apply(c)
	require.False(t, w.place([]int{0, 1, 2, 3, 4, 5}, other), "what was held is kept until the target has room")
}

// TestMixedOwners: owners of several sizes that run in slots leave these as large as they were, also while others take
// all room that is not held.
func TestMixedOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3, 1)
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		c := floor.Claim{UID: "c", Name: "c", Nodes: anyNode, Inclusive: true, Required: true, Slot: size(4000, 4), Zones: map[string]int{"a": slots}}
		w.apply(c)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				w.leave(rapid.IntRange(0, 2).Draw(t, "node"), rapid.IntRange(0, 9).Draw(t, "pod"))
			case 1:
				w.place(drawOrder(t, 3), drawPod(t))
			default:
				w.place(drawOrder(t, 3), pod{request: size(rapid.Int64Range(1, 4).Draw(t, "owner")*1000, 1), own: types.UID("c")})
			}
			for i := range w.nodes {
				n := w.node(i)
				free := n.Allocatable.Minus(&n.Requested)
				require.False(t, free.Negative(&n.Allocatable))
			}
		}
		for i := range w.pods { // all owners leave
			for k := 0; k < len(w.pods[i]); {
				if w.pods[i][k].own == "" {
					k++
					continue
				}
				w.leave(i, k)
			}
		}
		require.Equal(t, slots, held(w.floor, "c")["a"], "owners leave the slots as large as they were")
	})
}

// TestNominations: no slot is placed in the room of a nominated pod, and none is given up for it, since the victims
// whose room it is to have may be there still.
func TestNominations(t *testing.T) {
	w := newWorld(t, 1, 1)
	c := floor.Claim{UID: "c", Name: "c", Nodes: anyNode, Slot: size(4000, 1), Zones: map[string]int{"a": 2}}
	w.pods[0] = []pod{{request: size(8000, 1)}}
	w.apply(c)
	w.update(0)
	require.Equal(t, 2, held(w.floor, "c")["a"])
	nominate := func(amount int64) {
		n := w.node(0)
		n.Nominated = size(amount, 1)
		w.floor.Update(n)
		w.floor.Settle()
	}
	nominate(8000)
	require.Equal(t, 2, held(w.floor, "c")["a"], "no slot is given up for a nomination")
	c.Zones = map[string]int{"a": 3}
	w.pods[0] = nil // the victim has left
	w.apply(c)
	nominate(8000)
	require.Equal(t, 2, held(w.floor, "c")["a"], "the room is the nominated pod's")
	nominate(4000)
	require.Equal(t, 3, held(w.floor, "c")["a"])
}
