package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/plan"
)

// Holds keeps the room of planned members for them, in an account that all pods are scheduled against.
// Its methods but Placed and Woken are called with the plugin's lock held, and must neither block nor call back.
type Holds interface {
	// Place makes the slots of a gang exactly the given ones, all or none. An error says in words which
	// slot has no room.
	Place(claim Claim, slots []HoldSlot) error
	// Move gives slots of a gang, which has room for all of them already, other nodes.
	Move(gang types.UID, moves []HoldMove) error
	// ReleaseMember drops the slot of one member, and Release all of a gang. They return the nodes that
	// have got room by that.
	ReleaseMember(gang, member types.UID) (freed []string)
	Release(gang types.UID) (freed []string)
	// View returns what is held now. It is called in a scheduling cycle, and is valid until its end.
	View() HoldsView
	// Placed is told, in a scheduling cycle and without locks, that slots may have changed in this very cycle: that of its pod, which
	// may have been given to it or have moved, or those of others, which the pod has to respect.
	Placed(state fwk.CycleState, pod *v1.Pod)
	// Woken is told that less is held than before, so that the pods which were kept out by it are tried
	// again. It is called without locks.
	Woken(ctx context.Context)
}

// HoldsView is what was held at one moment. It may be read from several goroutines.
type HoldsView interface {
	// Subtract takes off what is free on a node what others than the gang hold there and do not use.
	// Pods of a priority above that of a hold do not mind it. present says which pods are on the node.
	Subtract(node string, gang types.UID, priority int32, present func(types.UID) bool, names []v1.ResourceName, free []int64)
	// Keeps reports whether what a pod on the node takes would be subtracted again if the pod were gone: it uses
	// what others than the gang hold.
	Keeps(node string, gang types.UID, priority int32, pod types.UID) bool
}

// Claim says who holds slots, and on what terms.
type Claim struct {
	// Gang is the UID of the PodGroup, Name its namespace and name.
	Gang types.UID
	Name string
	// Priority is the lowest of the members: pods of a higher one may take the room.
	Priority int32
	// Since is when the gang had its quorum, Deadline when its slots end whatever happens.
	Since, Deadline time.Time
	// Wanted is how many slots make the gang's quorum. Filling means that it collects them piece by piece.
	Wanted  int
	Filling bool
}

// HoldSlot is a slot for one member.
type HoldSlot struct {
	Pod  *v1.Pod
	Node string
	// Info is the node as the scheduling cycle sees it; nil for a slot that the member has taken already.
	Info fwk.NodeInfo
	// Without are pods on the node whose room counts as free: they are to leave it.
	Without map[types.UID]bool
}

// HoldMove is a member whose slot moves from one node to another.
type HoldMove struct {
	Pod      *v1.Pod
	From, To string
}

// holdsSlack is how much longer the slots of a gang may last than its own deadlines, which come first.
const holdsSlack = time.Minute

// WithHolds has the plugin keep room for planned members. holds is called when the first plan is made, and
// returns nil when there is no account of what is held.
func WithHolds(holds func() Holds) Option {
	return func(s *Shared) { s.holdsSource = holds }
}

// warnOnce says, with the first plan, that there is no account of holds. Before it, plugins are still being made.
func (s *Shared) warnOnce(logger klog.Logger) {
	s.mu.Lock()
	warn := s.holds == nil && !s.warned
	s.warned = s.warned || warn
	s.mu.Unlock()
	if warn {
		logger.Info("PermitGate runs without ReserveCache: gangs are planned, but nothing keeps other pods off the planned nodes until the members are there")
	}
}

// holdsLocked returns the account of holds; nil without one.
func (s *Shared) holdsLocked() Holds {
	if s.holds == nil && s.holdsSource != nil {
		s.holds = s.holdsSource()
	}
	return s.holds
}

// held is what a gang has in the account of holds.
type held struct {
	gang    types.UID
	slots   map[types.UID]string // nodes by member
	pods    map[types.UID]*v1.Pod
	changes int // the gang's, as of the last look
	// collects means that the slots have been collected for a gang that has no plan.
	collects bool
	// awaits means that the slots are a claim on room that is not free yet.
	awaits bool
}

// heldFor is what a gang has once the slots are held.
func heldFor(gang types.UID, slots []HoldSlot) *held {
	h := &held{gang: gang, slots: make(map[types.UID]string, len(slots)), pods: make(map[types.UID]*v1.Pod, len(slots))}
	for _, slot := range slots {
		h.slots[slot.Pod.UID], h.pods[slot.Pod.UID] = slot.Node, slot.Pod
	}
	return h
}

// syncHoldsLocked brings the account in line with the gang's plan. It never takes room: that is placeLocked.
func (s *Shared) syncHoldsLocked(e *entry) {
	if e.preempting != nil {
		s.syncPreemptionLocked(e)
	}
	h := e.held
	if h != nil && h.awaits {
		return
	}
	if h != nil && h.collects {
		s.syncCollectedLocked(e)
		return
	}
	if h == nil || h.changes == e.gang.SlotChanges() {
		return
	}
	h.changes = e.gang.SlotChanges()
	slots := e.gang.Slots()
	if len(slots) == 0 {
		e.held = nil
		s.freedLocked(e, s.holds.Release(h.gang))
		return
	}
	var moves []HoldMove
	for uid, node := range h.slots {
		slot, ok := slots[uid]
		switch {
		case !ok:
			delete(h.slots, uid)
			delete(h.pods, uid)
			s.freedLocked(e, s.holds.ReleaseMember(h.gang, uid))
		case slot.Node != node:
			moves = append(moves, HoldMove{Pod: h.pods[uid], From: node, To: slot.Node})
			h.slots[uid] = slot.Node
		}
	}
	if len(moves) == 0 {
		return
	}
	slices.SortFunc(moves, func(a, b HoldMove) int { return compareUIDs(a.Pod.UID, b.Pod.UID) })
	if err := s.holds.Move(h.gang, moves); err != nil {
		// The members are still pinned; what they find taken is planned anew.
		for _, m := range moves {
			delete(h.slots, m.Pod.UID)
			delete(h.pods, m.Pod.UID)
			s.freedLocked(e, s.holds.ReleaseMember(h.gang, m.Pod.UID))
		}
	}
}

func compareUIDs(a, b types.UID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// freedLocked has the worker tell whom room on these nodes may help.
func (s *Shared) freedLocked(e *entry, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	s.freed, s.heldLess = true, true
	now := time.Now()
	for key, other := range s.gangs {
		// What a gang gives back may help those that have waited longer; the others would only get
		// into each other's way.
		if other != e && olderGang(other, e) {
			other.gang.Room(now)
			s.queue.Add(key)
		}
	}
	s.queue.Add(e.key)
}

// olderGang reports whether a gang has had its quorum for longer than another.
func olderGang(e, than *entry) bool {
	a, b := e.gang.ReadySince(), than.gang.ReadySince()
	return !a.IsZero() && (b.IsZero() || a.Before(b))
}

// wakeOthers tells of the room that holds have left since the last call.
func (s *Shared) wakeOthers(ctx context.Context) {
	s.mu.Lock()
	holds, freed := s.holds, s.freed
	s.freed = false
	s.mu.Unlock()
	if freed {
		holds.Woken(ctx)
	}
}

// plans stands in for an account of holds: what other gangs have planned, by node. It keeps gangs out of each
// other's way; other pods know nothing of it.
type plans map[string][]*v1.Pod

// plansLocked returns the members of all other gangs that have a slot and not yet taken it.
func (s *Shared) plansLocked(e *entry) HoldsView {
	var p plans
	for _, other := range s.gangs {
		if other == e {
			continue
		}
		for uid, slot := range other.gang.Slots() {
			if pod := other.pods[uid]; pod != nil {
				if p == nil {
					p = plans{}
				}
				p[slot.Node] = append(p[slot.Node], pod)
			}
		}
	}
	if p == nil {
		return nil
	}
	return p
}

// Keeps implements HoldsView: nobody uses the room of a plan before its member is there.
func (plans) Keeps(string, types.UID, int32, types.UID) bool { return false }

// Subtract implements HoldsView.
func (p plans) Subtract(node string, _ types.UID, priority int32, present func(types.UID) bool, names []v1.ResourceName, free []int64) {
	for _, pod := range p[node] {
		if corev1.PodPriority(pod) >= priority && !present(pod.UID) {
			plan.Subtract(pod, names, free)
		}
	}
}
