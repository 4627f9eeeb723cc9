package gang

import (
	"container/heap"
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
	at    time.Time
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
	r.at = now.Add(pause(first, r.tries))
	r.tries++
	return true
}

// pause is how long to wait before the next repetition.
func pause(first time.Duration, tries int) time.Duration {
	if tries >= 8 {
		return retryMax
	}
	return min(first<<tries, retryMax)
}

// taskKind is an action on one member.
type taskKind uint8

const (
	taskWake taskKind = iota
	taskReject
	tasks // how many there are
)

// task is an action that is repeated until inputs show that it has worked.
type task struct {
	tries int
	entry uint64 // the agenda's entry that counts; 0 when the task has ended
}

// stopTask ends a task.
func (m *member) stopTask(kind taskKind) { m.tasks[kind].entry = 0 }

// agenda has the tasks of all members by time, so that looking for what is due costs no more than what is due.
type agenda struct {
	entries []agendaEntry
	last    uint64
}

type agendaEntry struct {
	at     time.Time
	number uint64
	member *member
	kind   taskKind
}

// Len implements heap.Interface.
func (a *agenda) Len() int { return len(a.entries) }

// Less implements heap.Interface.
func (a *agenda) Less(i, j int) bool {
	if !a.entries[i].at.Equal(a.entries[j].at) {
		return a.entries[i].at.Before(a.entries[j].at)
	}
	return a.entries[i].number < a.entries[j].number
}

// Swap implements heap.Interface.
func (a *agenda) Swap(i, j int) { a.entries[i], a.entries[j] = a.entries[j], a.entries[i] }

// Push implements heap.Interface.
func (a *agenda) Push(x any) { a.entries = append(a.entries, x.(agendaEntry)) } //nolint:forcetypeassert // the heap's own

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := a.entries[len(a.entries)-1]
	a.entries = a.entries[:len(a.entries)-1]
	return last
}

// startTask begins a task: it is due at a time, and again and again after that.
func (g *Gang) startTask(m *member, kind taskKind, at time.Time) {
	m.tasks[kind].tries = 0
	g.scheduleTask(m, kind, at)
}

func (g *Gang) scheduleTask(m *member, kind taskKind, at time.Time) {
	g.agenda.last++
	m.tasks[kind].entry = g.agenda.last
	heap.Push(&g.agenda, agendaEntry{at: at, number: g.agenda.last, member: m, kind: kind})
}

// nextTask returns the first task that still counts; nil without one.
func (g *Gang) nextTask() *agendaEntry {
	for len(g.agenda.entries) > 0 {
		e := &g.agenda.entries[0]
		if e.member.tasks[e.kind].entry == e.number {
			return e
		}
		heap.Pop(&g.agenda)
	}
	return nil
}

// Act returns what is to be done now, and when to ask again. It reports each rollback and each completion once, and
// repeats the other actions, at growing intervals, until inputs show that they have worked.
func (g *Gang) Act(now time.Time) Actions {
	due := g.beginRehearsals()
	g.settle(now)
	actions := g.report
	g.report = Actions{}
	if len(actions.Rollbacks) > 0 {
		last := g.last
		actions.Rollback = &last
	}
	actions.Rehearse = due
	if g.complete() {
		if g.probe.takeDue(now) {
			actions.Probe = g.inState(memberWaiting)
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
	for e := g.nextTask(); e != nil && !e.at.After(now); e = g.nextTask() {
		m, kind := e.member, e.kind
		heap.Pop(&g.agenda)
		g.doTask(m, kind, now, &actions)
	}
	if e := g.nextTask(); e != nil {
		actions.askAgain(e.at)
	}
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
		if r.paused.IsZero() {
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
			m.stopTask(taskWake)
			actions.Activate = append(actions.Activate, m.uid)
		}
	}
	actions.askAgain(g.scout.at)
}

// doTask does a task that is due, and has it repeated.
func (g *Gang) doTask(m *member, kind taskKind, now time.Time, actions *Actions) {
	t := &m.tasks[kind]
	switch {
	case kind == taskReject && m.holds && !m.mayBeSentBack():
		actions.Reject = append(actions.Reject, m.uid)
	case kind == taskWake && t.tries < maxWakes && m.state == memberIdle && g.queueOpen() && g.letsIn(m):
		actions.Activate = append(actions.Activate, m.uid)
	default:
		m.stopTask(kind)
		return
	}
	g.scheduleTask(m, kind, now.Add(pause(retryMin, t.tries)))
	t.tries++
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
