package permitgate

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/native"
)

// Room becomes free when a pod leaves a node, a node comes or changes, or what was kept for a pod is not any more. Then
// gangs that were refused for lack of room before are looked at again, once their pauses are over.

// freedAgain is how long after room has become free gangs are woken a second time: kube-scheduler hears of the same
// events, and those that were looked at before it had are refused in vain.
const freedAgain = 100 * time.Millisecond

// clusterKey is the agenda's key for what is not one gang's: the queue of gangs, and room that has become free.
var clusterKey = types.NamespacedName{}

// freedRoom is the room that has become free. Its methods may be called from several goroutines.
type freedRoom struct {
	gangs *gangs
	// native hears of it too; nil without native gangs.
	native *native.Gangs
	// count says how often there was some.
	count atomic.Int64

	mu              sync.Mutex // guards everything below
	pending, recent freedBy    // since the gangs were woken, and what they were woken for but once
	again           time.Time  // when they are woken for that again
}

// freedBy says by whom room has become free: by gangs, by others, or both.
type freedBy struct {
	others bool
	gangs  map[types.NamespacedName]bool
}

func (f *freedBy) empty() bool { return !f.others && len(f.gangs) == 0 }

func (f *freedBy) add(more freedBy) {
	f.others = f.others || more.others
	if f.gangs == nil {
		f.gangs = map[types.NamespacedName]bool{}
	}
	maps.Copy(f.gangs, more.gangs)
}

// concerns reports whether somebody else than a gang has left room.
func (f *freedBy) concerns(gang types.NamespacedName) bool {
	return f.others || len(f.gangs) > 1 || len(f.gangs) == 1 && !f.gangs[gang]
}

// note takes in that room has become free. gang is the one that has given it back, or zero.
func (r *freedRoom) note(gang types.NamespacedName) {
	r.count.Add(1)
	r.native.RoomFreed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if gang == clusterKey {
		r.pending.add(freedBy{others: true})
	} else {
		r.pending.add(freedBy{gangs: map[types.NamespacedName]bool{gang: true}})
	}
	r.gangs.agenda.Add(clusterKey)
}

// take returns what gangs are to be woken for now, and when to ask again; zero means not by time.
func (r *freedRoom) take(now time.Time) (room freedBy, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.recent.empty() && !now.Before(r.again) {
		room, r.recent = r.recent, freedBy{}
	}
	if !r.pending.empty() {
		room.add(r.pending)
		if r.recent.empty() {
			r.again = now.Add(freedAgain)
		}
		r.recent.add(r.pending)
		r.pending = freedBy{}
	}
	if r.recent.empty() {
		return room, time.Time{}
	}
	return room, r.again
}

// wake has the gangs looked at again that were refused for lack of room. It returns when to ask again; zero means not
// by time.
func (r *freedRoom) wake(now time.Time) (again time.Time) {
	room, again := r.take(now)
	if room.empty() {
		return again
	}
	r.gangs.mu.Lock()
	defer r.gangs.mu.Unlock()
	for e := range r.gangs.lackRoom {
		if room.concerns(e.key) && e.waitsForRoom() {
			r.gangs.wakeLocked(e, room.others, now)
		}
	}
	return again
}

// nodeMayFitMore reports whether the change of a node may let a pod fit that did not before.
func nodeMayFitMore(before, after *v1.Node) bool {
	return !apiequality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!apiequality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable
}
