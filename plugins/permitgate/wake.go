package permitgate

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// none is the key of no gang.
var none = types.NamespacedName{}

// wakes has gangs that wait for room looked at again when enough of it has appeared.
type wakes struct {
	gangs *gangs
	news  *news
	// cycle is when the last scheduling cycle began, in nanoseconds.
	cycle atomic.Int64
	// weighAt is when news is weighed next; only scheduling cycles use it.
	weighAt time.Time
}

// hear takes in news of room.
func (w *wakes) hear(e event) {
	w.news.add(e)
	w.watch()
}

// watch makes sure that news is weighed even if no cycle comes by itself.
func (w *wakes) watch() {
	if w.gangs.short.Load() > 0 && w.news.some.Load() {
		w.gangs.agenda.AddAt(tick, w.gangs.clock.Now().Add(idleInterval))
	}
}

// weigh looks, in a scheduling cycle, whether room that has appeared may be enough for gangs that wait for it. A gang that
// was refused knows how many of its members could be placed at most; what the changed nodes can take is added to that, and it comes
// back to the queue when the sum is enough.
func (w *wakes) weigh(nodes fwk.NodeInfoLister) {
	now := w.gangs.clock.Now()
	w.cycle.Store(now.UnixNano())
	if !w.news.some.Load() || now.Before(w.weighAt) {
		return
	}
	events, all := w.news.take(nodes)
	if w.gangs.short.Load() == 0 || len(events) == 0 && !all {
		return
	}
	type gaining struct {
		e       *entry
		refusal refusal
	}
	var waiting []gaining
	w.gangs.mu.Lock()
	for e := range w.gangs.waiting {
		waiting = append(waiting, gaining{e, e.refusal})
	}
	w.gangs.mu.Unlock()
	gain, hope := make([]int, len(waiting)), make([]bool, len(waiting))
	for i := range waiting {
		r := &waiting[i].refusal
		for _, e := range events {
			switch {
			case e.by == waiting[i].e.key:
			case r.gains == nil && e.by != none:
				hope[i] = true
			case r.gains == nil:
				gain[i] = r.missing
			default:
				gain[i] += r.gains.Node(e.node)
			}
			if r.gain+gain[i] >= r.missing {
				break
			}
		}
		if all {
			gain[i] = r.missing
		}
	}
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	now = w.gangs.clock.Now()
	for i := range waiting {
		e := waiting[i].e
		if !e.refusal.at.Equal(waiting[i].refusal.at) {
			continue
		}
		if e.refusal.gain += gain[i]; gain[i] > 0 && e.refusal.gain >= e.refusal.missing {
			w.gangs.roomLocked(e, now)
		} else if hope[i] {
			w.gangs.hopeLocked(e, now)
		}
	}
	w.weighAt = now.Add(weighShare * time.Duration(now.UnixNano()-w.cycle.Load()))
}

// roomLocked says that room may help a gang.
func (g *gangs) roomLocked(e *entry, now time.Time) {
	e.tried = nil
	e.gang.Room(now)
	g.settledLocked(e)
	g.agenda.Add(e.key)
}

// hopeLocked says that something has changed that may help a gang, or may have been its own doing or that of another gang.
func (g *gangs) hopeLocked(e *entry, now time.Time) {
	e.tried = nil
	e.gang.Hope(now)
	g.settledLocked(e)
	g.agenda.Add(e.key)
}

// prompt wakes the first gang that waits for room, and may be tried now, when there is news that no cycle weighs, because there
// is none. It returns when to look again; zero means not by time.
func (w *wakes) prompt() time.Time {
	if !w.news.some.Load() || w.gangs.short.Load() == 0 {
		return time.Time{}
	}
	now := w.gangs.clock.Now()
	if idle := time.Unix(0, w.cycle.Load()).Add(idleInterval); now.Before(idle) {
		return idle
	}
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	for _, e := range slices.SortedFunc(maps.Keys(w.gangs.waiting), func(a, b *entry) int { return a.rank().compare(b.rank()) }) {
		switch concerns, sure := w.news.concerns(e.key); {
		case !concerns:
			continue
		case sure:
			w.gangs.roomLocked(e, now)
		default:
			w.gangs.hopeLocked(e, now)
		}
		if e.gang.Phase() != gang.Backoff {
			return now.Add(idleInterval)
		}
	}
	return time.Time{} // the agenda has those whose backoff ends later
}
