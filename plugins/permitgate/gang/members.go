package gang

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// SetPod says how the API server shows a pod of the gang that is neither terminating nor finished.
//
// What the gang knows from the pod's own cycles is newer than a pod without a node, so that such a
// report changes only whether the pod is held; a node is believed at once and for good.
func (g *Gang) SetPod(uid types.UID, pod Pod, now time.Time) {
	m, known := g.members[uid]
	if known && m.state == memberDone {
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
			g.want(m, now)
		}
		g.Changed(now)
		return
	}
	switch {
	case pod.Bound:
		g.move(m, memberBound)
		g.leads(m, now)
	case pod.Held && (m.state == memberIdle || m.state == memberFailed):
		g.move(m, memberHeld)
		g.leads(m, now)
	case !pod.Held && m.state == memberHeld:
		g.move(m, memberIdle)
		g.want(m, now)
		g.Changed(now)
		return
	default:
		return
	}
	g.settle(now)
}

// SetDone says that a pod of the gang has succeeded and goes on counting until [Gang.DeleteDone]. The word
// may come before or after that of [Gang.DeletePod], which then means nothing.
func (g *Gang) SetDone(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known {
		m = &member{uid: uid, state: memberStates}
		g.members[uid] = m
	}
	if m.state == memberDone {
		return
	}
	g.hold(m, false)
	g.move(m, memberDone)
	g.leads(m, now)
	g.Changed(now)
}

// DeleteDone says that a pod that had succeeded does not count any more.
func (g *Gang) DeleteDone(uid types.UID, now time.Time) {
	if m, known := g.members[uid]; known && m.state == memberDone {
		g.forget(m)
		g.settle(now)
	}
}

// DeletePod says that a pod is terminating, finished or deleted, or has left the gang.
func (g *Gang) DeletePod(uid types.UID, now time.Time) {
	m, known := g.members[uid]
	if !known || m.state == memberDone {
		return
	}
	g.leads(m, now)
	if m.holds {
		g.move(m, memberGone)
		g.repeat(m, taskReject, now.Add(deletedPause))
	} else {
		g.forget(m)
	}
	g.fail(CauseMembersLeft, uid, "a member was deleted", now)
	g.Changed(now)
}
