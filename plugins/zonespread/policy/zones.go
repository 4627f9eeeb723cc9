package policy

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// lostLimit is how long a zone that is not declared is remembered after its last node has gone, so that it comes back as
// one that recovers.
const lostLimit = 24 * time.Hour

// Zones has the availability of the zones of one policy.
//
// It stores facts, and computes every answer from them and now:
//
//	since            since when no node of the zone is open: ready, not cordoned, and eligible for the policy's newest pod
//	full             the sizes of pods that all eligible nodes refuse, see refusedSize
//	recoveringSince  when the zone came back
//
//	zone is          when
//	closed           since + downAfter has passed
//	full for a pod   a run of refusals of its size, or of a smaller one, has lasted for fullAfter
//	recovering       recoveringSince + recoveryWindow has not passed; it ends early when the zone has caught up
//
// So an answer does not depend on who looked when, a changed grace period holds at once, and Zones that are made from the
// facts that Export gave answer as the original does. Times have a resolution of one second, rounded up, so that a grace
// period is never cut short.
//
// Zones are not safe for concurrent use.
type Zones struct {
	policy *Policy
	zones  map[string]*zone
}

type zone struct {
	hadNodes   bool
	since      seconds
	recovering seconds
	sizes      sizes
	// nodes is how many nodes the zone had at the last observation, -1 before. It is not a fact: it only shows that a
	// node has left.
	nodes int
}

// seconds is a time as the status keeps it: whole seconds since 1970, 0 for never.
type seconds int64

func roundUp(t time.Time) seconds {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return seconds(s)
}

func (s seconds) set() bool       { return s != 0 }
func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

// passed reports whether d has passed since s.
func (s seconds) passed(d time.Duration, now time.Time) bool {
	return s.set() && !s.time().Add(d).After(now)
}

// ZoneNodes is what the nodes of one zone look like.
type ZoneNodes struct {
	// Nodes is the number of nodes with this value of the policy's topology key.
	Nodes int
	// Open is how many of them are ready, not cordoned, and eligible for the policy's newest pod.
	Open int
	// ClosedSince is the latest of the times at which one of them ceased to be open, when Open is 0. Zero when it is not
	// known; the first observation then counts.
	ClosedSince time.Time
}

// NewZones makes the zones of a policy from the facts in its status, as far as there are any. The first call must
// be ObserveNodes, with the nodes of a synced informer: an empty cache looks like a lost cluster.
func NewZones(p *Policy, facts []v1alpha1.ZoneStatus) *Zones {
	zs := &Zones{policy: p, zones: make(map[string]*zone, len(facts))}
	for i := range facts {
		f := &facts[i]
		zs.zones[f.Name] = &zone{
			hadNodes: f.State != v1alpha1.ZoneEmpty && f.State != "",
			since:    fromTime(f.Since), recovering: fromTime(f.RecoveringSince), sizes: importSizes(f.Full), nodes: -1,
		}
	}
	zs.Respec(p)
	return zs
}

// Respec makes the zones follow a changed policy. Zones that never had a node are
// forgotten when they are no longer declared.
func (zs *Zones) Respec(p *Policy) {
	zs.policy = p
	maps.DeleteFunc(zs.zones, func(name string, z *zone) bool { return !p.declares(name) && !z.hadNodes })
	for i := range p.declared {
		zs.zone(p.declared[i].name)
	}
}

func (zs *Zones) zone(name string) *zone {
	z := zs.zones[name]
	if z == nil {
		z = &zone{}
		zs.zones[name] = z
	}
	return z
}

// ObserveNodes records the nodes of all zones by name; a zone that is not listed has none. It returns whether a fact has
// changed, and whether that is urgent to remember: that a zone has nodes for the first time is not: the next look shows it.
func (zs *Zones) ObserveNodes(now time.Time, nodes map[string]ZoneNodes) (changed, urgent bool) {
	urgent = zs.Expire(now)
	for name, n := range nodes {
		if n.Nodes == 0 {
			continue
		}
		z := zs.zone(name)
		if !z.hadNodes {
			z.hadNodes, changed = true, true
		}
		if n.Open > 0 {
			urgent = zs.open(z, now) || urgent
		} else if !z.since.set() {
			since := now
			// A node that has left may have been the last one that was open.
			if left := n.Nodes < z.nodes; !left && !n.ClosedSince.IsZero() && n.ClosedSince.Before(now) {
				since = n.ClosedSince
			}
			z.since, urgent = roundUp(since), true
		}
		z.nodes = n.Nodes
	}
	for name, z := range zs.zones {
		if nodes[name].Nodes > 0 || !z.hadNodes {
			continue
		}
		z.nodes = 0
		if !z.since.set() {
			z.since, urgent = roundUp(now), true
		}
	}
	return changed || urgent, urgent
}

// open notes that the zone has an open node.
func (zs *Zones) open(z *zone, now time.Time) bool {
	if !z.since.set() {
		return false
	}
	if zs.closed(z, now) {
		// The refusals of its former nodes say nothing about the new ones.
		z.sizes = nil
		z.recovering = 0
		zs.recover(z, roundUp(now))
	}
	z.since = 0
	return true
}

func (zs *Zones) recover(z *zone, at seconds) {
	if zs.policy.recoveryWindow > 0 {
		z.recovering = max(z.recovering, at)
	}
}

// Refused records that all nodes of a zone that are eligible for a pod refused it, for reasons other than spreading;
// resources reports whether none of them had what the pod asks for. It returns whether a fact has changed, and whether the
// zone has become full by it.
func (zs *Zones) Refused(now time.Time, name string, r Requests, resources bool) (changed, full bool) {
	z := zs.zones[name]
	if z == nil || !z.hadNodes {
		return false, false // no node of it has been observed
	}
	expired := zs.expire(z, now)
	changed, full = z.sizes.refused(r, resources, zs.policy.fullAfter, now)
	return changed || expired, full
}

// Took records that a zone has room for a pod. It returns whether a fact has changed.
func (zs *Zones) Took(now time.Time, name string, r Requests) bool {
	z := zs.zones[name]
	if z == nil {
		return false
	}
	changed, wasFull := z.sizes.took(r, zs.policy.fullAfter, now)
	if wasFull {
		zs.recover(z, roundUp(now))
	}
	return changed
}

// Refusing reports whether some zone refuses pods; otherwise Took need not be called.
func (zs *Zones) Refusing() bool {
	for _, z := range zs.zones {
		if len(z.sizes) > 0 {
			return true
		}
	}
	return false
}

// Lacking returns the zones that have refused a pod for fullAfter because no node had what it asks for. The caller looks
// whether one has by now, and calls Took if so, and Refused otherwise: what makes the zone full, or ends that it was, is as
// new as the decision that rests on it.
func (zs *Zones) Lacking(now time.Time, r Requests) []string {
	var names []string
	for name, z := range zs.zones {
		if slices.ContainsFunc(z.sizes, func(s *refusedSize) bool {
			return s.resources && s.live(now) && s.since.passed(zs.policy.fullAfter, now) && s.atLeast.Within(r)
		}) {
			names = append(names, name)
		}
	}
	return names
}

// CaughtUp ends the recovery of zones that have caught up, given how many selected pods each zone holds: a zone has when
// its pods/weight is not below the smallest among the available zones. It returns whether there is something new to
// remember.
func (zs *Zones) CaughtUp(now time.Time, pods map[string]int64) bool {
	changed := zs.Expire(now)
	leastPods, leastWeight := int64(-1), int64(1)
	for name, z := range zs.zones {
		weight, _ := zs.policy.weightOf(name)
		if part := zs.worst(z, now); weight == 0 || !z.hadNodes || part != Available && part != Closing {
			continue
		}
		if leastPods < 0 || pods[name]*leastWeight < leastPods*weight {
			leastPods, leastWeight = pods[name], weight
		}
	}
	if leastPods < 0 {
		return changed // nothing to compare with
	}
	for name, z := range zs.zones {
		if weight, _ := zs.policy.weightOf(name); z.recovering.set() && pods[name]*leastWeight >= leastPods*weight {
			z.recovering, changed = 0, true
		}
	}
	return changed
}

// Recovering reports whether some zone recovers; otherwise CaughtUp need not be called.
func (zs *Zones) Recovering() bool {
	for _, z := range zs.zones {
		if z.recovering.set() {
			return true
		}
	}
	return false
}

// Expire drops facts that have expired and affect no answer any more.
func (zs *Zones) Expire(now time.Time) bool {
	changed := false
	for name, z := range zs.zones {
		changed = zs.expire(z, now) || changed
		if !zs.policy.declares(name) && z.hadNodes && z.nodes == 0 && z.since.passed(lostLimit, now) {
			delete(zs.zones, name)
			changed = true
		}
	}
	return changed
}

func (zs *Zones) expire(z *zone, now time.Time) bool {
	changed, ended := z.sizes.expire(zs.policy.fullAfter, now)
	if ended.set() {
		zs.recover(z, ended)
	}
	if z.recovering.set() && !zs.within(z.recovering, now) {
		z.recovering, changed = 0, true
	}
	return changed
}

func (zs *Zones) closed(z *zone, now time.Time) bool { return z.since.passed(zs.policy.downAfter, now) }

func (zs *Zones) within(recovering seconds, now time.Time) bool {
	return recovering.set() && !recovering.passed(zs.policy.recoveryWindow, now)
}

// recoversSince returns since when the zone recovers, also from a run of refusals that has ended but is not forgotten yet.
func (zs *Zones) recoversSince(z *zone, now time.Time) (seconds, bool) {
	since := z.recovering
	for _, s := range z.sizes {
		if zs.policy.recoveryWindow > 0 && !s.live(now) {
			since = max(since, s.endedFull(zs.policy.fullAfter))
		}
	}
	return since, zs.within(since, now)
}

// part is how the zone takes part for a pod for which it is full or not.
func (zs *Zones) part(z *zone, full bool, now time.Time) Part {
	if zs.closed(z, now) || full {
		return Unavailable
	}
	if _, recovers := zs.recoversSince(z, now); recovers {
		return Recovering
	}
	if z.since.set() {
		return Closing
	}
	return Available
}

// worst is how the zone takes part for the size of pods that it is worst for.
func (zs *Zones) worst(z *zone, now time.Time) Part {
	return zs.part(z, z.sizes.anyFull(zs.policy.fullAfter, now), now)
}

// View returns the states of the zones for a pod that requests r. Available zones are left out; the caller owns the map.
func (zs *Zones) View(now time.Time, r Requests) View {
	var view View
	for name, z := range zs.zones {
		part := zs.part(z, z.sizes.fullFor(r, zs.policy.fullAfter, now), now)
		if part == Available {
			continue
		}
		if view == nil {
			view = View{}
		}
		view[name] = part
	}
	return view
}

// Deadline is a moment at which answers change although nothing happens.
type Deadline struct {
	At time.Time
	// Wakes is true when a zone may become unavailable then, so that pods that wait for it may go elsewhere: they must
	// be woken, since time alone requeues nothing. It is false when a zone takes part again, which helps no pod.
	Wakes bool
}

// NextDeadline returns the first deadline after now, if there is one.
func (zs *Zones) NextDeadline(now time.Time) (Deadline, bool) {
	var next Deadline
	consider := func(since seconds, d time.Duration, wakes bool) {
		at := since.time().Add(d)
		if !since.set() || !at.After(now) {
			return
		}
		switch {
		case next.At.IsZero() || at.Before(next.At):
			next = Deadline{At: at, Wakes: wakes}
		case at.Equal(next.At):
			next.Wakes = next.Wakes || wakes
		}
	}
	for _, z := range zs.zones {
		consider(z.since, zs.policy.downAfter, true)
		since, _ := zs.recoversSince(z, now)
		consider(since, zs.policy.recoveryWindow, false)
		for _, s := range z.sizes {
			consider(s.since, zs.policy.fullAfter, true)
			consider(s.last, RefusalGap, false)
		}
	}
	return next, !next.At.IsZero()
}

// Export returns the facts and the state of the zones, by name; Pods and Desired are left for Status.
func (zs *Zones) Export(now time.Time) []v1alpha1.ZoneStatus {
	out := make([]v1alpha1.ZoneStatus, 0, len(zs.zones))
	for _, name := range slices.Sorted(maps.Keys(zs.zones)) {
		z := zs.zones[name]
		out = append(out, v1alpha1.ZoneStatus{
			Name: name, State: zs.state(z, now), Since: z.since.toTime(), Full: z.sizes.export(), RecoveringSince: z.recovering.toTime(),
		})
	}
	return out
}

// state is the zone's state as users see it, the worst over the sizes of pods.
func (zs *Zones) state(z *zone, now time.Time) v1alpha1.ZoneState {
	_, recovers := zs.recoversSince(z, now)
	switch {
	case zs.closed(z, now):
		return v1alpha1.ZoneClosed
	case z.sizes.anyFull(zs.policy.fullAfter, now):
		return v1alpha1.ZoneFull
	case recovers:
		return v1alpha1.ZoneRecovering
	case !z.hadNodes:
		return v1alpha1.ZoneEmpty
	}
	return v1alpha1.ZoneAvailable
}

func fromTime(t *metav1.Time) seconds {
	if t == nil || t.IsZero() {
		return 0
	}
	return seconds(t.Unix())
}

func (s seconds) toTime() *metav1.Time {
	if !s.set() {
		return nil
	}
	t := metav1.NewTime(s.time())
	return &t
}
