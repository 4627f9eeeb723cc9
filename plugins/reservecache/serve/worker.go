package serve

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
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
	// tick is how often statuses, owners and the leases of others are looked at, whatever happens.
	tick = 10 * time.Second
	// idleAfter is how long after the last scheduling cycle the cluster counts as idle: then the ledger tells what a
	// cycle would hold.
	idleAfter = time.Second
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
			s.prepare()
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

// prepare works out which reservations apply, in a process that does not lead.
func (s *Server) prepare() {
	s.passing.Lock()
	defer s.passing.Unlock()
	s.noticeExpiry()
	s.apply()
}

// pass works out which reservations apply and how they stand, and wakes pods. It returns when the next one is due
// whatever happens; zero for never.
func (s *Server) pass(ctx context.Context) (next time.Time) {
	s.passing.Lock()
	defer s.passing.Unlock()
	s.noticeExpiry()
	holders, survey := s.decideHolders(ctx), s.surveyPods()
	s.apply()
	idle, woken := s.publish(klog.FromContext(ctx))
	for _, at := range []time.Time{s.nextExpiry(), holders, survey, idle, woken} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// published is what was last published.
type published struct {
	// floor is the one of which the reports are, and claims are those for which it was settled.
	floor   *floor.Floor
	claims  *Claims
	reports map[types.UID]*floor.Report
	// derived is set if the floor was made of the ledger, of this generation, and no room was left to nominated pods,
	// whose end changes no generation: another one would be the same.
	derived    bool
	generation uint64
	// held is what was held on each node, as of the last look; nil if no pod waited then.
	held map[string]ledger.Resources
}

// publish takes over how claims stand: from the floor of the cycles, and once there are no cycles from one that is made
// of that and the ledger. The last cycle may have seen less than the ledger knew: kube-scheduler's
// cache forgets a pod after Unreserve, and the handlers of one informer hear of an event in no order. publish returns
// when the cluster counts as idle, if that makes a difference, and when pods are to be woken.
func (s *Server) publish(logger klog.Logger) (idle, next time.Time) {
	claims, now := s.Claims(), s.Clock.Now()
	if len(claims.List) == 0 && (s.published.claims == nil || len(s.published.claims.List) == 0) && s.Waker.Empty() {
		return time.Time{}, time.Time{}
	}
	var woken Woken
	var touched []string // slots may have come and gone there since the last look, and kept pods off meanwhile
	s.Floor.Read(func(f *floor.Floor, settled Settled) {
		touched, s.floorVersion = f.ChangedSince(s.floorVersion), f.Version()
		if idle = settled.At.Add(idleAfter); idle.After(now) {
			woken = s.takeOver(f, settled.Claims, touched, now)
		}
	})
	if !idle.After(now) {
		woken, idle = s.publishIdle(claims, touched, now)
	}
	if len(woken.Pods) > 0 { // the floor is not locked: the scheduling queue is, in hints that read the floor
		s.Waker.Activate(logger, woken.Pods)
	}
	return idle, woken.Next
}

// publishIdle is publish for an idle cluster. It returns when to look again whatever happens; zero for never.
func (s *Server) publishIdle(claims *Claims, touched []string, now time.Time) (woken Woken, again time.Time) {
	generation := s.Ledger.Generation()
	if len(touched) == 0 && s.published.derived && s.published.generation == generation && s.published.claims == claims {
		return s.Waker.Choose(nil, nil, claims, false, now), time.Time{} // of those whose backoff has ended
	}
	f, nominated := s.derive(claims)
	woken = s.takeOver(f, claims, touched, now)
	if nominated {
		return woken, now.Add(statusPause) // to see whether it has ended
	}
	s.published.derived, s.published.generation = true, generation
	return woken, time.Time{}
}

// derive returns what the next cycle would hold, if it saw the nodes as the ledger does: that is a copy of what the
// cycles hold, brought up to date. A claim that no cycle has seen begins with what was last published. derive reports
// whether room was left to nominated pods.
func (s *Server) derive(claims *Claims) (f *floor.Floor, nominated bool) {
	f = floor.New(s.Fraction)
	s.Floor.Read(func(held *floor.Floor, settled Settled) {
		if settled.Claims != nil {
			f = held.Clone()
		}
	})
	list := slices.Clone(claims.List)
	for i := range list {
		if r := s.published.reports[list[i].UID]; r != nil {
			list[i].Seed = r.Seed()
		}
	}
	f.SetClaims(list)
	s.Ledger.UpdateSnapshot(s.snapshot)
	names := make(map[string]bool, len(s.snapshot.Nodes()))
	for _, n := range s.snapshot.Nodes() {
		names[n.Node.Name] = true
		at := &floor.Node{
			Object: n.Node, Allocatable: n.Allocatable, Requested: n.Requested, Nominated: s.Nominated(n.Node.Name),
			Owned: claims.OwnedOf(s.Ledger, n.Pods),
		}
		nominated = nominated || !at.Nominated.IsZero()
		f.Update(at)
	}
	f.RemoveOthers(names)
	f.Settle()
	return f, nominated
}

// takeOver publishes how the claims for which a floor was settled stand, and chooses pods to wake: those that fit on a
// node that was touched, or on which something else is held.
func (s *Server) takeOver(f *floor.Floor, claims *Claims, touched []string, now time.Time) Woken {
	before := s.published
	s.published = published{floor: f, claims: claims, reports: make(map[types.UID]*floor.Report, len(claims.List))}
	s.mu.Lock()
	for i := range claims.List {
		uid := claims.List[i].UID
		r := before.reports[uid]
		if r == nil || before.floor != f || r.Version != f.VersionOf(uid) {
			r, _ = f.Report(uid)
		}
		s.published.reports[uid] = r
		if e := s.entries[uid]; e != nil && e.applied != nil && r != nil && (e.report == nil || e.report != r && !e.report.Same(r)) {
			s.setReportLocked(uid, e, r, now)
		}
	}
	s.held = f.Held()
	s.mu.Unlock()
	if s.Waker.Empty() {
		return Woken{}
	}
	s.published.held = f.HeldOn()
	edited := before.claims != claims
	return s.Waker.Choose(f, s.changedNodes(before.held, touched, edited), claims, edited, now)
}

// setReportLocked takes over how a reservation stands, and has its status written: at once if something else is held,
// by which a new leader goes.
func (s *Server) setReportLocked(uid types.UID, e *entry, r *floor.Report, now time.Time) {
	moved := e.report != nil && !e.report.SameSlots(r)
	e.report = r
	if moved && now.Sub(e.written) >= statusPause {
		s.writer.Now(metav1.NamespaceNone, uid)
	} else {
		s.writeLaterLocked(uid, statusPause)
	}
}

// changedNodes returns the nodes that were touched, and those on which something else is held than before, or for others,
// as the ledger has them. After an edit of a reservation these are all on which something is held.
func (s *Server) changedNodes(before map[string]ledger.Resources, touched []string, edited bool) (changed []floor.At) {
	names := sets.New(touched...)
	for name, now := range s.published.held {
		if former := before[name]; edited || !former.Equal(&now) {
			names.Insert(name)
		}
	}
	for name := range before {
		if _, still := s.published.held[name]; !still {
			names.Insert(name)
		}
	}
	for name := range names {
		if state, there := s.Ledger.State(name); there {
			changed = append(changed, s.published.claims.At(s.Ledger, name, state))
		}
	}
	return changed
}
