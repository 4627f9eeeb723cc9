package floor_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// said is what a floor says of all claims and nodes.
func said(w *world) (text string) {
	for i := range w.claims {
		r, _ := w.floor.Report(w.claims[i].UID)
		text += fmt.Sprintf("%+v %+v %+v\n", r.Counts, r.Zones, r.Kept)
	}
	return text + fmt.Sprintf("%v %v", w.floor.HeldOn(), w.floor.Held())
}

// TestClone: to a copy of a floor the same happens as to the floor itself, whatever comes next, and the floor does not
// change with it.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const nodes = 4
		w := newLimitedWorld(t, nodes, 2, rapid.Float64Range(0.1, 1).Draw(t, "fraction"))
		draw := func() (claims []floor.Claim) {
			for i := range rapid.IntRange(1, 3).Draw(t, "claims") {
				c := drawClaim(t, fmt.Sprint("c", i), 2)
				c.Inclusive = rapid.Bool().Draw(t, "inclusive")
				if rapid.Bool().Draw(t, "any zone") {
					c.Zones, c.Slots = nil, 3
				}
				claims = append(claims, c)
			}
			return claims
		}
		w.apply(draw()...)
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			var step func(w *world)
			node := rapid.IntRange(0, nodes-1).Draw(t, "node")
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				claims := draw()
				step = func(w *world) { w.apply(claims...) }
			case 1:
				step = func(w *world) { w.toggle(node) }
			case 2:
				request := drawPod(t).request
				step = func(w *world) { w.nominate(node, request) }
			case 3, 4:
				k := rapid.IntRange(0, 9).Draw(t, "pod")
				step = func(w *world) { w.leave(node, k) }
			default:
				p, order := drawPod(t), drawOrder(t, nodes)
				if i := rapid.IntRange(0, 4).Draw(t, "owner"); i < len(w.claims) {
					p.own = w.claims[i].UID
				}
				step = func(w *world) { w.place(order, p) }
			}
			twin := *w
			twin.floor, twin.absent, twin.nominated = w.floor.Clone(), maps.Clone(w.absent), maps.Clone(w.nominated)
			twin.pods = make([][]pod, nodes)
			for i := range w.pods {
				twin.pods[i] = slices.Clone(w.pods[i])
			}
			before := said(w)
			step(&twin)
			require.Equal(t, before, said(w), "the floor itself does not change")
			step(w)
			require.Equal(t, said(w), said(&twin))
		}
	})
}

// TestRemoveOthers leaves the nodes of some names.
func TestRemoveOthers(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.apply(floor.Claim{UID: "c", Name: "c", Slot: size(16000, 1), Nodes: anyNode, Zones: map[string]int{"a": 3}})
	w.floor.RemoveOthers(map[string]bool{"n01": true, "n07": true})
	require.Equal(t, map[string]ledger.Resources{"n01": size(16000, 1)}, w.floor.HeldOn())
}
