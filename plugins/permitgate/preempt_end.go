package permitgate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// barredFor is how long a pod that did not go is not asked to go again. What keeps it, an admission policy say, is made for longer.
const barredFor = 5 * time.Minute

// awaitVictims keeps the room of a plan while pods end, and gives it back when the plan does not stand any more.
func (p *PermitGate) awaitVictims(logger klog.Logger, key types.NamespacedName, t *task, cluster *view, pr *preemption, detail string) answer {
	s := p.shared
	var awaited map[types.UID]string
	given, evicted := false, 0
	s.look(key, func(*entry, time.Time) { awaited, given, evicted = pr.awaited(), pr.given, pr.evicted() })
	gone := cluster.still(awaited)
	if len(gone) > 0 && !given {
		request := t.request
		request.Removed, request.Cluster = gone, cluster.without(gone)
		if result := plan.Make(request); result.Refusal == nil && t.minResources.lacking(cluster.without(gone)) == "" {
			if a := s.claimRoom(key, t, pr, holdSlotsWithout(result.Slots, cluster, gone), detail); a.reason != gang.ReasonNone {
				return a
			}
		}
	}
	// Either the pods have left and others have their room, or it would not be enough.
	a := answer{gang.ReasonBackoff, detail}
	if len(gone) > 0 && evicted > 0 {
		a.detail += fmt.Sprintf("; had %s evicted, which does not make room any more", count(evicted, "pod"))
	}
	s.change(key, func(e *entry, now time.Time) {
		if e.preempting != pr {
			return
		}
		s.giveBackLocked(e)
		if len(gone) == 0 {
			s.setPreemptingLocked(e, nil)
		}
		e.gang.NoPlan("", a.detail, now)
	})
	logger.V(2).Info("The gang gives back the room that it had preempted", "detail", a.detail, "stillEnding", len(gone))
	return a
}

// giveBackLocked ends the claim on the room of victims. Nobody is evicted from then on, and only those that have been evicted are still
// waited for.
func (s *Shared) giveBackLocked(e *entry) {
	pr := e.preempting
	if pr == nil || pr.given {
		return
	}
	pr.given = true
	preemptions.WithLabelValues("given_up").Inc()
	s.spareLocked(e, pr)
	e.gang.SetCollects(false)
	if h := e.held; h != nil && h.awaits {
		e.held = nil
		s.freedLocked(e, s.holds.Release(h.gang))
	}
}

// spareLocked waits no longer for victims that stay, once the room has been given back.
func (s *Shared) spareLocked(e *entry, pr *preemption) {
	for i := range pr.victims {
		if v := &pr.victims[i]; !v.asked {
			delete(pr.left, v.pod.UID)
		}
	}
	if e.preempting == pr && (pr.waits() == 0 || pr.evicted() == 0) {
		s.setPreemptingLocked(e, nil)
	}
}

// failedPreemption is why a preemption came to nothing.
type failedPreemption struct {
	why  string
	pods []types.UID // that did not go
}

// failLocked ends a preemption because pods do not go: they are not asked again for a while, and the reason is told.
func (s *Shared) failLocked(e *entry, f failedPreemption, now time.Time) {
	for uid, until := range s.barred {
		if !now.Before(until) {
			delete(s.barred, uid)
		}
	}
	for _, uid := range f.pods {
		s.barred[uid] = now.Add(barredFor)
	}
	e.failed = f
	e.told.preemptionFailed = f.why + "; the gang gives back the room that it held"
	s.giveBackLocked(e)
	s.queue.Add(e.key)
}

// failureLocked says why the gang's last preemption failed, as long as that may keep it from the next one.
func (s *Shared) failureLocked(e *entry, now time.Time) string {
	if now.Before(e.preemptAfter) {
		return e.failed.why
	}
	for _, uid := range e.failed.pods {
		if until, ok := s.barred[uid]; ok && now.Before(until) {
			return e.failed.why
		}
	}
	return ""
}

// barredLocked returns the pods that are not to be asked to go.
func (s *Shared) barredLocked(now time.Time) map[types.UID]bool {
	var barred map[types.UID]bool
	for uid, until := range s.barred {
		if now.Before(until) {
			if barred == nil {
				barred = make(map[types.UID]bool, len(s.barred))
			}
			barred[uid] = true
		}
	}
	return barred
}

// syncPreemptionLocked gives the room back when the gang has no use for it any more, or has waited for too long.
func (s *Shared) syncPreemptionLocked(e *entry) {
	pr, now := e.preempting, time.Now()
	over := !now.Before(pr.until)
	switch e.gang.Phase() {
	case gang.Gathering, gang.Waiting, gang.Backoff:
		if !over {
			return
		}
		e.preemptAfter = now.Add(s.args.MaxBackoff.Duration)
		if f := pr.overdue(); !pr.given && len(f.pods) > 0 {
			s.failLocked(e, f, now)
		}
		s.giveBackLocked(e)
	case gang.Pending, gang.Releasing, gang.Whole:
		s.giveBackLocked(e)
	}
	if over {
		s.setPreemptingLocked(e, nil)
	}
}

// overdue says who has not left in time.
func (pr *preemption) overdue() failedPreemption {
	var f failedPreemption
	for uid, left := range pr.left {
		if !left {
			f.pods = append(f.pods, uid)
		}
	}
	slices.SortFunc(f.pods, func(a, b types.UID) int { return cmp.Compare(pr.names[a], pr.names[b]) })
	switch n := len(f.pods); n {
	case 0:
	case 1:
		f.why = fmt.Sprintf("pod %s did not leave node %s in time", pr.names[f.pods[0]], pr.nodes[f.pods[0]])
	default:
		f.why = fmt.Sprintf("pod %s on node %s and %s did not leave in time", pr.names[f.pods[0]], pr.nodes[f.pods[0]], count(n-1, "other"))
	}
	return f
}

// setPreemptingLocked sets for whom the gang waits, and remembers that by pod.
func (s *Shared) setPreemptingLocked(e *entry, pr *preemption) {
	if e.preempting == pr {
		return
	}
	if old := e.preempting; old != nil {
		for uid := range old.nodes {
			if delete(s.awaiting[uid], e); len(s.awaiting[uid]) == 0 {
				delete(s.awaiting, uid)
			}
		}
	}
	if e.preempting = pr; pr == nil {
		return
	}
	for uid := range pr.nodes {
		if s.awaiting[uid] == nil {
			s.awaiting[uid] = map[*entry]struct{}{}
		}
		s.awaiting[uid][e] = struct{}{}
	}
}

// placedLocked notes that the gang has a plan: whoever has not been evicted yet stays.
func (s *Shared) placedLocked(e *entry) {
	if e.preempting != nil && !e.preempting.given {
		preemptions.WithLabelValues("placed").Inc()
	}
	s.setPreemptingLocked(e, nil)
	e.failed = failedPreemption{}
}

// podLeft hears that a pod has left its node, and reports whether the gang has waited for that. The last one ends the
// gang's backoff.
func (s *Shared) podLeft(e *entry, uid types.UID, now time.Time) bool {
	pr := e.preempting
	if pr == nil {
		return false
	}
	if _, awaited := pr.left[uid]; !awaited {
		return false
	}
	pr.left[uid] = true
	if pr.waits() == 0 {
		if pr.given {
			s.setPreemptingLocked(e, nil)
		} else {
			e.gang.SetCollects(true) // no pause between two looks: the room is there
		}
		e.gang.Room(now)
		s.queue.Add(e.key)
	}
	return true
}

// victimGone tells the gangs that wait for a pod, if there are any.
func (s *Shared) victimGone(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.barred, uid)
	now := time.Now()
	for e := range maps.Clone(s.awaiting[uid]) { // who has nobody left to wait for is struck off
		if s.podLeft(e, uid, now) {
			s.settledLocked(e)
		}
	}
}

// awaited is victimGone for one gang, where the scheduler's own view of the node has got the room.
func (s *Shared) awaited(key types.NamespacedName, uid types.UID) (awaited bool) {
	s.look(key, func(e *entry, now time.Time) { awaited = s.podLeft(e, uid, now) })
	return awaited
}
