package permitgate

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Room becomes free when a pod leaves a node, a node comes or changes, or what was kept for a pod is not any more. Then
// gangs that were refused for lack of room before are looked at again, once their pauses are over.

// freedAgain is how long after room has become free gangs are woken a second time: kube-scheduler hears of the same
// events, and those that were looked at before it had are refused in vain. Nominated pods that preempt alone are tried
// again only then.
const freedAgain = 100 * time.Millisecond

// noGang is the agenda's key for what is not one gang's: the queue of gangs, and room that has become free.
var noGang = gangID{}

// freedRoom is the room that has become free. Its methods may be called from several goroutines.
type freedRoom struct {
	gangs *gangs
	// count says how often there was some.
	count atomic.Int64

	mu      sync.Mutex // guards everything below
	notedAt time.Time  // when there was some last
	pending freedBy    // since the gangs were woken
	// recent and later are what they were woken for but once. They are woken again for recent at a time, and for later
	// then comes the next.
	recent, later freedBy
	again         time.Time
}

// freedBy says by whom room has become free: by gangs, by others, or both. preemptors is true if nominated pods that
// preempt alone may be helped.
type freedBy struct {
	others, preemptors bool
	gangs              map[gangID]bool
}

func (f *freedBy) empty() bool { return !f.others && !f.preemptors && len(f.gangs) == 0 }

func (f *freedBy) add(more freedBy) {
	f.others, f.preemptors = f.others || more.others, f.preemptors || more.preemptors
	if f.gangs == nil {
		f.gangs = map[gangID]bool{}
	}
	maps.Copy(f.gangs, more.gangs)
}

// concerns reports whether somebody else than a gang has left room.
func (f *freedBy) concerns(gang gangID) bool {
	return f.others || len(f.gangs) > 1 || len(f.gangs) == 1 && !f.gangs[gang]
}

// note takes in that room has become free. id is the one that has given it back, or zero.
func (r *freedRoom) note(id gangID) {
	r.count.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notedAt = r.gangs.clock.Now()
	if id == noGang {
		r.pending.add(freedBy{others: true})
	} else {
		r.pending.add(freedBy{gangs: map[gangID]bool{id: true}})
	}
	r.gangs.agenda.Add(noGang)
}

// last returns when room has become free last.
func (r *freedRoom) last() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notedAt
}

// notePreemptors has nominated pods tried again that preempt alone.
func (r *freedRoom) notePreemptors() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.add(freedBy{preemptors: true})
	r.gangs.agenda.Add(noGang)
}

// take returns what gangs are to be woken for now, whether that is for the first time, whether preemptors are to be tried
// again, and when to ask again; zero means not by time.
func (r *freedRoom) take(now time.Time) (room freedBy, first, preemptors bool, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.recent.empty() && !now.Before(r.again) {
		room, r.recent, r.later = r.recent, r.later, freedBy{}
		preemptors, r.again = room.preemptors, now.Add(freedAgain)
	}
	if first = !r.pending.empty(); first {
		room.add(r.pending)
		if r.recent.empty() {
			r.recent, r.again = r.pending, now.Add(freedAgain)
		} else {
			r.later.add(r.pending)
		}
		r.pending = freedBy{}
	}
	if !r.recent.empty() {
		again = r.again
	}
	return room, first, preemptors, again
}

// wake has the gangs looked at again that were refused for lack of room. It returns whether preemptors are to be tried
// again, and when to ask again; zero means not by time.
func (r *freedRoom) wake(now time.Time) (preemptors bool, again time.Time) {
	room, first, preemptors, again := r.take(now)
	if room.empty() {
		return preemptors, again
	}
	if first {
		r.gangs.wakeVain(now)
	}
	r.gangs.mu.Lock()
	defer r.gangs.mu.Unlock()
	for e := range r.gangs.lackRoom {
		if room.concerns(e.id) && e.waitsForRoom() {
			r.gangs.wakeLocked(e, room.others, now)
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
