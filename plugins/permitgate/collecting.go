package permitgate

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/internal/agenda"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// gangID names a gang: two PodGroups, one of each API, may have one name.
type gangID struct {
	key    types.NamespacedName
	native bool // of scheduling.k8s.io
}

// gangOf returns the gang that a pod says it is a member of.
func gangOf(pod *v1.Pod) (gangID, bool) {
	if key, ok := native.GroupOf(pod); ok {
		return gangID{key, true}, true
	}
	key, ok := podgroup.Of(pod)
	return gangID{key, false}, ok
}

// collecting knows which gang collects room. Its methods may be called from several goroutines, also under the locks of
// the gangs.
type collecting struct {
	// claim is what that gang keeps, nil if none collects. Scheduling cycles read it without the lock.
	claim  atomic.Pointer[roomClaim]
	agenda *agenda.Agenda[types.NamespacedName]

	mu sync.Mutex // guards everything below, and changes of claim
	// rests are the times until which gangs do not begin to collect.
	rests map[gangID]time.Time
	// refused are pods that were kept off, for which it is no event that a gang has ceased to collect; ended is true if
	// one has, also in favor of another, since they were taken last.
	refused map[types.UID]*v1.Pod
	ended   bool
}

func newCollecting(a *agenda.Agenda[types.NamespacedName]) *collecting {
	return &collecting{agenda: a, rests: map[gangID]time.Time{}, refused: map[types.UID]*v1.Pod{}}
}

// isBy reports whether a gang collects.
func (c *collecting) isBy(gang gangID) bool {
	claim := c.claim.Load()
	return claim != nil && claim.gang == gang
}

// admits reports whether a gang of this rank may begin: none collects, or one that comes after it.
func (c *collecting) admits(rank podgroup.Rank) bool {
	claim := c.claim.Load()
	return claim == nil || rank.Compare(claim.rank) < 0
}

// restsNow reports whether a gang does not begin to collect now.
func (c *collecting) restsNow(gang gangID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.rests[gang])
}

// begin has the gang of a claim collect instead of any other, and then rest until a time. If it collects already,
// the claim is renewed. It reports whether it did not.
func (c *collecting) begin(claim *roomClaim, rest, now time.Time) (begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBy(claim.gang) {
		claim.until = c.claim.Load().until
	} else {
		begun = true
		c.restLocked(claim.gang, rest, now)
		c.agenda.AddAt(clusterKey, claim.until)
		if c.claim.Load() != nil {
			c.noteEndLocked()
		}
	}
	c.claim.Store(claim)
	return begun
}

// giveUp has a gang collect no longer, and rest until a time.
func (c *collecting) giveUp(gang gangID, rest, now time.Time) {
	c.stop(gang)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restLocked(gang, rest, now)
}

func (c *collecting) restLocked(gang gangID, until, now time.Time) {
	maps.DeleteFunc(c.rests, func(_ gangID, until time.Time) bool { return !now.Before(until) })
	c.rests[gang] = until
}

// stop has a gang collect no longer.
func (c *collecting) stop(gang gangID) {
	if !c.isBy(gang) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isBy(gang) {
		c.endLocked()
	}
}

func (c *collecting) endLocked() {
	c.claim.Store(nil)
	c.noteEndLocked()
}

func (c *collecting) noteEndLocked() {
	c.ended = true
	c.agenda.Add(clusterKey)
}

// noteRefused remembers a pod that a claim of a gang kept off.
func (c *collecting) noteRefused(pod *v1.Pod, gang gangID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[pod.UID] = pod
	if !c.isBy(gang) { // it has ceased to collect meanwhile
		c.noteEndLocked()
	}
}

// hasRefused reports whether a pod was kept off.
func (c *collecting) hasRefused(uid types.UID) bool {
	if c.claim.Load() == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[uid] != nil
}

// takeEnded reports whether a gang has ceased to collect, or its time is over, and returns the pods that were kept off,
// in the form of the handle's argument. again is when to ask again; zero means not by time.
func (c *collecting) takeEnded(now time.Time) (ended bool, refused map[string]*v1.Pod, again time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim := c.claim.Load(); claim != nil {
		if now.Before(claim.until) {
			again = claim.until
		} else {
			c.endLocked()
		}
	}
	if !c.ended {
		return false, nil, again
	}
	refused = map[string]*v1.Pod{}
	for _, pod := range c.refused {
		refused[podgroup.Key(pod).String()] = pod
	}
	c.ended = false
	clear(c.refused)
	return true, refused, again
}
