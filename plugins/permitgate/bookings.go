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

// A booking is a node that a member is about to go to: for its round, for a preemption, or because it collects room. The
// framework keeps that room from pods of the same or a lower priority once it knows the booking as a nomination. That
// costs clones in the filters of that node, and members of one gang would be counted against each other, on one node and not on
// the others, which no spread constraint understands. So nominations are placed when a cycle of another pod begins, and
// lifted from the nodes that a member of their own gang is tried on: a gang whose members come one after the other costs none.

// bookingKind says what a booking is for, and so when it ends.
type bookingKind uint8

const (
	bookedForRound     bookingKind = iota // ends with the round
	bookedForBind                         // of a member whose bind has failed; ends with its next attempt
	bookedByVictims                       // of a gang that preempts; ends with the preemption
	bookedByCollecting                    // of a gang that collects room
	bookingKinds
)

// freshInterval is how long after a failed bind the framework may still take the member's nomination away.
const freshInterval = time.Second

// booking is a node that is kept for a member.
type booking struct {
	pod     *v1.Pod
	amounts []proposal.Amount // what the pod takes
	node    string
	kind    bookingKind
	// placed is true when the framework knows the nomination; it is placed again until fresh is over.
	placed bool
	fresh  time.Time
}

// books are the bookings of one gang.
type books struct {
	of       map[types.UID]*booking
	byNode   map[string]map[types.UID]struct{}
	unplaced map[types.UID]struct{}
	kinds    [bookingKinds]int // how many there are of each
	// dropped are nominations that have ended and that the framework may still know, freed the nodes that are free of a booking
	// which gangs may wait for.
	dropped []drop
	freed   []string
	// released tells that a booking has ended without its member's having taken it.
	released bool
}

// drop is a nomination to take back.
type drop struct {
	pod  *v1.Pod
	node string
}

// hints are what a round's proposal says besides the bookings.
type hints struct {
	round int
	// rings are the nodes that members of a class may be tried on, class and ring a member's place.
	rings   [][]string
	members map[types.UID]hint
}

type hint struct{ class, ring int }

// domain is the nodes with a value of a label; the zero value is all nodes.
type domain struct{ key, value string }

func (d domain) has(node *v1.Node) bool { return d.key == "" || node.Labels[d.key] == d.value }

// alternates is how many nodes a member is tried on besides the one that is proposed to it.
const alternates = 15

// nodesFor returns the nodes that a member is to be tried on, none when nothing is proposed to it.
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

// bookLocked books a node for a member, in the place of what was booked for it before.
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

// unbookLocked ends a member's booking; taken tells that the member has gone to the node.
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

// settleBookingsLocked ends the bookings that the gang's state does not bear any more.
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

// roundEnded notes what a round that failed has taught: any room may help, and the domain that it was confined to has been tried.
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

// takenLocked notes where a member went: its own booking ends, and a member of its class that was to go there takes its place.
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

// endedLocked ends the booking of a member whose cycle has ended with a node or without: the framework takes the nomination away.
func (g *gangs) endedLocked(e *entry, uid types.UID, taken bool) {
	if b := e.books.of[uid]; b != nil {
		g.setPlacedLocked(e, uid, b, false)
		g.unbookLocked(e, uid, taken)
	}
}

// place has the framework know all bookings but those of one gang. It is called in the cycle of a pod that is not of that gang,
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
	// What has ended meanwhile is taken back: it may have been dropped before it was placed.
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range todo {
		if b := p.e.books.of[p.uid]; b == nil || b.node != p.b.node {
			p.e.books.dropped = append(p.e.books.dropped, drop{p.b.pod, p.b.node})
			g.agenda.Add(p.e.key)
		}
	}
}

// lift takes the nominations of a gang back from the nodes that one of its members is tried on; nil stands for all nodes.
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

// takeDropped returns the nominations that are to be taken back, the nodes that have got free, and whether any has.
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
