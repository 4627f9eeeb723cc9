package permitgate

import (
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// A gang that has been refused for long would wait forever where small pods take every piece of room that
// is freed. It keeps what it finds then, one gang at a time, which the account of holds sees to: the oldest
// first. So that a gang whose room never comes does not keep it from everybody, it stops after a while.

// minCollecting is how long a starving gang collects at least: pods have 30 seconds by default to end, and what they
// leave comes no faster.
const minCollecting = time.Minute

// collecting is how far a starving gang is.
type collecting struct {
	since time.Time // zero while it does not collect
	pause time.Time // when it may begin again
	// starving means that the gang would fit if it were alone, and takes what becomes free.
	starving bool
}

// collectRoom keeps the slots that a gang without a plan has found, if it is starving.
func (s *Shared) collectRoom(logger klog.Logger, key types.NamespacedName, t *task, cluster *view, found []HoldSlot) {
	may := false
	s.look(key, func(e *entry, now time.Time) {
		if s.holdsLocked() == nil || e.gang.Phase() != gang.Backoff {
			return
		}
		ready := e.gang.ReadySince()
		may = !ready.IsZero() && now.Sub(ready) >= s.args.StarvationAfter.Duration && !now.Before(e.collecting.pause)
	})
	if !may {
		return
	}
	// A gang that would not fit if it were alone collects nothing.
	alone := t.request
	alone.Cluster, alone.Rules, alone.RulesKey = &vacant{cluster}, nil, nil
	fits := plan.Make(alone).Refusal == nil
	s.change(key, func(e *entry, now time.Time) {
		if e.gang.Phase() != gang.Backoff || e.held != nil && !e.held.collects {
			return
		}
		if e.collecting.starving = fits; !fits {
			if e.held != nil {
				s.stopCollectingLocked(e)
			}
			return
		}
		if len(found) > 0 && (e.held == nil || len(e.held.slots) <= len(found)) {
			s.collectLocked(logger, e, t, found, now)
		}
	})
}

// collectLocked has a gang hold slots that are not all that it needs, or are all of them ahead of its next attempt, and reports whether it
// may.
func (s *Shared) collectLocked(logger klog.Logger, e *entry, t *task, found []HoldSlot, now time.Time) bool {
	claim := t.claim
	claim.Wanted, claim.Filling = t.request.Need, true
	since := e.collecting.since
	if since.IsZero() {
		since = now
	}
	claim.Deadline = since.Add(s.collectsFor())
	if err := s.holds.Place(claim, found); err != nil {
		logger.V(4).Info("The gang may not collect room", "err", err)
		return false
	}
	e.collecting.since = since
	e.held = heldFor(claim.Gang, found)
	e.held.collects = true
	e.gang.SetCollects(true)
	logger.V(2).Info("A starving gang collects room", "slots", len(found), "wanted", claim.Wanted, "until", claim.Deadline)
	return true
}

// collectsFor returns how long a gang collects, and how long it lets others have the room when that was in vain.
func (s *Shared) collectsFor() time.Duration {
	return max(s.args.StarvationAfter.Duration, minCollecting)
}

// syncCollectedLocked gives back what a gang has collected when it has no use for it any more, or its time
// is over.
func (s *Shared) syncCollectedLocked(e *entry) {
	now := time.Now()
	over := !now.Before(e.collecting.since.Add(s.collectsFor()))
	switch e.gang.Phase() {
	case gang.Gathering, gang.Waiting, gang.Backoff:
		if !over {
			return
		}
	case gang.Pending, gang.Releasing, gang.Whole:
	}
	s.stopCollectingLocked(e)
	if over {
		e.collecting.pause = now.Add(s.collectsFor())
	}
}

// stopCollectingLocked gives back what a gang has collected.
func (s *Shared) stopCollectingLocked(e *entry) {
	h := e.held
	e.held = nil
	e.collecting = collecting{}
	e.gang.SetCollects(false)
	s.freedLocked(e, s.holds.Release(h.gang))
}

// vacant is the cluster as if no pod ran in it.
type vacant struct{ *view }

// Free implements plan.Cluster.
func (v *vacant) Free(i int, names []v1.ResourceName, into []int64) {
	allocatable := v.nodes[i].GetAllocatable()
	for j, name := range names {
		if name == v1.ResourcePods {
			into[j] = int64(allocatable.GetAllowedPodNumber())
		} else {
			into[j] = amountOf(allocatable, name)
		}
	}
}

// Pods implements plan.Cluster.
func (*vacant) Pods(int) iter.Seq[*v1.Pod] { return func(func(*v1.Pod) bool) {} }

// PortTaken implements plan.Cluster.
func (*vacant) PortTaken(int, *v1.ContainerPort) bool { return false }
