package permitgate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Room becomes free when a pod leaves a node, a node comes or changes, or what was kept for a pod is not any more. Then
// gangs that were refused for lack of room before are looked at again, once their pauses are over.

// preemptorPause is how long after a victim has left its node nominated pods that preempt alone are tried again:
// kube-scheduler has heard of it by then.
const preemptorPause = 100 * time.Millisecond

// noGang is the agenda's key for what is not one gang's: the queue of gangs, and room that has become free.
var noGang = gangID{}

// freedRoom is the room that has become free. Its methods may be called from several goroutines.
type freedRoom struct {
	gangs *gangs

	mu      sync.Mutex // guards everything below
	pending freedBy    // since the gangs were woken
	// notedAt is when there was some last, and othersAt when others than gangs left some.
	notedAt, othersAt time.Time
	preemptAt         time.Time // when pods that preempt alone are tried again; zero if they are not
}

// freedBy says by whom room has become free: by gangs, by others, or both.
type freedBy struct {
	others bool
	gangs  map[gangID]bool
}

func (f *freedBy) empty() bool { return !f.others && len(f.gangs) == 0 }

// concerns reports whether somebody else than a gang has left room.
func (f *freedBy) concerns(gang gangID) bool {
	return f.others || len(f.gangs) > 1 || len(f.gangs) == 1 && !f.gangs[gang]
}

// note takes in that room has become free. id is the one that has given it back, or zero.
func (r *freedRoom) note(id gangID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notedAt = r.gangs.clock.Now()
	switch {
	case id == noGang:
		r.pending.others, r.othersAt = true, r.notedAt
	case r.pending.gangs == nil:
		r.pending.gangs = map[gangID]bool{id: true}
	default:
		r.pending.gangs[id] = true
	}
	r.gangs.agenda.Add(noGang)
}

// last returns when room has become free last, and when it did so by others than gangs.
func (r *freedRoom) last() (at, byOthers time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notedAt, r.othersAt
}

// notePreemptors has nominated pods tried again that preempt alone.
func (r *freedRoom) notePreemptors() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preemptAt = r.gangs.clock.Now().Add(preemptorPause)
	r.gangs.agenda.AddAt(noGang, r.preemptAt)
}

// take returns what gangs are to be woken for now, whether preemptors are to be tried again, and when to ask again;
// zero means not by time.
func (r *freedRoom) take(now time.Time) (room freedBy, preemptors bool, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room, r.pending = r.pending, freedBy{}
	if preemptors = !r.preemptAt.IsZero() && !now.Before(r.preemptAt); preemptors {
		r.preemptAt = time.Time{}
	}
	return room, preemptors, r.preemptAt
}

// wake has the gangs looked at again that were refused for lack of room. It returns whether preemptors are to be tried
// again, and when to ask again; zero means not by time.
func (r *freedRoom) wake(now time.Time) (preemptors bool, again time.Time) {
	room, preemptors, again := r.take(now)
	if room.empty() {
		return preemptors, again
	}
	r.gangs.mu.Lock()
	defer r.gangs.mu.Unlock()
	for e := range r.gangs.refused {
		if room.concerns(e.id) && e.waitsForRoom() {
			r.gangs.wakeLocked(e, room.others, now)
		}
	}
	for e := range r.gangs.cycling {
		r.gangs.agenda.AddAt(e.id, now.Add(cycleGrace))
	}
	return preemptors, again
}

// nodeMayFitMore reports whether the change of a node may let a pod fit that did not before.
func nodeMayFitMore(before, after *v1.Node) bool {
	return !apiequality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!apiequality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable
}

// wakeLocked has a gang that lacks room looked at again when its pause is over: because room has become free if that is
// sure, or else because of what may as well have been its own doing or that of another gang. A native gang is activated
// then.
func (g *gangs) wakeLocked(e *gangEntry, sure bool, now time.Time) {
	if e.id.Native {
		e.woken = e.lacksRoom()
		if e.woken {
			g.agenda.AddAt(e.id, e.lastCycle.notBefore)
		}
		return
	}
	e.woken = e.woken || sure
	e.gang.RoomFreed(!sure, now)
	g.afterChangeLocked(e)
	g.agenda.Add(e.id)
}
