package gang

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// What has to be repeated until it is seen to have worked is repeated after retryMin, then after
	// twice as long each time, up to retryMax.
	retryMin = 5 * time.Millisecond
	retryMax = time.Second
	// bindRetry is how long a member waits whose bind has failed, if the gang lacks nothing else.
	bindRetry = time.Second
	// maxWakes bounds how often a member is activated that is not seen in a cycle: about ten seconds.
	// It may be in the active queue already, or be kept by another plugin, whose events then move it.
	maxWakes = 16
)

// retry spaces the repetitions of an action.
type retry struct {
	at    time.Time // when it is due next; zero for a task that has not begun, or has ended
	tries int
	first time.Duration // between the first two; retryMin when it is 0
}

// start makes the action due at once.
func (r *retry) start(now time.Time) { *r = retry{at: now, first: r.first} }

// takeDue reports whether the action is to be done now, and then sets the time of the next repetition.
func (r *retry) takeDue(now time.Time) bool {
	if now.Before(r.at) {
		return false
	}
	first := r.first
	if first == 0 {
		first = retryMin
	}
	r.at = now.Add(doubled(first, r.tries, retryMax))
	r.tries++
	return true
}

// taskKind is an action on one member that is repeated until inputs show that it has worked.
type taskKind uint8

const (
	taskWake taskKind = iota
	taskReject
	tasks // how many there are
)

// startTask begins a task: it is due at a time, and again and again after that.
func (g *Gang) startTask(m *member, kind taskKind, at time.Time) {
	g.stopTask(m, kind)
	m.tasks[kind] = retry{at: at}
	g.openTasks++
	if g.tasksAt.IsZero() || at.Before(g.tasksAt) {
		g.tasksAt = at
	}
}

// stopTask ends a task, if it has begun.
func (g *Gang) stopTask(m *member, kind taskKind) {
	if m.tasks[kind].at.IsZero() {
		return
	}
	m.tasks[kind].at = time.Time{}
	g.openTasks--
	if g.openTasks == 0 {
		g.tasksAt = time.Time{}
	}
}

// doTasks does the tasks of all members that are due. They are not looked through again before retryMin has passed.
func (g *Gang) doTasks(now time.Time, actions *Actions) {
	next := time.Time{}
	for _, m := range g.members {
		for kind := range tasks {
			t := &m.tasks[kind]
			if !t.at.IsZero() && t.takeDue(now) {
				g.doTask(m, kind, actions)
			}
			if !t.at.IsZero() && (next.IsZero() || t.at.Before(next)) {
				next = t.at
			}
		}
	}
	g.tasksAt = next
	if !next.IsZero() {
		g.tasksAt = later(next, now.Add(retryMin))
	}
	slices.Sort(actions.Activate)
	slices.Sort(actions.Reject)
}

// Act returns what is to be done now, and when to ask again. It reports each rollback and each completion once, and
// repeats the other actions, at growing intervals, until inputs show that they have worked.
func (g *Gang) Act(now time.Time) Actions {
	due := g.beginRehearsals()
	g.settle(now)
	actions := g.report
	g.report = Actions{}
	if actions.Rollback != nil && g.last.Cause != "" {
		last := g.last // the backoff may have grown since
		actions.Rollback = &last
	}
	actions.Rehearse = due
	if g.complete() {
		if g.probe.takeDue(now) {
			for _, other := range g.together((*Gang).placed) {
				actions.Probe = append(actions.Probe, other.inState(memberWaiting)...)
			}
		}
		actions.askAgain(g.probe.at)
	}
	if g.phase == Queued && g.admitted {
		g.activateScout(now, &actions)
	}
	if g.config.Native {
		activate, again := g.reopen(now)
		actions.Activate = append(actions.Activate, activate...)
		actions.askAgain(again)
	}
	if !g.tasksAt.IsZero() && !now.Before(g.tasksAt) {
		g.doTasks(now, &actions)
	}
	actions.askAgain(g.tasksAt)
	g.askAtDeadlines(now, &actions)
	return actions
}

// askAgain has Act called at a time, or earlier; zero means never.
func (a *Actions) askAgain(at time.Time) {
	if !at.IsZero() && (a.Next.IsZero() || at.Before(a.Next)) {
		a.Next = at
	}
}

// askAtDeadlines has Act called when the gang's state changes by time alone.
func (g *Gang) askAtDeadlines(now time.Time, actions *Actions) {
	if r := g.round; r != nil {
		if !g.rehearsing() {
			actions.askAgain(r.deadline)
		}
		if g.stalls() {
			actions.askAgain(later(r.stepAt.Add(stallLimit), now.Add(retryMax)))
		}
		if len(r.firsts) > 0 {
			actions.askAgain(r.restAt)
		}
	}
	if g.count[memberSucceeded] > 0 && !g.countSucceeded {
		actions.askAgain(g.countSucceededAt())
	}
	if g.preparing() > 0 && g.committedOrLater() < g.MinMember() {
		actions.askAgain(g.prepareBy)
	}
	if g.phase == Backoff {
		actions.askAgain(g.backoffUntil)
	}
	if at := g.strandedAt(); !g.partialSince.IsZero() && now.Before(at) {
		actions.askAgain(at)
	}
}

// activateScout activates a scout, and another one if none has come to a cycle after a while.
func (g *Gang) activateScout(now time.Time, actions *Actions) {
	if g.scout.takeDue(now) {
		if m := g.pickScout(); m != nil {
			m.scouted++
			m.letIn = true
			g.stopTask(m, taskWake)
			actions.Activate = append(actions.Activate, m.uid)
		}
	}
	actions.askAgain(g.scout.at)
}

// doTask does a task that is due, or ends it.
func (g *Gang) doTask(m *member, kind taskKind, actions *Actions) {
	switch {
	case kind == taskReject && m.holds && !m.mayBeSentBack():
		actions.Reject = append(actions.Reject, m.uid)
	case kind == taskWake && m.tasks[kind].tries <= maxWakes && m.state == memberIdle && g.queueOpen() && g.letsIn(m):
		actions.Activate = append(actions.Activate, m.uid)
	default:
		g.stopTask(m, kind)
	}
}

// queueOpen reports whether members may be in the queue at all.
func (g *Gang) queueOpen() bool { return g.phase != Pending && g.phase != Backoff }

func (g *Gang) inState(state memberState) []types.UID {
	uids := make([]types.UID, 0, g.count[state])
	for uid, m := range g.members {
		if m.state == state {
			uids = append(uids, uid)
		}
	}
	return uids
}
