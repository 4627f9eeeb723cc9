package permitgate

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/proposal"
)

// A booking is a node that is kept for a member: for its round, for a preemption, or because its gang collects room. Once the
// framework knows the booking as a nomination, it keeps that room from pods of the same or a lower priority. A nomination
// costs a clone of the node in its filters. It would also count for the other members of the gang, but only on its own node,
// which makes spread constraints wrong. So nominations are placed when a cycle of another pod begins, and lifted from the
// nodes that a member of the same gang is tried on. A gang whose members come one after the other needs none.

// bookingKind says what a booking is for, which decides when it ends.
type bookingKind uint8

const (
	bookedForRound     bookingKind = iota // ends with the round
	bookedForBind                         // of a member whose bind has failed; ends with its next attempt
	bookedByVictims                       // of a gang that preempts; ends with the preemption
	bookedByCollecting                    // of a gang that collects room
	bookingKinds
)

// freshInterval is how long after a member has lost its node, or a nomination of it in the API has changed, the framework may
// still clear its nomination.
const freshInterval = time.Second

// booking is a node that is kept for a member.
type booking struct {
	pod     *v1.Pod
	amounts []proposal.Amount // what the pod takes
	node    string
	kind    bookingKind
	// placed is true if the framework knows the nomination. Until fresh the nomination is placed in every cycle; shown is true once
	// a cycle has.
	placed, shown bool
	fresh         time.Time
}

// nominated reports whether the framework may know the nomination.
func (b *booking) nominated() bool { return b.placed || !b.fresh.IsZero() }

// bookingCounts is how many bookings of all gangs the framework knows as nominations, how many it does not, and how many it may
// have forgotten.
type bookingCounts struct{ placed, unplaced, fresh atomic.Int64 }

// books are the bookings of one gang.
type books struct {
	counts   *bookingCounts // of all gangs
	of       map[types.UID]*booking
	byNode   map[string]map[types.UID]struct{}
	unplaced map[types.UID]struct{}
	kinds    [bookingKinds]int // how many there are of each
	// dropped are pods whose bookings have ended but that the framework may still know as nominated. freed are the nodes of
	// bookings that ended without their members, for which others may wait.
	dropped []*v1.Pod
	freed   []string
	hints   hints
}

// hints are the part of a round's proposal that is not in bookings.
type hints struct {
	round int
	// rings are the nodes that members of a class may be tried on; a member's class and ring are its place in them.
	rings   [][]string
	members map[types.UID]hint
}

type hint struct{ class, ring int }

// alternates is how many nodes a member is tried on besides its proposed one.
const alternates = 15

func newBooks(counts *bookingCounts) books {
	return books{counts: counts, of: map[types.UID]*booking{}, byNode: map[string]map[types.UID]struct{}{}, unplaced: map[types.UID]struct{}{}}
}

// nodesFor returns the nodes to try a member on; none if no node is proposed for it.
func (b *books) nodesFor(uid types.UID) []string {
	one := b.of[uid]
	if one == nil || one.kind != bookedForRound {
		return nil
	}
	nodes := []string{one.node}
	h, known := b.hints.members[uid]
	if !known || h.class >= len(b.hints.rings) {
		return nodes
	}
	ring := b.hints.rings[h.class]
	for i := 1; i < len(ring) && len(nodes) <= alternates; i++ {
		if node := ring[(h.ring+i)%len(ring)]; node != one.node {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// book books a node for a member, and replaces its earlier booking.
func (b *books) book(uid types.UID, one booking) {
	b.end(uid, false)
	b.of[uid] = &one
	b.count(&one, 1)
	if b.byNode[one.node] == nil {
		b.byNode[one.node] = map[types.UID]struct{}{}
	}
	b.byNode[one.node][uid] = struct{}{}
	b.unplaced[uid] = struct{}{}
	b.counts.unplaced.Add(1)
}

// end ends a member's booking, if it has one; taken is true if the member has been placed on the node.
func (b *books) end(uid types.UID, taken bool) {
	one := b.of[uid]
	if one == nil {
		return
	}
	if one.nominated() {
		b.dropped = append(b.dropped, one.pod)
		b.setPlaced(uid, false)
	}
	delete(b.unplaced, uid)
	b.counts.unplaced.Add(-1)
	delete(b.of, uid)
	b.count(one, -1)
	if delete(b.byNode[one.node], uid); len(b.byNode[one.node]) == 0 {
		delete(b.byNode, one.node)
	}
	if !taken {
		b.freed = append(b.freed, one.node)
	}
}

func (b *books) count(one *booking, by int) {
	b.kinds[one.kind] += by
	if !one.fresh.IsZero() {
		b.counts.fresh.Add(int64(by))
	}
}

// setPlaced notes whether the framework knows a member's booking, if it has one.
func (b *books) setPlaced(uid types.UID, placed bool) {
	one := b.of[uid]
	switch {
	case one == nil || one.placed == placed:
		return
	case placed:
		delete(b.unplaced, uid)
		b.counts.unplaced.Add(-1)
		b.counts.placed.Add(1)
	default:
		b.unplaced[uid] = struct{}{}
		b.counts.unplaced.Add(1)
		b.counts.placed.Add(-1)
	}
	one.placed = placed
}

// forgotten notes that the framework has forgotten a member's booking, if it has one, or will before until.
func (b *books) forgotten(uid types.UID, until time.Time) {
	one := b.of[uid]
	if one == nil {
		return
	}
	b.setPlaced(uid, false)
	b.count(one, -1)
	one.fresh, one.shown = until, false
	b.count(one, 1)
}

// endAll ends the bookings of a kind.
func (b *books) endAll(kind bookingKind) {
	if b.kinds[kind] == 0 {
		return
	}
	for uid, one := range b.of {
		if one.kind == kind {
			b.end(uid, false)
		}
	}
}

// cycled ends the booking of a member whose cycle has ended, with or without a node: the framework has cleared the
// nomination.
func (b *books) cycled(uid types.UID, taken bool) {
	b.forgotten(uid, time.Time{})
	b.end(uid, taken)
}

// reserved records where a member went. Its own booking ends; a member of its class that was booked on that node gets the
// booking instead.
func (b *books) reserved(uid types.UID, node string) {
	one, mine := b.of[uid], b.hints.members[uid]
	if one == nil {
		return
	}
	if one.kind == bookedForRound && one.node != node {
		for _, other := range slices.Sorted(maps.Keys(b.byNode[node])) {
			if o, its := b.of[other], b.hints.members[other]; o.kind == bookedForRound && its.class == mine.class {
				b.hints.members[other] = mine
				b.book(other, booking{pod: o.pod, amounts: o.amounts, node: one.node, kind: bookedForRound})
				break
			}
		}
	}
	b.cycled(uid, one.node == node)
}

// lift notes that the framework is to forget the nominations on some nodes, or on all if nodes is nil, and returns their pods.
func (b *books) lift(nodes []string) (lifted []*v1.Pod) {
	if len(b.of) == len(b.unplaced) && b.counts.fresh.Load() == 0 {
		return nil
	}
	lift := func(uid types.UID) {
		if one := b.of[uid]; one.nominated() {
			b.setPlaced(uid, false)
			one.shown = false
			lifted = append(lifted, one.pod)
		}
	}
	for _, node := range nodes {
		for uid := range b.byNode[node] {
			lift(uid)
		}
	}
	if nodes == nil {
		for uid := range b.of {
			lift(uid)
		}
	}
	return lifted
}

// takeEnded returns the pods that are nominated no longer, and the nodes that have become free.
func (b *books) takeEnded() (dropped []*v1.Pod, freed []string) {
	for _, pod := range b.dropped {
		if one := b.of[pod.UID]; one == nil || !one.placed {
			dropped = append(dropped, pod)
		}
	}
	freed = b.freed
	b.dropped, b.freed = nil, nil
	return dropped, freed
}
