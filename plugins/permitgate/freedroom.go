package permitgate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Room becomes free when a pod leaves a node, a node comes or changes, or what was kept for a pod is not any more. Then
// gangs that were refused for lack of room before are looked at again, each in its turn. What a gang gives back when it
// is rolled back is not meant: others find it when their backoffs are over.

const (
	// informerLag is for how long kube-scheduler may not have seen what this plugin has: both listen to the same
	// informers. What is newer than that at the beginning of a cycle may be missing in it.
	informerLag = 50 * time.Millisecond
	// catchUpPause is after how long each has seen what the other has: what is to rest on that waits for so long.
	catchUpPause = 2 * informerLag
)

// noGang is the agenda's key for what is not one gang's: the queue of gangs, and room that has become free.
var noGang = gangID{}

// freedRoom is the room that has become free. Its methods may be called from several goroutines.
type freedRoom struct {
	gangs *gangs

	mu        sync.Mutex // guards everything below
	pending   bool       // there was some since the gangs were woken
	notedAt   time.Time  // when there was some last
	preemptAt time.Time  // when pods that preempt alone are tried again; zero if they are not
}

// note takes in that room has become free.
func (r *freedRoom) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending, r.notedAt = true, r.gangs.clock.Now()
	r.gangs.agenda.Add(noGang)
}

// since reports whether room has become free since a time, or so shortly before that kube-scheduler may not have seen
// it by then.
func (r *freedRoom) since(began time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.notedAt.Before(began.Add(-informerLag))
}

// notePreemptors has nominated pods tried again that preempt alone, as a victim has left its node.
func (r *freedRoom) notePreemptors() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.preemptAt = r.gangs.clock.Now().Add(catchUpPause)
	r.gangs.agenda.AddAt(noGang, r.preemptAt)
}

// take reports whether gangs are to be woken now, whether preemptors are to be tried again, and when to ask again; zero
// means not by time.
func (r *freedRoom) take(now time.Time) (room, preemptors bool, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room, r.pending = r.pending, false
	if preemptors = !r.preemptAt.IsZero() && !now.Before(r.preemptAt); preemptors {
		r.preemptAt = time.Time{}
	}
	return room, preemptors, r.preemptAt
}

// wake has the gangs looked at again that were refused for lack of room. It returns whether preemptors are to be tried
// again, and when to ask again; zero means not by time.
func (r *freedRoom) wake(now time.Time) (preemptors bool, again time.Time) {
	room, preemptors, again := r.take(now)
	if !room {
		return preemptors, again
	}
	r.gangs.mu.Lock()
	defer r.gangs.mu.Unlock()
	for e := range r.gangs.open {
		if e.waitsForRoom() {
			r.gangs.wakeLocked(e, now)
		}
		if !e.cycle.began.IsZero() {
			r.gangs.agenda.AddAt(e.id, now.Add(catchUpPause))
		}
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

// wakeLocked has a gang that lacks room looked at again in its turn, because room has become free.
func (g *gangs) wakeLocked(e *gangEntry, now time.Time) {
	if !e.lacksRoom() {
		return
	}
	latest := now.Add(g.config.MaxBackoff) // kube-scheduler tries a native gang by its own backoff, too
	if !e.id.Native {
		latest = e.gang.RetryAt()
		e.gang.RoomFreed(now)
	}
	e.wake(latest)
	g.afterChangeLocked(e)
	g.agenda.Add(e.id)
}
