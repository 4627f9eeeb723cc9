package permitgate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
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

// freshInterval is how long after a failed bind the framework may still clear the member's nomination.
const freshInterval = time.Second

// booking is a node that is kept for a member.
type booking struct {
	pod     *v1.Pod
	amounts []proposal.Amount // what the pod takes
	node    string
	kind    bookingKind
	// placed is true if the framework knows the nomination. Until fresh the nomination is placed in every cycle.
	placed bool
	fresh  time.Time
}

// books are the bookings of one gang.
type books struct {
	of       map[types.UID]*booking
	byNode   map[string]map[types.UID]struct{}
	unplaced map[types.UID]struct{}
	kinds    [bookingKinds]int // how many there are of each
	// dropped are nominations that have ended but that the framework may still know. freed are nodes of ended bookings, for
	// which gangs may wait.
	dropped []drop
	freed   []string
	// released is true if a booking has ended and its member did not take the node.
	released bool
}

// drop is a nomination to take back.
type drop struct {
	pod  *v1.Pod
	node string
}

// hints are the part of a round's proposal that is not in bookings.
type hints struct {
	round int
	// rings are the nodes that members of a class may be tried on; a member's class and ring are its place in them.
	rings   [][]string
	members map[types.UID]hint
}

type hint struct{ class, ring int }

// domain is the nodes with one value of a label; the zero value means all nodes.
type domain struct{ key, value string }

func (d domain) has(node *v1.Node) bool { return d.key == "" || node.Labels[d.key] == d.value }

// alternates is how many nodes a member is tried on besides its proposed one.
const alternates = 15

// nodesFor returns the nodes to try a member on; none if no node is proposed for it.
func (e *entry) nodesFor(uid types.UID) []string {
	b := e.books.of[uid]
	if b == nil || b.kind != bookedForRound {
		return nil
	}
	nodes := []string{b.node}
	h, known := e.hints.members[uid]
	if !known || h.class >= len(e.hints.rings) {
		return nodes
	}
	ring := e.hints.rings[h.class]
	for i := 1; i < len(ring) && len(nodes) <= alternates; i++ {
		if node := ring[(h.ring+i)%len(ring)]; node != b.node {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// bookLocked books a node for a member, and replaces its earlier booking.
func (g *gangs) bookLocked(e *entry, uid types.UID, b booking) {
	g.unbookLocked(e, uid, false)
	b.placed = false
	if e.books.of == nil {
		e.books.of, e.books.byNode, e.books.unplaced = map[types.UID]*booking{}, map[string]map[types.UID]struct{}{}, map[types.UID]struct{}{}
	}
	e.books.of[uid] = &b
	e.books.kinds[b.kind]++
	if e.books.byNode[b.node] == nil {
		e.books.byNode[b.node] = map[types.UID]struct{}{}
	}
	e.books.byNode[b.node][uid] = struct{}{}
	e.books.unplaced[uid] = struct{}{}
	g.booked[e] = struct{}{}
	g.unplaced.Add(1)
}

// unbookLocked ends a member's booking; taken is true if the member has been placed on the node.
func (g *gangs) unbookLocked(e *entry, uid types.UID, taken bool) {
	b := e.books.of[uid]
	if b == nil {
		return
	}
	if b.placed {
		e.books.dropped = append(e.books.dropped, drop{b.pod, b.node})
		g.setPlacedLocked(e, uid, b, false)
	}
	delete(e.books.unplaced, uid)
	g.unplaced.Add(-1)
	delete(e.books.of, uid)
	e.books.kinds[b.kind]--
	if delete(e.books.byNode[b.node], uid); len(e.books.byNode[b.node]) == 0 {
		delete(e.books.byNode, b.node)
	}
	if len(e.books.of) == 0 {
		delete(g.booked, e)
	}
	e.books.released = e.books.released || !taken
	if g.short.Load() > 0 && !taken {
		e.books.freed = append(e.books.freed, b.node)
	}
}

// setPlacedLocked notes whether the framework knows a booking.
func (g *gangs) setPlacedLocked(e *entry, uid types.UID, b *booking, placed bool) {
	if b.placed == placed {
		return
	}
	b.placed = placed
	if placed {
		delete(e.books.unplaced, uid)
		g.unplaced.Add(-1)
		g.placed.Add(1)
	} else {
		e.books.unplaced[uid] = struct{}{}
		g.unplaced.Add(1)
		g.placed.Add(-1)
	}
}

// unbookAllLocked ends a gang's bookings of a kind.
func (g *gangs) unbookAllLocked(e *entry, kind bookingKind) {
	if e.books.kinds[kind] == 0 {
		return
	}
	for uid, b := range e.books.of {
		if b.kind == kind {
			g.unbookLocked(e, uid, false)
		}
	}
}

// settleBookingsLocked ends the bookings that do not match the gang's state any more.
func (g *gangs) settleBookingsLocked(e *entry) {
	if round := e.gang.Round(); round != e.hints.round {
		g.unbookAllLocked(e, bookedForRound)
		e.hints = hints{round: round}
		if round == 0 {
			e.roundEnded(g.clock.Now())
		}
	}
	if phase := e.gang.Phase(); phase != gang.Backoff && phase != gang.Queued {
		if e.preempting != nil {
			g.abandon(e.key)
			e.preempting = nil
		}
		g.unbookAllLocked(e, bookedByVictims)
		g.unbookAllLocked(e, bookedByCollecting)
	}
	if e.books.kinds[bookedForBind] > 0 {
		for uid, b := range e.books.of {
			if b.kind == bookedForBind && !e.gang.KeepsNode(uid) {
				g.unbookLocked(e, uid, false)
			}
		}
	}
}

// roundEnded records the result of a failed round: any freed room may help, and the round's domain has been tried.
func (e *entry) roundEnded(now time.Time) {
	if e.gang.Phase() != gang.Backoff {
		return
	}
	e.refusal = refusal{missing: 1, at: now}
	switch e.gang.Last().Cause {
	case gang.CauseUnschedulable, gang.CauseRefused, gang.CauseTimeout:
		if e.confined != (domain{}) {
			if e.tried == nil {
				e.tried = map[string]bool{}
			}
			e.tried[e.confined.value] = true
			e.gang.Retry(now) // in the next domain, at once
		}
	default:
	}
	e.confined = domain{}
}

// takenLocked records where a member went. Its own booking ends; a member of its class that was booked on that node gets the
// booking instead.
func (g *gangs) takenLocked(e *entry, uid types.UID, node string) {
	b, mine := e.books.of[uid], e.hints.members[uid]
	if b == nil {
		return
	}
	if b.kind == bookedForRound && b.node != node {
		for _, other := range slices.Sorted(maps.Keys(e.books.byNode[node])) {
			if o, its := e.books.of[other], e.hints.members[other]; o.kind == bookedForRound && its.class == mine.class {
				e.hints.members[other] = mine
				g.bookLocked(e, other, booking{pod: o.pod, amounts: o.amounts, node: b.node, kind: bookedForRound})
				break
			}
		}
	}
	g.endedLocked(e, uid, b.node == node)
}

// endedLocked ends the booking of a member whose cycle has ended, with or without a node: the framework has cleared the
// nomination.
func (g *gangs) endedLocked(e *entry, uid types.UID, taken bool) {
	if b := e.books.of[uid]; b != nil {
		g.setPlacedLocked(e, uid, b, false)
		g.unbookLocked(e, uid, taken)
	}
}

// place nominates the bookings of all gangs except one, to which the pod of the current cycle may belong. It is called
// without locks.
func (g *gangs) place(logger klog.Logger, nominator fwk.PodNominator, except types.NamespacedName) {
	if g.unplaced.Load() == 0 {
		return
	}
	type placing struct {
		e   *entry
		uid types.UID
		b   booking
	}
	var todo []placing
	g.mu.Lock()
	now := g.clock.Now()
	for e := range g.booked {
		if e.key == except {
			continue
		}
		for uid := range e.books.unplaced {
			b := e.books.of[uid]
			todo = append(todo, placing{e, uid, *b})
			if !now.Before(b.fresh) {
				g.setPlacedLocked(e, uid, b, true)
			}
		}
	}
	g.mu.Unlock()
	for _, p := range todo {
		nominator.AddNominatedPod(logger, nominee{pod: p.b.pod}, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: p.b.node})
	}
	// Take back bookings that have ended meanwhile: they may have been dropped before they were placed.
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range todo {
		if b := p.e.books.of[p.uid]; b == nil || b.node != p.b.node {
			p.e.books.dropped = append(p.e.books.dropped, drop{p.b.pod, p.b.node})
			g.agenda.Add(p.e.key)
		}
	}
}

// lift removes the nominations of a gang from the nodes that one of its members is tried on; nil means all nodes.
func (g *gangs) lift(nominator fwk.PodNominator, key types.NamespacedName, nodes []string) {
	for _, pod := range g.lifted(key, nodes) {
		nominator.DeleteNominatedPodIfExists(pod)
	}
}

func (g *gangs) lifted(key types.NamespacedName, nodes []string) (lifted []*v1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil || len(e.books.of) == len(e.books.unplaced) {
		return nil
	}
	lift := func(uid types.UID) {
		if b := e.books.of[uid]; b.placed {
			g.setPlacedLocked(e, uid, b, false)
			lifted = append(lifted, b.pod)
		}
	}
	for _, node := range nodes {
		for uid := range e.books.byNode[node] {
			lift(uid)
		}
	}
	if nodes == nil {
		for uid := range e.books.of {
			lift(uid)
		}
	}
	return lifted
}

// takeDropped returns the nominations to remove, the nodes that have become free, and whether any booking was released.
func (e *entry) takeDropped() (dropped []drop, freed []string, released bool) {
	for _, d := range e.books.dropped {
		if b := e.books.of[d.pod.UID]; b == nil || !b.placed {
			dropped = append(dropped, d)
		}
	}
	freed, released = e.books.freed, e.books.released
	e.books.dropped, e.books.freed, e.books.released = nil, nil, false
	return dropped, freed, released
}
