package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

const (
	// passDelay is how long after a kick a pass begins at the earliest. What kicks is often a part of something, such
	// as a scheduling cycle or the loss of a node, and a pass in the midst of it would see a part.
	passDelay = time.Millisecond
	// gatherInterval is the least time between two passes of the worker. Many pods come and go within it in a busy
	// cluster.
	gatherInterval = 20 * time.Millisecond
	// idleShare is how many times as long as a pass took the worker rests, up to restLimit.
	idleShare = 9
	restLimit = time.Second
	// reviewInterval is how often it is worked out again what reservations lack, in words: how many nodes are short of
	// what changes all the time.
	reviewInterval = time.Minute
	// reportInterval is the least time between two reports of a reservation of amounts, which may have thousands of
	// nodes.
	reportInterval = statusPause / 2
)

// RequestPass has the worker look at what has changed. It is cheap and may be called from any goroutine.
func (s *Server) RequestPass() {
	at := s.Clock.Now().Add(passDelay)
	if rested := s.rested.Load(); at.Before(*rested) {
		at = *rested
	}
	s.passes.AddAt(struct{}{}, at)
}

// runPasses looks at the reservations until ctx ends, when something happened and when time makes a difference.
func (s *Server) runPasses(ctx context.Context) {
	s.passes.Run(ctx, 1, func(struct{}) {
		began := s.Clock.Now()
		if rested := s.rested.Load(); began.Before(*rested) {
			s.passes.AddAt(struct{}{}, *rested) // it was kicked during the last pass
			return
		}
		if !s.placing.Load() {
			return // AwaitStart kicks
		}
		next := s.pass(ctx)
		ended := s.Clock.Now()
		rested := ended.Add(min(max(gatherInterval, idleShare*ended.Sub(began)), restLimit))
		s.rested.Store(&rested)
		if !next.IsZero() {
			s.passes.AddAt(struct{}{}, next)
		}
	})
}

// pass brings the slots in line with the reservations and the cluster, and wakes pods. It returns when the next one is
// due whatever happens; zero for never.
func (s *Server) pass(ctx context.Context) (next time.Time) {
	s.passing.Lock()
	defer s.passing.Unlock()
	s.noticeExpiry()
	s.applyReservations()
	var full []placement.GivenUp
	for more := true; more && ctx.Err() == nil; {
		result := s.Planner.Reconcile(func() placement.View {
			s.Ledger.UpdateSnapshot(s.snapshot)
			return snapshotView{s.snapshot, s}
		}, s.lags)
		full = append(full, result.GivenUp...)
		more = result.More
	}
	s.noteFull(ctx, full)
	lacking := s.takeStock()
	next = s.Waker.Wake(ctx, s.Planner.TakeToWake(), s.snapshot)
	for _, at := range []time.Time{s.nextExpiry(), lacking, s.surveyOwners()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// lags reports whether what the pass sees of a node is known to be old. Slots whose use has ended since the snapshot
// was taken, with their pods, would else seem to have no room.
func (s *Server) lags(nodeName string) bool {
	if s.snapshot.Behind(nodeName) {
		s.RequestPass()
		return true
	}
	return s.Lags(nodeName)
}

// takeStock asks the planner how the reservations stand of which something has changed, and now and then all that lack
// slots. It returns when that is due next.
func (s *Server) takeStock() (review time.Time) {
	touched := slices.AppendSeq(s.Planner.TakeTouched(), maps.Keys(s.postponed))
	clear(s.postponed)
	if unfilled := s.Planner.Unfilled(); len(unfilled) > 0 {
		s.mu.Lock()
		if now := s.Clock.Now(); now.Sub(s.reviewed) >= reviewInterval {
			s.reviewed = now
			touched = append(touched, unfilled...)
		}
		review = s.reviewed.Add(reviewInterval)
		s.mu.Unlock()
	}
	for _, uid := range touched {
		if due := s.reportDue(uid); due.After(s.Clock.Now()) {
			s.postponed[uid] = true
			if review.IsZero() || due.Before(review) {
				review = due
			}
			continue
		}
		began := s.Clock.Now()
		report, ok := s.Planner.Report(uid)
		if !ok {
			continue
		}
		s.mu.Lock()
		if e := s.entries[uid]; e != nil && e.applied != nil {
			moved := e.report != nil && !e.report.SameHolds(&report)
			e.report, e.reported, e.reportedAt = &report, e.applied, began
			if len(report.Full) == 0 {
				clear(e.causes)
				clear(e.daemons)
			}
			if since := began.Sub(e.written); moved && since >= statusPause {
				s.writer.Now(metav1.NamespaceNone, uid) // a new leader holds what the status says; first ones, and words, can wait
			} else {
				s.writeLaterLocked(uid, statusPause)
			}
		}
		s.mu.Unlock()
	}
	return review
}

// reportDue returns when a reservation is to be looked at; zero for at once.
func (s *Server) reportDue(uid types.UID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[uid]; e != nil && e.applied != nil && e.applied.nodes != nil && e.reported == e.applied {
		return e.reportedAt.Add(reportInterval)
	}
	return time.Time{}
}

// noteFull sends an Event about slots that were given up, which nothing else shows if there is room elsewhere. Those
// that made room for pods of DaemonSets go without.
func (s *Server) noteFull(ctx context.Context, full []placement.GivenUp) {
	for _, f := range full {
		taking := s.Ledger.LastTaking(f.Node)
		cause, daemon := becauseOf(taking), ofDaemonSet(taking.Pod)
		s.mu.Lock()
		e := s.entries[f.Claim]
		var about *v1alpha1.ZoneReservation
		if e != nil {
			e.causes[f.Node], e.daemons[f.Node] = cause, daemon
			about = e.object.Latest
		}
		s.mu.Unlock()
		lost := fmt.Sprintf("%d slots", f.Amount.Pods)
		if about != nil && about.Spec.Nodes != nil {
			lost = placement.Words(&f.Amount)
		}
		if about != nil {
			klog.FromContext(ctx).Info("What was held has lost its room", "reservation", about.Name, "node", klog.KRef("", f.Node),
				"lost", lost, "cause", strings.TrimPrefix(cause, ": "))
		}
		if recorder := s.Handle.EventRecorder(); recorder != nil && about != nil && !daemon {
			recorder.Eventf(reference(about), nil, v1.EventTypeWarning, v1alpha1.ReasonOvercommitted, "Reserving",
				"%s on node %s have lost their room%s", lost, f.Node, cause)
		}
	}
}

// ofDaemonSet reports whether a pod, which may be nil, is one of a DaemonSet.
func ofDaemonSet(pod *v1.Pod) bool {
	if pod == nil {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1"
}

// becauseOf puts what took the room of slots into words.
func becauseOf(t ledger.Taking) string {
	if t.By == ledger.NodeShrank {
		return ": the node has less to offer than before"
	}
	if t.Pod == nil {
		return ""
	}
	pod := t.Pod.Namespace + "/" + t.Pod.Name
	switch t.By {
	case ledger.PodResized:
		return ": pod " + pod + " was resized in place"
	case ledger.PodScheduled:
		return ": pod " + pod + ", which slots do not keep out, was placed there"
	default:
		return ": pod " + pod + " was bound there by another scheduler or by hand"
	}
}

// snapshotView shows a snapshot of the ledger.
type snapshotView struct {
	*ledger.Snapshot
	server *Server
}

// Len implements placement.View.
func (v snapshotView) Len() int { return len(v.Nodes()) }

// Generation implements placement.View.
func (v snapshotView) Generation(i int) int64 { return int64(v.Nodes()[i].Generation) }

// Recent implements placement.View: all nodes are compared.
func (snapshotView) Recent() (names []string, some bool) { return nil, false }

// Outdated implements placement.View.
func (v snapshotView) Outdated(i int) bool { return v.Behind(v.Nodes()[i].Node.Name) }

// Node implements placement.View.
func (v snapshotView) Node(i int) *v1.Node { return v.Nodes()[i].Node }

// Resources implements placement.View.
func (v snapshotView) Resources(i int) (allocatable, requested ledger.Resources) {
	n := v.Nodes()[i]
	return n.Allocatable, n.Requested
}

// Owned implements placement.View.
func (v snapshotView) Owned(i int) map[types.UID]ledger.Resources {
	return v.server.OwnedOn(v.Snapshot, v.Nodes()[i])
}
