package gang_test

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// Plans, in a world where room is counted in pods: a slot is room for one, held from the plan on.

// unused is how many slots are held that no pod has taken, those of one pod left out.
func (w *world) unused(but types.UID) (n int) {
	for _, g := range w.gangs {
		for uid := range g.Slots() {
			p := w.pods[uid]
			if uid != but && !p.holds() && p.place != binding && p.place != failing && !p.bound {
				n++
			}
		}
	}
	return n
}

// place asks where the pod in the cycle may go, and makes the plan if there is none. It reports whether the
// cycle goes on.
func (w *world) place(p *pod) bool {
	g := w.gang(p.gang)
	where, slot := g.Place(p.uid, w.now)
	if where == gang.PlacePlan {
		w.plan(p.gang)
		where, slot = g.Place(p.uid, w.now)
		if where == gang.PlacePlan && g.Phase() != gang.Backoff {
			w.check.Fatalf("%s asks for a plan again", p.uid)
		}
	}
	p.pinned = where == gang.PlacePinned
	if p.pinned && slot.Ordered {
		for uid, other := range g.Slots() {
			if other.Class == slot.Class && other.Seq < slot.Seq && w.pods[uid].place <= entered && !w.pods[uid].bound {
				w.check.Fatalf("%s takes slot %d, and slot %d of %s is free", p.uid, slot.Seq, other.Seq, uid)
			}
		}
	}
	return p.pinned || where == gang.PlaceAnywhere
}

// plan plans a gang, all or nothing.
func (w *world) plan(name string) {
	g := w.gang(name)
	members, need := g.Missing()
	slices.Sort(members)
	others := w.unused("")
	for uid := range g.Slots() {
		if p := w.pods[uid]; slices.Contains(members, uid) && !p.holds() && p.place != binding && p.place != failing && !p.bound {
			others-- // its own, which the new plan replaces
		}
	}
	room := max(0, min(len(members), w.capacity-w.used()-others))
	if room < need {
		g.NoPlan(members[0], fmt.Sprintf("needs %d, plan found %d", need, room), w.now)
		if g.Phase() == gang.Gathering || g.Phase() == gang.Waiting || len(g.Slots()) > 0 {
			w.check.Fatalf("gang %s is in %s with %d slots, and has no plan", name, g.Phase(), len(g.Slots()))
		}
		return
	}
	slots := map[types.UID]gang.Slot{}
	for i, uid := range members[:room] {
		slots[uid] = gang.Slot{Node: fmt.Sprint(i), Class: i % 2, Seq: i, Ordered: w.ordered}
	}
	if !g.SetPlan(slots, w.now) {
		w.check.Fatalf("gang %s does not take a plan for %d of %d", name, room, need)
	}
	if held := w.used() + w.unused(""); held > w.capacity {
		w.check.Fatalf("gang %s holds slots: %d are taken or held in room for %d", name, held, w.capacity)
	}
}

// verifySlots checks that nobody holds slots who has no use for them.
func (w *world) verifySlots(name string, g *gang.Gang) {
	slots := g.Slots()
	if phase := g.Phase(); len(slots) > 0 && (phase == gang.Backoff || phase == gang.Pending || phase == gang.Whole) {
		w.check.Fatalf("gang %s is in %s, and holds %d slots", name, phase, len(slots))
	}
	for uid := range slots {
		if p := w.pods[uid]; !p.toldLive || p.toldBound {
			w.check.Fatalf("a slot is held for %s, which is gone or bound", uid)
		}
	}
}
