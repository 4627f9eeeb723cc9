package permitgate

import (
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
var tick = types.NamespacedName{}

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
	gain := make([]int, len(waiting))
	for i := range waiting {
		r := &waiting[i].refusal
		for _, e := range events {
			switch {
			case e.by == waiting[i].e.key:
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
		if !e.refusal.at.Equal(waiting[i].refusal.at) || gain[i] == 0 {
			continue
		}
		if e.refusal.gain += gain[i]; e.refusal.gain >= e.refusal.missing {
			w.gangs.roomLocked(e, now)
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

// prompt wakes the first gang that waits for room when there is news that no cycle weighs, because there is none. It
// returns when to look again; zero means not by time.
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
	var first *entry
	for e := range w.gangs.waiting {
		if e.gang.Phase() == gang.Backoff && (first == nil || e.rank().compare(first.rank()) < 0) && w.news.concerns(e.key) {
			first = e
		}
	}
	if first == nil {
		return time.Time{}
	}
	w.gangs.roomLocked(first, now)
	return now.Add(idleInterval)
}
