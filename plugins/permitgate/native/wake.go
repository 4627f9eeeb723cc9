package native

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
)

// A group that kube-scheduler could not place backs off, with the defaults for up to ten seconds times the square root of its members, and no
// event reaches it there. An activation does, so a group that was refused is activated when room becomes free. It is still tried whenever its
// backoff is over, and preempts then, as without this package.

// informerLag is for how long kube-scheduler may not have seen what this package has: both listen to the same informers.
const informerLag = 50 * time.Millisecond

// cycle is a pod-group cycle of a gang, from its first PreFilter to its last.
type cycle struct {
	began, ended time.Time
	runs         int  // see Request
	plan         Plan // of the first
}

// cycleGrace is how long after its last PreFilter a cycle counts as over when room has become free: nothing says so if another plugin's
// PreEnqueue keeps the group, as DefaultPreemption's does while it has pods evicted.
const cycleGrace = 100 * time.Millisecond

// vainCycle says that a gang's last cycle, in which members were tried, has placed none, and that the group is back in the queue.
type vainCycle struct {
	pause     time.Duration
	notBefore time.Time // the gang is not woken sooner
	woken     bool      // it is to be activated at notBefore
}

// PreFilter records that a member is tried in a pod-group cycle, or for a preemption in the end of one. It reports whether the pod is a
// member.
func (g *Gangs) PreFilter(pod *v1.Pod) bool {
	key, ok := GroupOf(pod)
	if g == nil || !ok {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil || !e.guarded {
		return false
	}
	now := g.config.Clock.Now()
	if e.cycle.began.IsZero() {
		e.cycle.began = now
		g.cycling[e] = struct{}{}
	}
	e.cycle.ended = now
	e.gang.Tried(pod.UID)
	delete(g.refused, e)
	return true
}

// requeuedLocked is called when a member is about to enter the queue. If its group has been in a cycle, that has placed nobody.
func (g *Gangs) requeuedLocked(e *entry, now time.Time) {
	if e.cycle.began.IsZero() {
		return
	}
	pause := g.config.Pause(e.cycle.ended.Sub(e.cycle.began), len(g.refused)+1)
	g.refused[e] = &vainCycle{pause: pause, notBefore: now.Add(pause)}
	if seen := e.cycle.began.Add(-informerLag); !g.roomAt.Before(seen) || !e.changedAt.Before(seen) { // perhaps too late for the cycle
		g.wakeLocked(e)
	}
	g.settleVainLocked(e)
	e.cycle = cycle{}
	delete(g.cycling, e)
}

// placedLocked is called when a member has a node, or had one.
func (g *Gangs) placedLocked(e *entry) {
	if !e.cycle.began.IsZero() {
		e.domain = e.cycle.plan.Domain
	}
	e.vain, e.refusal, e.cycle = false, gang.Rollback{}, cycle{}
	delete(g.cycling, e)
	delete(g.refused, e)
}

// RoomFreed has the gangs that were refused tried again when their pauses are over. The pauses keep these cycles, all together, at a share of
// the scheduler's time.
func (g *Gangs) RoomFreed() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roomAt = g.config.Clock.Now()
	for e := range g.refused {
		g.wakeLocked(e)
	}
	for e := range g.cycling {
		g.agenda.AddAt(e.key, g.roomAt.Add(cycleGrace))
	}
}

// settleCycleLocked ends a cycle in vain during or after which room has become free, and returns when to ask again; zero means not by time.
func (g *Gangs) settleCycleLocked(e *entry, now time.Time) (again time.Time) {
	if e.cycle.began.IsZero() || g.roomAt.Before(e.cycle.began) {
		return time.Time{}
	}
	if over := e.cycle.ended.Add(cycleGrace); now.Before(over) {
		return over
	}
	g.requeuedLocked(e, now)
	return time.Time{}
}

// wakeLocked has a gang activated when its pause is over, if it was refused.
func (g *Gangs) wakeLocked(e *entry) {
	if v := g.refused[e]; v != nil && !v.woken {
		v.woken = true
		g.agenda.AddAt(e.key, v.notBefore)
	}
}

// takeWokenLocked returns the member by which a group is to be activated now that has been woken, if there is one. An activation is lost if the
// group is not back in the queue: it can be woken again until its next cycle.
func (g *Gangs) takeWokenLocked(e *entry, now time.Time) []types.UID {
	v := g.refused[e]
	switch {
	case v == nil || !v.woken || e.gang.Closed():
		return nil
	case now.Before(v.notBefore):
		g.agenda.AddAt(e.key, v.notBefore)
		return nil
	}
	v.woken, v.notBefore = false, now.Add(v.pause)
	var unbound []types.UID
	for uid, m := range e.pods {
		if m.pod.Spec.NodeName == "" {
			unbound = append(unbound, uid)
		}
	}
	slices.Sort(unbound)
	return unbound[:min(1, len(unbound))]
}
