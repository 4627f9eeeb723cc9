package rebalance

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/survival"
)

// look is what one reading of the cluster leads to.
type look struct {
	*Controller
	cluster *snapshot.Snapshot
	census  *census.Census
	all     []*v1alpha1.ZoneRebalance
	// missing says what is not known of the cluster; empty if all is known.
	missing string
	// searched: the time of this look is used up.
	searched bool
}

func (c *Controller) newLook(cluster *snapshot.Snapshot, all []*v1alpha1.ZoneRebalance) *look {
	return &look{
		Controller: c, cluster: cluster, census: census.Take(cluster), all: all,
		missing: strings.Join(c.shared.Unknown(cluster), "; "),
	}
}

// subject is a ZoneRebalance as one look sees it.
type subject struct {
	*v1alpha1.ZoneRebalance
	// stored is what was read.
	stored   *v1alpha1.ZoneRebalance
	options  rebalance.Options
	standing rebalance.Standing
	observed *act.Observed
	// waits says what the next move waits for, empty if nothing; wait is after how long to look again.
	waits string
	wait  time.Duration
}

// waitFor says what the next move waits for, and until when at most, unless that is zero.
func (s *subject) waitFor(what string, until time.Time) {
	s.waits = what
	if !until.IsZero() {
		s.wait = min(s.wait, max(0, until.Sub(s.observed.Now)))
	}
}

// serve does the next thing about a ZoneRebalance, which it modifies, and returns after how long it wants to look
// again.
func (l *look) serve(ctx context.Context, r *v1alpha1.ZoneRebalance) time.Duration {
	for _, other := range l.all {
		if l.replaced[other.UID][other.ResourceVersion] {
			return time.Second // what was written last has not come back yet: moves that are under way may be in it
		}
	}
	delete(l.replaced, r.UID)
	now := l.now()
	s := &subject{ZoneRebalance: r, stored: r.DeepCopy(), wait: refreshInterval, observed: &act.Observed{Now: now}}
	selects, known := l.ready(s)
	if !known {
		return l.conclude(ctx, s)
	}
	s.options = rebalance.Options{Selects: selects, EvictLocalStorage: r.Spec.EvictLocalStorage, ReadyFor: l.options.ReadyFor}
	s.standing = rebalance.Read(l.census, s.options)
	s.observed = &act.Observed{
		Now: now, Excess: s.standing.ExcessOf, Replicas: s.standing.Replicas,
		Runs: func(m *v1alpha1.RebalanceMove) bool { return s.standing.Pod(m.Namespace, m.Name, m.UID) != nil },
	}
	act.Follow(r, s.observed)
	r.Status.Excess = s.standing.Excess
	if r.Spec.Mode == v1alpha1.RebalanceEvict {
		r.Status.Plan, r.Status.Planned = nil, 0
		l.endPlanning(r.UID)
		if l.mayBegin(s) {
			return l.begin(ctx, s)
		}
	} else {
		l.plan(ctx, s)
	}
	return l.conclude(ctx, s)
}

// conclude sets the conditions and writes the status if it is another one.
func (l *look) conclude(ctx context.Context, s *subject) time.Duration {
	if s.observed.Replicas != nil {
		if _, why, _ := act.MayBegin(s.ZoneRebalance, s.observed.Now); s.waits == "" && s.Spec.Mode == v1alpha1.RebalanceEvict {
			s.waits = why
		}
		if at := act.NextChange(s.ZoneRebalance, s.observed); !at.IsZero() {
			s.waitFor(s.waits, at)
		}
		act.Conclude(s.ZoneRebalance, s.waits, s.observed.Now)
	}
	if !equality.Semantic.DeepEqual(s.stored.Status, s.Status) {
		if !l.write(ctx, s.ZoneRebalance) {
			return retryInterval
		}
		l.tell(ctx, s.stored, s.ZoneRebalance)
	}
	return s.wait
}

// ready sets the condition Ready, and returns which pods are selected, and whether the spec is valid and the cluster
// known.
func (l *look) ready(s *subject) (selects func(*v1.Pod) bool, known bool) {
	now, status := s.observed.Now, &s.Status
	set := func(value metav1.ConditionStatus, reason, message string) {
		act.SetCondition(s.ZoneRebalance, v1alpha1.ConditionReady, value, reason, message, now)
	}
	status.ObservedGeneration = s.Generation
	selects, err := survival.Selects(s.Spec.Workloads)
	switch {
	case err != nil:
		set(metav1.ConditionFalse, v1alpha1.ReasonInvalid, err.Error())
		return nil, false
	case l.missing != "":
		set(metav1.ConditionUnknown, v1alpha1.ReasonSnapshotIncomplete, l.missing)
		return nil, false
	}
	if zones := rebalance.ZonesDigest(l.census, selects); status.Zones != zones {
		status.Zones, status.ZonesSince = zones, metav1.NewTime(now.Truncate(time.Second))
	}
	settled := status.ZonesSince.Add(act.After(s.ZoneRebalance))
	before := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case now.Before(settled):
		set(metav1.ConditionFalse, v1alpha1.ReasonSettling, "zones or policies have changed at "+status.ZonesSince.UTC().Format(time.RFC3339))
		s.waitFor("the zones to settle", settled)
	case before != nil && (before.Reason == v1alpha1.ReasonEvictionForbidden || before.Reason == v1alpha1.ReasonReplayFailed) && l.searchedLately(s):
		s.waitFor(before.Message, status.SearchedAt.Add(refreshInterval))
	default:
		set(metav1.ConditionTrue, v1alpha1.ReasonPlanning, "moves are searched when pods are too many")
	}
	return selects, true
}

// searchedLately reports whether there is nothing new about the last search: it was of the same spec, a short time ago,
// and as many pods as then are too many.
func (l *look) searchedLately(s *subject) bool {
	ready := meta.FindStatusCondition(s.stored.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.ObservedGeneration == s.Generation && s.stored.Status.Excess == s.Status.Excess &&
		s.observed.Now.Sub(s.Status.SearchedAt.Time) < refreshInterval
}

// mayBegin reports whether moves may begin, as far as that is known without a search, or says what they wait for.
func (l *look) mayBegin(s *subject) bool {
	if _, why, from := act.MayBegin(s.ZoneRebalance, s.observed.Now); why != "" {
		s.waitFor(why, from)
		return false
	}
	for _, other := range l.all {
		if other.UID != s.UID && len(act.UnderWay(other)) > 0 {
			s.waitFor("moves of ZoneRebalance "+other.Name, time.Time{})
			return false
		}
	}
	balanced := meta.FindStatusCondition(s.stored.Status.Conditions, v1alpha1.ConditionBalanced)
	switch {
	case s.waits != "" || s.Status.Excess == 0: // the zones settle, or nothing is too many
		return false
	case balanced != nil && balanced.Reason == v1alpha1.ReasonNothingToMove && l.searchedLately(s):
		// What a copy has refused it would refuse again. What had to stay by itself may be movable by now.
		if !s.standing.MayMove(l.searchOptions(s)) {
			s.wait = min(s.wait, stayInterval)
			return false
		}
	}
	return l.maySearch(s)
}

// maySearch reports whether this look may search, or says what that waits for.
func (l *look) maySearch(s *subject) bool {
	if l.searched || l.planning.isUnderWay() {
		s.waitFor("another search", s.observed.Now.Add(time.Second))
		return false
	}
	if wait := l.searches.TryBegin(s.observed.Now); wait > 0 {
		s.waitFor("the CPU time of a search", s.observed.Now.Add(wait))
		return false
	}
	l.searched = true
	return true
}
