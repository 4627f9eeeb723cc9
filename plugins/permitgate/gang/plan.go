package gang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// MaxReplans bounds how often a round's plan is made anew because a planned node was refused.
const MaxReplans = 10

// Slot is the place that a plan has for one member.
type Slot struct {
	Node string
	// Class numbers the members that may change places with each other.
	Class int
	// Seq is the place in the order in which the plan was made. Ordered tells that the slot may be refused
	// as long as those before it are free.
	Seq     int
	Ordered bool
}

// Placement is where a member may go.
type Placement uint8

// The answers of [Gang.Place].
const (
	// PlaceAnywhere: wherever it fits, like any pod.
	PlaceAnywhere Placement = iota
	// PlacePinned: to the node of its slot only.
	PlacePinned
	// PlacePlan: a plan has to be made first.
	PlacePlan
	// PlaceNowhere: the plan is complete without it, and it waits until the quorum is in.
	PlaceNowhere
)

// planning is what a gang knows of its plan. The slots are the members'.
type planning struct {
	// stale is true when the plan has to be made anew around the members that have a node.
	stale   bool
	replans int // in this round
	// slots is how many members have a slot, idle how many of them are in the state memberIdle.
	slots, idle int
	// changes counts changes of the slots.
	changes int
	// collects is true while the gang keeps the room that it finds.
	collects bool
	// scouts is true while members are woken one by one until one makes a plan; scout spaces that.
	scouts bool
	scout  retry
}

// mayHaveSlot reports whether a member in this state needs its slot.
func (s memberState) mayHaveSlot() bool {
	switch s {
	case memberIdle, memberWaiting, memberReleased, memberPrepared, memberCommitted:
		return true
	case memberHeld, memberFailed, memberBound, memberDone, memberGone, memberStates:
	}
	return false
}

func (g *Gang) setSlot(m *member, slot *Slot) {
	if m.slot == nil && slot == nil {
		return
	}
	g.planning.changes++
	count := func(by int) {
		if m.slot == nil {
			return
		}
		g.planning.slots += by
		if m.state == memberIdle {
			g.planning.idle += by
		}
	}
	count(-1)
	m.slot = slot
	count(1)
}

// lacking is how many members the quorum lacks that have a node.
func (g *Gang) lacking() int { return g.MinMember() - g.letGo() - g.count[memberWaiting] }

// needsPlan reports whether the quorum lacks members that have neither a node nor a slot that still stands.
func (g *Gang) needsPlan() bool {
	return g.lacking() > 0 && (g.planning.stale || g.lacking() > g.planning.idle)
}

// scouting reports whether a plan has to be made before members other than the first one can go on.
func (g *Gang) scouting() bool {
	return g.config.Planned && (g.phase == Gathering || g.phase == Waiting) && !g.lacksOnlyOne() && g.needsPlan()
}

// Place says where a member may go that is in a scheduling cycle: it follows an Enter that let it in. For
// PlacePinned it returns the member's slot. Slots that have to be taken in their order are taken so, in that
// members of one class change places.
func (g *Gang) Place(uid types.UID, now time.Time) (Placement, Slot) {
	g.settle(now)
	m, known := g.members[uid]
	if !known || !g.config.Planned {
		return PlaceAnywhere, Slot{}
	}
	switch {
	case m.slot != nil && (!g.planning.stale || !g.scouting()):
		g.inOrder(m)
		return PlacePinned, *m.slot
	case g.phase != Gathering && g.phase != Waiting, g.lacksOnlyOne():
		// The quorum does not depend on others, or not on this member.
		return PlaceAnywhere, Slot{}
	case g.needsPlan():
		// Nobody else is woken while this one makes it, unless that takes too long.
		g.planning.scout.at = now.Add(retryMax)
		return PlacePlan, Slot{}
	}
	return PlaceNowhere, Slot{}
}

// inOrder gives a member the first free slot of its class if the order matters.
func (g *Gang) inOrder(m *member) {
	if !m.slot.Ordered {
		return
	}
	var first *member
	for _, other := range g.members {
		if other.state == memberIdle && other.slot != nil && other.slot.Class == m.slot.Class &&
			other.slot.Seq < m.slot.Seq && (first == nil || other.slot.Seq < first.slot.Seq) {
			first = other
		}
	}
	if first != nil {
		m.slot, first.slot = first.slot, m.slot
		g.planning.changes++
	}
}

// Missing returns the members to make a plan for, in no particular order, and how many of them it must
// place.
func (g *Gang) Missing() (members []types.UID, need int) {
	return g.inState(memberIdle), g.lacking()
}

// PlannedInVain says why a gang fails that was planned so many times; detail is the last refusal of a planned node.
func PlannedInVain(times int, detail string) string {
	return fmt.Sprintf("planned %d times: %s", times, detail)
}

// SetPlan gives the members their slots. It reports false, and changes nothing, when the plan does not
// suit the gang any more: it has changed since Missing was asked. Members that have a node keep the slot
// that they have; the others that are not in the plan lose theirs.
func (g *Gang) SetPlan(slots map[types.UID]Slot, now time.Time) bool {
	g.settle(now)
	if g.phase != Gathering && g.phase != Waiting {
		return false
	}
	_, need := g.Missing()
	found := 0
	for uid := range slots {
		if m, known := g.members[uid]; known && m.state == memberIdle {
			found++
		}
	}
	if found < need || found == 0 {
		g.planning.scout.start(now)
		return false
	}
	g.planning.stale = false
	for uid, m := range g.members {
		if m.state != memberIdle {
			continue
		}
		g.setSlot(m, nil)
		if slot, ok := slots[uid]; ok {
			g.setSlot(m, &slot)
			g.want(m, now)
		} else {
			m.wanted = false
		}
	}
	if g.count[memberWaiting] == 0 {
		g.deadline = now.Add(g.timeout())
	}
	g.settle(now)
	return true
}

// NoPlan says that there is no plan: the gang is rolled back. member is one that found no node, and may be
// empty.
func (g *Gang) NoPlan(member types.UID, detail string, now time.Time) {
	g.settle(now)
	if g.phase == Gathering || g.phase == Waiting {
		g.rollback(Rollback{Cause: CauseNoPlan, Member: member, Detail: detail}, true, now)
	}
	g.settle(now)
}

// Replan says that a member was refused the node of its slot, by something that the plan does not know: the plan
// is to be made anew. It reports false when that has happened too often in this round; the gang has then
// failed for this member, as after Unschedulable.
func (g *Gang) Replan(uid types.UID, detail string, now time.Time) bool {
	g.settle(now)
	m, known := g.members[uid]
	if !known || m.slot == nil || m.state != memberIdle {
		return true // something else has happened since
	}
	m.sentBack = true
	if g.phase != Gathering && g.phase != Waiting {
		// The quorum does not depend on it: it goes its own way.
		g.setSlot(m, nil)
		g.want(m, now)
		return true
	}
	if g.planning.replans >= MaxReplans {
		g.move(m, memberFailed)
		g.fail(CauseUnschedulable, uid, PlannedInVain(g.planning.replans+1, detail), now)
		return false
	}
	g.planning.replans++
	g.planning.stale = true
	g.wantIdle(now)
	g.settle(now)
	return true
}

// Again says that a member was refused the node of its slot as long as slots before it are free.
// It reports false, and does nothing, when there are none.
func (g *Gang) Again(uid types.UID, now time.Time) bool {
	g.settle(now)
	m, known := g.members[uid]
	if !known || m.slot == nil || m.state != memberIdle || !m.slot.Ordered {
		return false
	}
	for _, other := range g.members {
		if other != m && other.state == memberIdle && other.slot != nil && other.slot.Seq < m.slot.Seq {
			m.sentBack, m.wanted = true, true
			return true
		}
	}
	return false
}

// Replanned reports whether the round's plan has been made anew.
func (g *Gang) Replanned() bool { return g.planning.replans > 0 }

// SlotChanges counts the changes of the slots.
func (g *Gang) SlotChanges() int { return g.planning.changes }

// Slots returns the slots of the members that are not bound yet; nil when there is no plan.
func (g *Gang) Slots() map[types.UID]Slot {
	var slots map[types.UID]Slot
	for uid, m := range g.members {
		if m.slot != nil {
			if slots == nil {
				slots = make(map[types.UID]Slot, len(g.members))
			}
			slots[uid] = *m.slot
		}
	}
	return slots
}

// Pinned returns the node of a member's slot, empty when it has none.
func (g *Gang) Pinned(uid types.UID) string {
	if m, known := g.members[uid]; known && m.slot != nil {
		return m.slot.Node
	}
	return ""
}

// settlePlan drops the plan when it has been carried out or cannot be, and has somebody make one when the
// quorum lacks it.
func (g *Gang) settlePlan(now time.Time) {
	switch g.phase {
	case Pending, Backoff, Whole:
		g.planning.stale, g.planning.replans = false, 0
		if g.planning.slots == 0 {
			break
		}
		for _, m := range g.members {
			g.setSlot(m, nil)
		}
	case Gathering, Waiting, Releasing:
	}
	scouts := g.scouting()
	if scouts && !g.planning.scouts {
		g.planning.scout.start(now)
		g.wantIdle(now)
	}
	g.planning.scouts = scouts
}

// Scouting reports whether a plan has to be made, for which one member is woken at a time: the others would only be refused if
// there is none.
func (g *Gang) Scouting() bool { return g.scouting() }

// pickScout returns the member to be moved to the active queue so that its cycle makes the plan: of those
// that are wanted the one that was least often.
func (g *Gang) pickScout() (types.UID, *member) {
	var wanted []types.UID
	for uid, m := range g.members {
		if m.wanted && m.state == memberIdle {
			wanted = append(wanted, uid)
		}
	}
	if len(wanted) == 0 {
		return "", nil
	}
	uid := slices.MinFunc(wanted, func(a, b types.UID) int {
		if d := g.members[a].wake.tries - g.members[b].wake.tries; d != 0 {
			return d
		}
		return strings.Compare(string(a), string(b))
	})
	return uid, g.members[uid]
}

// Timeout returns how long the first waiting member waits for the quorum.
func (g *Gang) Timeout() time.Duration { return g.timeout() }
