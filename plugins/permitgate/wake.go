package permitgate

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

const (
	// weighShare is how many times as long as weighing news took no other is weighed: a fiftieth of the scheduler's time at most.
	weighShare = 50
	// idleInterval is how long a scheduler has run no cycle when a gang is woken to have one, so that news is weighed.
	idleInterval = 2 * time.Millisecond
)

// tick is the agenda's key for what is not one gang's: turns, and news that no cycle weighs.
var tick = none

// wakes has gangs that wait for room looked at again when enough of it has appeared.
type wakes struct {
	gangs *gangs
	freed *freedRoom
	// cycle is when the last scheduling cycle began, in nanoseconds.
	cycle atomic.Int64
	// weighAt is when news is weighed next; only scheduling cycles use it.
	weighAt time.Time
}

// noteFreed takes in that room may have appeared.
func (w *wakes) noteFreed(e event) {
	w.freed.add(e)
	w.watch()
}

// watch makes sure that news is weighed even if no cycle comes by itself.
func (w *wakes) watch() {
	if w.gangs.waitingCount.Load() > 0 && w.freed.some.Load() {
		w.gangs.agenda.AddAt(tick, w.gangs.clock.Now().Add(idleInterval))
	}
}

// wakeForRoom looks, in a scheduling cycle, whether room that has appeared may be enough for gangs that wait for it. A gang that
// was refused knows how many of its members could be placed at most; what the changed nodes can take is added to that, and it comes
// back to the queue when the sum is enough.
func (w *wakes) wakeForRoom(nodes fwk.NodeInfoLister) {
	now := w.gangs.clock.Now()
	w.cycle.Store(now.UnixNano())
	if !w.freed.some.Load() || now.Before(w.weighAt) {
		return
	}
	events, all := w.freed.take(nodes)
	if w.gangs.waitingCount.Load() == 0 || len(events) == 0 && !all {
		return
	}
	type gaining struct {
		e       *entry
		refusal refusal
		gain    int
		hope    bool
	}
	var waiting []gaining
	w.gangs.mu.Lock()
	for e := range w.gangs.waiting {
		waiting = append(waiting, gaining{e: e, refusal: e.refusal})
	}
	w.gangs.mu.Unlock()
	for i := range waiting {
		g, r := &waiting[i], &waiting[i].refusal
		for _, e := range events {
			switch {
			case e.by == g.e.key:
			case r.gains == nil && e.by != none:
				g.hope = true
			case r.gains == nil:
				g.gain = r.missing
			default:
				g.gain += r.gains(e.node)
			}
			if r.gain+g.gain >= r.missing {
				break
			}
		}
		if all {
			g.gain = r.missing
		}
	}
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	now = w.gangs.clock.Now()
	for _, g := range waiting {
		if !g.e.refusal.at.Equal(g.refusal.at) {
			continue
		}
		g.e.refusal.gain += g.gain
		if sure := g.gain > 0 && g.e.refusal.gain >= g.e.refusal.missing; sure || g.hope {
			w.gangs.mayHelpLocked(g.e, sure, now)
		}
	}
	w.weighAt = now.Add(weighShare * time.Duration(now.UnixNano()-w.cycle.Load()))
}

// wakeFirst wakes the first gang that waits for room, and may be tried now, when there is news that no cycle weighs, because there
// is none. It returns when to look again; zero means not by time.
func (w *wakes) wakeFirst() time.Time {
	if !w.freed.some.Load() || w.gangs.waitingCount.Load() == 0 {
		return time.Time{}
	}
	now := w.gangs.clock.Now()
	if idle := time.Unix(0, w.cycle.Load()).Add(idleInterval); now.Before(idle) {
		return idle
	}
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	for _, e := range slices.SortedFunc(maps.Keys(w.gangs.waiting), func(a, b *entry) int { return a.rank().Compare(b.rank()) }) {
		concerns, sure := w.freed.concerns(e.key)
		if !concerns {
			continue
		}
		w.gangs.mayHelpLocked(e, sure, now)
		if e.gang.Phase() != gang.Backoff {
			return now.Add(idleInterval)
		}
	}
	return time.Time{} // the agenda has those whose backoff ends later
}
