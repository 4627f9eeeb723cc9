package gang

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// SetPod says how the API server shows a pod of the gang that is neither terminating nor finished.
//
// What the gang knows from the pod's own cycles is newer than a pod without a node, so that such a
// report changes only whether the pod is held; a node is believed at once and for good.
func (g *Gang) SetPod(uid types.UID, pod Pod, now time.Time) {
	m, known := g.members[uid]
	if known && m.state == memberSucceeded {
		return // an older view of the pod
	}
	if !known {
		m = &member{uid: uid, state: memberStates}
		g.members[uid] = m
	}
	m.template = pod.Template
	if !known || m.state == memberGone {
		if !pod.Bound {
			g.arrivedAt = now
		}
		switch {
		case pod.Bound:
			g.move(m, memberBound)
		case pod.Held:
			g.move(m, memberHeld)
		default:
			g.move(m, memberIdle)
			g.wakeAt(m, now)
		}
		g.Changed(now)
		return
	}
	switch {
	case pod.Bound:
		g.move(m, memberBound)
		g.noteFirstTried(m, now)
	case pod.Held && m.state == memberIdle:
		g.move(m, memberHeld)
		g.noteFirstTried(m, now)
	case !pod.Held && m.state == memberHeld:
		g.move(m, memberIdle)
		g.wakeAt(m, now)
		g.Changed(now)
		return
	default:
		return
	}
	g.settle(now)
}

// SetSucceeded says which pods of the gang have succeeded and count, until the next call. It reports whether that is
// new. The word may come before or after that of [Gang.DeletePod], which then means nothing.
func (g *Gang) SetSucceeded(pods sets.Set[types.UID], now time.Time) (changed bool) {
	if g.count[memberSucceeded] > 0 {
		for _, uid := range g.inState(memberSucceeded) {
			if !pods.Has(uid) {
				g.forget(g.members[uid])
				changed = true
			}
		}
	}
	for uid := range pods {
		m, known := g.members[uid]
		if !known {
			m = &member{uid: uid, state: memberStates}
			g.members[uid] = m
		}
		if m.state == memberSucceeded {
			continue
		}
		g.setHolds(m, false)
		g.move(m, memberSucceeded)
		g.noteFirstTried(m, now)
		g.Changed(now)
		changed = true
	}
	if changed {
		g.settle(now)
	}
	return changed
}

// LoseNode says that a node is gone: members that have been given it, and are not bound yet, have lost it. It reports
// whether there are any.
func (g *Gang) LoseNode(node string, now time.Time) (lost bool) {
	for _, uid := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[uid]
		if m.node != node || !m.mayBeSentBack() {
			continue
		}
		lost = true
		g.startTask(m, taskReject, now)
		m.inRound, m.letIn = false, false
		g.move(m, memberIdle)
		g.noteFirstTried(m, now)
		g.rollBackIfShort(Rollback{Cause: CauseNodeGone, Member: uid, Detail: "the node " + node + " is gone, which the member was to have"}, now)
	}
	return lost
}

// DeletePod says that a pod is terminating, finished or deleted, or has left the gang.
func (g *Gang) DeletePod(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known || m.state == memberSucceeded {
		return
	}
	g.noteFirstTried(m, now)
	if m.holds {
		g.move(m, memberGone)
		g.startTask(m, taskReject, now.Add(deletedPause))
	} else {
		g.forget(m)
	}
	if g.short() {
		g.sendBack(Rollback{Cause: CauseMembersLeft, Member: uid, Detail: "a member was deleted"}, now) // another may step in at once
	}
	g.settle(now)
	g.Changed(now)
}
