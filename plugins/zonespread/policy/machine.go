package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// FullMemory is how long a zone stays Full for a kind of pod after the last time that one was refused. While
	// pods wait they are tried at least every 5 minutes, so that this only forgets what nobody asks for.
	FullMemory = time.Hour
	// EvidenceGap is the longest time between two refusals of which the second counts as a continuation.
	// The framework tries a waiting pod again within 5 minutes; three times that leaves room.
	EvidenceGap = 15 * time.Minute
	// LostMemory is how long a zone that is not declared is remembered after it lost its last node.
	LostMemory = 24 * time.Hour
	// MaxShapes is how many kinds of pods are remembered per zone: the ones that were seen last.
	MaxShapes = 16

	// lastRefusedStep is the resolution of a refusal's time, so that it is not written with every attempt.
	lastRefusedStep = time.Minute
)

// Machine is the fail-over state of one policy's zones.
//
//	        declared, never had a node
//	            +-------+
//	            | Empty |
//	            +-------+
//	                | first node
//	                v
//	         +-----------+   no ready node for downAfter,    +------+
//	+------->|           |   or last node gone               |      |
//	|        | Available |---------------------------------->| Down |
//	|        |           |                                   |      |
//	|        +-----------+<-----------------------------+    +------+
//	|          |       ^    a ready node (Immediate)    |       |
//	|          |       |                                +-------+
//	|          |       |                                        |
//	|   every eligible |                                        | a ready node
//	|   node refuses   | a pod fits                             | (Gradual)
//	|   for fullAfter  | (Immediate)                            v
//	|          v       |                                  +------------+
//	|        +-----------+   a pod fits (Gradual)         |            |
//	|        |   Full    |------------------------------->| Recovering |
//	|        | per shape |<-------------------------------|            |
//	|        +-----------+   refused again for fullAfter  +------------+
//	|                                                           |
//	+-----------------------------------------------------------+
//	         caught up, or recoveryWindow is over
//
// An Available zone without a ready node is Waiting in a View, as long as downAfter runs.
//
// Full and the recovery from it are kept per pod shape (see Shape): a zone that is full for large pods may still take
// small ones. A Recovering zone that goes away again goes through downAfter or fullAfter again and is Recovering
// until then; a zone that loses all nodes is Down from any state.
//
// Nothing is stored as "the state": what is kept are times (no ready node since, refused since, recovering
// since), and every answer is computed from them and now. So an answer does not depend on who looked when, a
// changed grace period holds at once, and a Machine that is restored from what Export gave answers as the
// original does. Times have a resolution of one second, rounded up, so that a grace period is never cut short.
//
// A Machine is not safe for concurrent use.
type Machine struct {
	policy *Policy
	zones  map[string]*zoneMemory
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

// passed tells whether d has gone by since s.
func (s seconds) passed(d time.Duration, now time.Time) bool {
	return s.set() && !s.time().Add(d).After(now)
}

type zoneMemory struct {
	hadNodes        bool
	lost            bool // the last node is gone, and no ready node has come since
	unreadySince    seconds
	recoveringSince seconds
	shapes          map[string]*shapeMemory
}

type shapeMemory struct {
	refusedSince    seconds
	lastRefused     seconds
	recoveringSince seconds
}

// ZoneNodes is what the nodes of one zone look like.
type ZoneNodes struct {
	Name string
	// Nodes is the number of nodes with this value of the policy's topology key.
	Nodes int
	// Ready is how many of them have the condition Ready with status True.
	Ready int
	// UnreadySince is the latest transition of a Ready condition away from True among the nodes, when Ready is
	// 0: since then no node has been ready. Zero when it is not known; the first observation then counts.
	UnreadySince time.Time
}

// NewMachine makes the machine of a policy from its status, as far as there is one. The first call must
// be ObserveNodes, with the nodes of a synced informer: an empty cache looks like a lost cluster.
func NewMachine(p *Policy, status []v1alpha1.ZoneStatus) *Machine {
	m := &Machine{policy: p, zones: make(map[string]*zoneMemory, len(status))}
	for i := range status {
		m.zones[status[i].Name] = restoreZone(&status[i])
	}
	for i := range p.declared {
		m.zone(p.declared[i].name)
	}
	return m
}

// Respec makes the machine follow a changed policy. Zones that were only declared and never had a node are
// forgotten when they are not declared any more.
func (m *Machine) Respec(p *Policy) {
	m.policy = p
	for name, z := range m.zones {
		if _, declared := p.declaredIndex[name]; !declared && !z.hadNodes {
			delete(m.zones, name)
		}
	}
	for i := range p.declared {
		m.zone(p.declared[i].name)
	}
}

func (m *Machine) zone(name string) *zoneMemory {
	z := m.zones[name]
	if z == nil {
		z = &zoneMemory{}
		m.zones[name] = z
	}
	return z
}

// ObserveNodes takes in the nodes of all zones; a zone that is not listed has none. It returns whether
// there is something new to remember (write the status).
func (m *Machine) ObserveNodes(now time.Time, nodes []ZoneNodes) bool {
	changed := false
	seen := make(map[string]bool, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if n.Nodes == 0 {
			continue
		}
		seen[n.Name] = true
		z := m.zone(n.Name)
		if !z.hadNodes {
			z.hadNodes, changed = true, true
		}
		if n.Ready > 0 {
			changed = m.back(z, now) || changed
		} else if !z.unreadySince.set() {
			since := now
			if !n.UnreadySince.IsZero() && n.UnreadySince.Before(now) {
				since = n.UnreadySince
			}
			z.unreadySince, changed = roundUp(since), true
		}
	}
	for name, z := range m.zones {
		if seen[name] || !z.hadNodes {
			continue
		}
		if !z.lost {
			z.lost, changed = true, true
			if !z.unreadySince.set() {
				z.unreadySince = roundUp(now)
			}
		}
		if _, declared := m.policy.declaredIndex[name]; !declared && z.unreadySince.passed(LostMemory, now) {
			delete(m.zones, name)
			changed = true
		}
	}
	return m.purge(now) || changed
}

// back notes that the zone has a ready node.
func (m *Machine) back(z *zoneMemory, now time.Time) bool {
	if !z.unreadySince.set() {
		return false
	}
	if m.down(z, now) {
		// What its former nodes refused says nothing about those that are there now.
		z.shapes = nil
		z.recoveringSince = 0
		if m.policy.recoveryWindow > 0 {
			z.recoveringSince = roundUp(now)
		}
	}
	z.lost, z.unreadySince = false, 0
	return true
}

// ObserveCounts takes in how many selected pods each zone holds, so that a recovering zone is done once it has
// caught up: once its pods/weight is not below the smallest among the available zones. It returns whether
// there is something new to remember.
func (m *Machine) ObserveCounts(now time.Time, pods map[string]int64) bool {
	leastPods, leastWeight := int64(-1), int64(1)
	for name, z := range m.zones {
		weight, _ := m.policy.weightOf(name)
		if weight == 0 || !z.hadNodes || !holdsBack(m.partOfAny(z, now)) {
			continue
		}
		if leastPods < 0 || pods[name]*leastWeight < leastPods*weight {
			leastPods, leastWeight = pods[name], weight
		}
	}
	if leastPods < 0 {
		return false // nothing to compare with
	}
	changed := false
	for name, z := range m.zones {
		weight, _ := m.policy.weightOf(name)
		if pods[name]*leastWeight < leastPods*weight {
			continue
		}
		if z.recoveringSince.set() {
			z.recoveringSince, changed = 0, true
		}
		for shape, s := range z.shapes {
			if s.recoveringSince.set() {
				s.recoveringSince, changed = 0, true
				if !s.refusedSince.set() {
					delete(z.shapes, shape)
				}
			}
		}
	}
	return changed
}

// holdsBack tells whether a zone is compared with others.
func holdsBack(p Part) bool { return p == Available || p == Waiting }

func (m *Machine) down(z *zoneMemory, now time.Time) bool {
	return z.lost || z.unreadySince.passed(m.policy.downAfter, now)
}

func (m *Machine) recovering(since seconds, now time.Time) bool {
	return since.set() && !since.passed(m.policy.recoveryWindow, now)
}

func (m *Machine) full(s *shapeMemory, now time.Time) bool {
	return s != nil && s.refusedSince.passed(m.policy.fullAfter, now) && !s.lastRefused.passed(m.fullMemory(), now)
}

// fullMemory is FullMemory, or longer when the grace period is: a zone must not be forgotten before it is full.
func (m *Machine) fullMemory() time.Duration { return max(FullMemory, m.policy.fullAfter+EvidenceGap) }

// partOf is how the zone takes part for one kind of pod.
func (m *Machine) partOf(z *zoneMemory, shape string, now time.Time) Part {
	s := z.shapes[shape]
	switch {
	case m.down(z, now) || m.full(s, now):
		return Unavailable
	case m.recovering(z.recoveringSince, now) || s != nil && m.recovering(s.recoveringSince, now):
		return Recovering
	case z.unreadySince.set():
		return Waiting
	}
	return Available
}

// partOfAny is how the zone takes part for the kind of pod that it is worst for.
func (m *Machine) partOfAny(z *zoneMemory, now time.Time) Part {
	worst := m.partOf(z, "", now)
	for shape := range z.shapes {
		switch part := m.partOf(z, shape, now); part {
		case Unavailable:
			return part
		case Recovering:
			worst = part
		}
	}
	return worst
}

// View returns how the zones take part for a pod of the given shape. The map belongs to the caller; it is nil when
// all are Available.
func (m *Machine) View(shape string, now time.Time) View {
	var view View
	for name, z := range m.zones {
		if part := m.partOf(z, shape, now); part != Available {
			if view == nil {
				view = View{}
			}
			view[name] = part
		}
	}
	return view
}

// KnowsShapes tells whether View depends on the shape at all, so that a caller need not compute one in vain.
func (m *Machine) KnowsShapes() bool {
	for _, z := range m.zones {
		if len(z.shapes) > 0 {
			return true
		}
	}
	return false
}

// Deadline is a moment at which answers change although nothing happens.
type Deadline struct {
	At time.Time
	// Wakes is true when a zone becomes unavailable then, so that pods that wait for it may go
	// elsewhere: they must be activated, since time alone requeues nothing. It is false when a recovery
	// ends, which frees nobody; the status then changes.
	Wakes bool
}

// NextDeadline returns the first deadline after now, if there is one.
func (m *Machine) NextDeadline(now time.Time) (Deadline, bool) {
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
	for _, z := range m.zones {
		if !z.lost {
			consider(z.unreadySince, m.policy.downAfter, true)
		}
		consider(z.recoveringSince, m.policy.recoveryWindow, false)
		for _, s := range z.shapes {
			consider(s.refusedSince, m.policy.fullAfter, true)
			consider(s.recoveringSince, m.policy.recoveryWindow, false)
		}
	}
	return next, !next.At.IsZero()
}

// purge forgets what has run out. What it forgets has no influence on any answer any more.
func (m *Machine) purge(now time.Time) bool {
	changed := false
	for _, z := range m.zones {
		if z.recoveringSince.set() && !m.recovering(z.recoveringSince, now) {
			z.recoveringSince, changed = 0, true
		}
		for shape, s := range z.shapes {
			if s.recoveringSince.set() && !m.recovering(s.recoveringSince, now) {
				s.recoveringSince, changed = 0, true
			}
			if s.refusedSince.set() && s.lastRefused.passed(m.fullMemory(), now) {
				s.refusedSince, s.lastRefused, changed = 0, 0, true
			}
			if !s.refusedSince.set() && !s.recoveringSince.set() {
				delete(z.shapes, shape)
				changed = true
			}
		}
	}
	return changed
}

// names returns the zones in order, so that what is derived from them is stable.
func (m *Machine) names() []string {
	return slices.SortedFunc(maps.Keys(m.zones), cmp.Compare)
}
