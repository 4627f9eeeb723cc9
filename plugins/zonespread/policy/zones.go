package policy

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// Zones has the availability of the zones of one policy.
//
// It stores facts, and computes every answer from them and now:
//
//	opened           the zone has had an open node, one that is Ready and not cordoned
//	since            since when it has had none
//	runs             for each workload since when all eligible nodes refuse its pods, see run
//	recoveringSince  when the zone opened again, or for the first time beside others that the policy knew before
//
//	zone                  when
//	closed                since + downAfter has passed
//	full for a workload   a run of refusals of its pods has lasted for fullAfter
//	recovering            recoveringSince + recoveryWindow has not passed
//
// So an answer does not depend on who looked when, a changed grace period holds at once, and Zones that are made from
// the facts that Export gave answer as the original does. Times have a resolution of one second, rounded up, so that a
// grace period is never cut short.
//
// Zones are not safe for concurrent use.
type Zones struct {
	policy *Policy
	zones  map[string]*zone
}

type zone struct {
	opened     bool
	since      seconds
	recovering seconds
	runs       map[types.UID]*run
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

// ZoneNodes is what the nodes of one zone look like.
type ZoneNodes struct {
	// Nodes is the number of nodes with this value of the policy's topology key.
	Nodes int
	// Open is how many of them are Ready and not cordoned.
	Open int
	// ClosedSince is the latest of the times at which one of them ceased to be open, when Open is 0. Zero when it is
	// not known; the first observation then counts.
	ClosedSince time.Time
}

// NewZones makes the zones of a policy from the facts in its status, as far as there are any. The first call must
// be ObserveNodes, with the nodes of a synced informer: an empty cache looks like a lost cluster.
func NewZones(p *Policy, facts []v1alpha1.ZoneStatus) *Zones {
	zs := &Zones{policy: p, zones: make(map[string]*zone, len(facts))}
	for i := range facts {
		f := &facts[i]
		zs.zones[f.Name] = &zone{
			opened: f.State != v1alpha1.ZoneEmpty && f.State != "",
			since:  fromTime(f.Since), recovering: fromTime(f.RecoveringSince), runs: importRuns(f.Full), nodes: -1,
		}
	}
	zs.Respec(p)
	return zs
}

// Respec makes the zones follow a changed policy. Zones that never were open are forgotten when they are no longer
// declared.
func (zs *Zones) Respec(p *Policy) {
	zs.policy = p
	maps.DeleteFunc(zs.zones, func(name string, z *zone) bool { return !p.declares(name) && !z.opened && z.nodes <= 0 })
	for i := range p.declared {
		zs.zone(p.declared[i].name)
	}
}

// Clone returns a copy that does not follow changes.
func (zs *Zones) Clone() *Zones {
	c := &Zones{policy: zs.policy, zones: make(map[string]*zone, len(zs.zones))}
	for name, z := range zs.zones {
		copied := *z
		copied.runs = make(map[types.UID]*run, len(z.runs))
		for workload, r := range z.runs {
			ofWorkload := *r
			copied.runs[workload] = &ofWorkload
		}
		c.zones[name] = &copied
	}
	return c
}

func (zs *Zones) zone(name string) *zone {
	z := zs.zones[name]
	if z == nil {
		z = &zone{runs: map[types.UID]*run{}}
		zs.zones[name] = z
	}
	return z
}

// ObserveNodes records the nodes of all zones by name; a zone that is not listed has none. A zone that is not declared
// is gone with its last node: scaling to zero is no outage. It returns whether a fact has changed, and whether the
// change is urgent: it must be in the status before the next decision.
func (zs *Zones) ObserveNodes(now time.Time, nodes map[string]ZoneNodes) (changed, urgent bool) {
	urgent = zs.Expire(now)
	known := slices.ContainsFunc(slices.Collect(maps.Values(zs.zones)), func(z *zone) bool { return z.opened })
	for name, n := range nodes {
		if n.Nodes == 0 {
			continue
		}
		z := zs.zone(name)
		switch {
		case n.Open > 0 && !z.opened:
			z.opened, changed = true, true
			// A declared zone has held the others back until now, and goes on to.
			if known && !zs.policy.declares(name) {
				urgent = zs.beginRecovery(z, now) || urgent
			}
		case n.Open > 0:
			urgent = zs.reopen(z, now) || urgent
		case z.opened && !z.since.set():
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
		if nodes[name].Nodes > 0 {
			continue
		}
		z.nodes = 0
		if !zs.policy.declares(name) {
			urgent = urgent || z.opened
			delete(zs.zones, name)
		} else if z.opened && !z.since.set() {
			z.since, urgent = roundUp(now), true
		}
	}
	return changed || urgent, urgent
}

// reopen records that the zone has an open node. It returns whether that is a change.
func (zs *Zones) reopen(z *zone, now time.Time) bool {
	if !z.since.set() {
		return false
	}
	if z.since.passed(zs.policy.downAfter, now) {
		clear(z.runs) // the refusals of its former nodes say nothing about the new ones
		zs.beginRecovery(z, now)
	}
	z.since = 0
	return true
}

// beginRecovery keeps a zone from holding others back for a while. It returns whether the policy asks for that.
func (zs *Zones) beginRecovery(z *zone, now time.Time) bool {
	z.recovering = 0
	if zs.policy.recoveryWindow > 0 {
		z.recovering = roundUp(now)
	}
	return z.recovering.set()
}

// Expire drops facts that have expired and affect no answer any more.
func (zs *Zones) Expire(now time.Time) (changed bool) {
	for _, z := range zs.zones {
		if z.recovering.passed(zs.policy.recoveryWindow, now) {
			z.recovering, changed = 0, true
		}
		maps.DeleteFunc(z.runs, func(_ types.UID, r *run) bool {
			over := zs.over(r, now)
			changed = changed || over
			return over
		})
	}
	return changed
}

// Changing reports whether some answer changes although nothing happens, or a fact that has expired is still there.
func (zs *Zones) Changing() bool {
	for _, z := range zs.zones {
		if z.since.set() || z.recovering.set() || len(z.runs) > 0 {
			return true
		}
	}
	return false
}

// availability is how a zone takes part for a workload with these refusals, which may be nil.
func (zs *Zones) availability(name string, z *zone, r *run, now time.Time) Availability {
	switch {
	case !z.opened && z.nodes > 0 && zs.policy.declares(name):
		return Closing
	case !z.opened && z.nodes > 0:
		return Absent
	case z.since.passed(zs.policy.downAfter, now):
		return Closed
	case zs.full(r):
		return Full
	case z.recovering.set() && !z.recovering.passed(zs.policy.recoveryWindow, now), zs.recovering(r, now):
		return Recovering
	case z.since.set():
		return Closing
	}
	return Available
}

// worst is how the zone takes part for the workload that it is worst for.
func (zs *Zones) worst(name string, z *zone, now time.Time) Availability {
	worst := zs.availability(name, z, nil, now)
	for _, r := range z.runs {
		switch a := zs.availability(name, z, r, now); {
		case a == Full:
			return Full
		case a == Recovering && worst != Closed:
			worst = Recovering
		}
	}
	return worst
}

// For returns how the zones take part for the pods of a workload. Available zones are left out; the caller owns the
// map.
func (zs *Zones) For(now time.Time, workload types.UID) ZoneAvailability {
	var zones ZoneAvailability
	for name, z := range zs.zones {
		a := zs.availability(name, z, z.runs[workload], now)
		if a == Available {
			continue
		}
		if zones == nil {
			zones = ZoneAvailability{}
		}
		zones[name] = a
	}
	return zones
}

// NextWake returns when the first of the zones ceases to hold the pods of a workload back although nothing happens:
// a zone closes, or a run makes one full. The zero time if none does.
func (zs *Zones) NextWake(now time.Time, workload types.UID) (next time.Time) {
	consider := func(since seconds, d time.Duration) {
		if at := since.time().Add(d); since.set() && at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, z := range zs.zones {
		consider(z.since, zs.policy.downAfter)
		if r := z.runs[workload]; r != nil {
			consider(r.since, zs.policy.fullAfter)
		}
	}
	return next
}

// ClosingFor returns how a zone takes part for a pod whose own nodes there, those that are eligible but for the taints
// of the node lifecycle, are these; and until when, if that is Closing. Other nodes of the zone may be open. It is
// Available if the nodes do not tell since when they are closed.
func (p *Policy) ClosingFor(now time.Time, own ZoneNodes) (a Availability, until time.Time) {
	if own.Open > 0 || own.ClosedSince.IsZero() {
		return Available, time.Time{}
	}
	since := roundUp(own.ClosedSince)
	if since.passed(p.downAfter, now) {
		return Closed, time.Time{}
	}
	return Closing, since.time().Add(p.downAfter)
}

// Export returns the facts and the state of the zones, by name; Pods and Desired are left for Status. Zones that are
// not declared and never were open are left out.
func (zs *Zones) Export(now time.Time) []v1alpha1.ZoneStatus {
	runs := zs.exportRuns()
	out := make([]v1alpha1.ZoneStatus, 0, len(zs.zones))
	for _, name := range slices.Sorted(maps.Keys(zs.zones)) {
		z := zs.zones[name]
		if !z.opened && !zs.policy.declares(name) {
			continue
		}
		out = append(out, v1alpha1.ZoneStatus{
			Name: name, State: zs.state(name, z, now), Since: z.since.toTime(), Full: runs[name],
			RecoveringSince: z.recovering.toTime(),
		})
	}
	return out
}

// state is the zone's state as users see it, the worst over the workloads.
func (zs *Zones) state(name string, z *zone, now time.Time) v1alpha1.ZoneState {
	if !z.opened {
		return v1alpha1.ZoneEmpty
	}
	switch zs.worst(name, z, now) {
	case Closed:
		return v1alpha1.ZoneClosed
	case Full:
		return v1alpha1.ZoneFull
	case Recovering:
		return v1alpha1.ZoneRecovering
	case Available, Closing, Excluded, Absent:
	}
	return v1alpha1.ZoneAvailable
}
