package permitgate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/native"
)

// Native gangs are placed by kube-scheduler, in one cycle of the whole group. A group that it could not place backs
// off, with the defaults for up to ten seconds times the square root of its members, and no event reaches it there. An
// activation does, so a group that was refused is activated when room becomes free. It is still tried whenever its
// backoff is over, and preempts then, as without this plugin.

// groupCycle is a pod-group cycle of a native gang.
//
// kube-scheduler runs it twice: on the cluster as it is, and, if the group does not fit, on one without the pods that
// it may preempt. Both runs begin with the first member's PreFilter. There the group may be refused by a proof, or
// confined to a domain; that holds for this run alone.
type groupCycle struct {
	began, ended time.Time // the first PreFilter, and the last so far; zero without a cycle
	runs         int
	plan         groupPlan // of the first run
}

// groupPlan is what has been decided at the beginning of a run.
type groupPlan struct {
	// refusal is why the gang is refused; its Cause is empty when it is not.
	refusal gang.Rollback
	// domain is the value of the topology's label to which the run is confined, or empty. exhausted is true if there
	// was no other.
	domain    string
	exhausted bool
}

// vainCycle says that a native gang's last cycle has placed no member, and that the group is back in the queue.
type vainCycle struct {
	happened bool
	refusal  gang.Rollback // the proof by which it was refused, if it was
	// notBefore is before when the gang is not activated.
	notBefore time.Time
}

// nativeObjects are the objects of native gangs as the scheduler's informers show them.
type nativeObjects struct {
	groups     *native.PodGroups
	composites *native.Composites // nil if the scheduler knows none
	pods       corelisters.PodLister
}

// guards reports whether a pod is a member of a gang that is guarded.
func (g *gangs) guards(pod *v1.Pod) (guarded bool) {
	id, member := g.memberOf(pod)
	if !id.Native {
		return member
	}
	g.read(id, func(e *gangEntry) { guarded = e.guarded() })
	return guarded
}

// step runs f for a step of a pod in the scheduler, if it is a member of a gang that is guarded, and reports whether it
// is.
func (g *gangs) step(pod *v1.Pod, f func(e *gangEntry, now time.Time)) (id gangID, guarded bool) {
	id, member := g.memberOf(pod)
	if !member {
		return id, false
	}
	g.change(id, func(e *gangEntry, now time.Time) {
		if id.Native {
			g.catchUpLocked(e, pod, now)
		}
		if guarded = !id.Native || e.guarded(); guarded {
			f(e, now)
		}
	})
	return id, guarded
}

// catchUpLocked takes in what kube-scheduler may have seen of a native gang before this plugin has: objects that are
// not known yet, or pods with scheduling gates that are gone. Their events are on the way, those of their ends too.
func (g *gangs) catchUpLocked(e *gangEntry, pod *v1.Pod, now time.Time) {
	if e.group == nil {
		if group := g.natives.groups.Get(e.id.NamespacedName); group != nil {
			e.setGroup(group, now)
		}
	}
	if m := e.pods[pod.UID]; m == nil || len(m.pod.Spec.SchedulingGates) > len(pod.Spec.SchedulingGates) {
		if known, err := g.natives.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && known.UID == pod.UID && pods.Live(known) {
			e.updateMember(&member{pod: known}, false, now)
		}
	}
	g.catchUpHierarchyLocked(e, now)
}

// noteTried records that a member is tried in a pod-group cycle, or for a preemption in the end of one. It reports
// whether the pod's group is guarded.
func (g *gangs) noteTried(pod *v1.Pod) (guarded bool) {
	id, member := g.memberOf(pod)
	if !member {
		return false
	}
	g.update(id, func(e *gangEntry, now time.Time) {
		guarded = e.guarded()
		if !guarded {
			return
		}
		if e.cycle.began.IsZero() {
			e.cycle.began = now
		}
		e.cycle.ended = now
		e.gang.Tried(pod.UID)
	})
	return guarded
}

// endCycleLocked is called when a member of a native gang is about to enter the queue. If its group has been in a
// cycle, that has placed no member. A gang that was confined to a domain is tried in the next one.
func (g *gangs) endCycleLocked(e *gangEntry, now time.Time) {
	if e.cycle.began.IsZero() {
		return
	}
	cycle := e.cycle
	e.cycle = groupCycle{}
	g.restLocked(e, cycle.ended.Sub(cycle.began), now)
	e.lastCycle, e.woken = vainCycle{happened: true, refusal: cycle.plan.refusal}, false
	refused := cycle.plan.refusal.Cause != ""
	if refused {
		e.gang.CountRefusal(cycle.plan.refusal.Cause)
	}
	late := g.freed.since(cycle.began) || !e.changedAt.Before(cycle.began.Add(-informerLag)) // perhaps not seen in the cycle
	switch {
	case cycle.plan.domain != "":
		e.noteTried(cycle.plan.domain)
		g.wakeLocked(e, now)
	case late:
		e.lastCycle.notBefore = now.Add(2 * catchUpPause) // twice: room may become free all the time
		g.wakeLocked(e, now)
	}
	if cycle.plan.domain == "" && (cycle.plan.exhausted || !refused) {
		e.tried = nil // the next time it starts over
	}
}

// notePlaced records that a member has a node, or had one. A native gang's cycle has ended then.
func (e *gangEntry) notePlaced() {
	if !e.id.Native {
		return
	}
	if !e.cycle.began.IsZero() {
		e.confined = domain{e.topology().Key, e.cycle.plan.domain}
	}
	e.lastCycle, e.cycle = vainCycle{}, groupCycle{}
}

// settleCycleLocked ends a cycle that has placed no member, if room has become free since it began, or has the worker
// look again. Nothing says that it is over if another plugin's PreEnqueue keeps the group, as DefaultPreemption's does
// while it has pods evicted, so that follows from its last PreFilter.
func (g *gangs) settleCycleLocked(e *gangEntry, now time.Time) {
	if e.cycle.began.IsZero() || !g.freed.since(e.cycle.began) {
		return
	}
	if over := e.cycle.ended.Add(catchUpPause); now.Before(over) {
		g.agenda.AddAt(e.id, over)
		return
	}
	g.endCycleLocked(e, now)
}

// firstUnbound returns the member by which a native gang is activated: the oldest without a node, nil for none. The
// activation is lost if the group is not back in the queue; until its next cycle the gang can be woken again.
func (e *gangEntry) firstUnbound() (first *v1.Pod) {
	for _, m := range e.pods {
		if m.pod.Spec.NodeName == "" && (first == nil || byAge(m.pod, first, nil) < 0) {
			first = m.pod
		}
	}
	return first
}
