package policy

import "slices"

// Rule is the part of a policy that refuses a zone.
type Rule uint8

// The rules, in the order in which they are applied. Pass refuses nothing.
const (
	Pass Rule = iota
	// Forbidden: the zone's weight is 0.
	Forbidden
	// MaxPods, MaxPerZone, QuorumSafe: the zone would exceed a cap, the smallest of which is named.
	MaxPods
	MaxPerZone
	QuorumSafe
	// MinZones: there are fewer zones than minZones, and the zone would exceed maxSkew.
	MinZones
	// Skew: the zone would be ahead of the emptiest zone by more than maxSkew.
	Skew
	// NoLabel: the node has no zone.
	NoLabel
	// OwnerUnknown: the pod's controller has not arrived, so that caps which follow its size are not known.
	OwnerUnknown
)

// String returns the rule's name, for metrics and logs.
func (r Rule) String() string {
	return [...]string{
		"Pass", "Forbidden", "MaxPods", "MaxPerZone", "QuorumSafe", "MinZones", "Skew", "NoLabel",
		"OwnerUnknown",
	}[r]
}

// field is the field of the spec that a cap comes from.
func (r Rule) field() string {
	return map[Rule]string{MaxPods: "maxPods", MaxPerZone: "maxPerZone", QuorumSafe: "quorumSafe"}[r]
}

// OK reports whether the zone is allowed.
func (r Rule) OK() bool { return r == Pass }

// capped reports whether a cap refuses the zone.
func (r Rule) capped() bool { return r == MaxPods || r == MaxPerZone || r == QuorumSafe }

// Resolvable reports whether the removal of pods could change the refusal: Unschedulable instead of
// UnschedulableAndUnresolvable in the framework's terms.
func (r Rule) Resolvable() bool { return r != Forbidden && r != NoLabel && r != OwnerUnknown }

// Availability is how a zone takes part in the decision about one pod.
type Availability uint8

// The availabilities. A zone that a ZoneAvailability does not name is Available.
const (
	// Available zones are compared with each other.
	Available Availability = iota
	// Closed zones hold no other zone back.
	Closed
	// Full zones, for the pod's workload, hold no other zone back.
	Full
	// Excluded zones, in which a volume of the pod cannot be used, hold no other zone back.
	Excluded
	// Recovering zones hold no other zone back either, unless no zone is Available; scores prefer them.
	Recovering
	// Closing zones have no open node while downAfter still runs, or are declared and have none yet. They are compared
	// like Available ones, also when they have no nodes.
	Closing
	// Absent zones never had an open node. They take no part, and are the only ones that do not count for minZones:
	// fail-over is to be no full stop.
	Absent
)

// unavailable reports whether the other zones may take the zone's share.
func (a Availability) unavailable() bool { return a == Closed || a == Full || a == Excluded }

// IgnoresLifecycle reports whether the taints of the node lifecycle do not make nodes of the zone ineligible: they are
// what the zone is closed by.
func (a Availability) IgnoresLifecycle() bool { return a == Closed || a == Closing }

// ZoneAvailability says which zones are not simply Available for one pod, at one moment. See Zones.For.
type ZoneAvailability map[string]Availability

// Domain is what the counts say about one zone, for one incoming pod.
type Domain struct {
	Name string
	// Pods is the number of pods that count for the incoming pod's skew (SelectorFor, its namespace, not
	// terminating) on the zone's nodes that are eligible for it.
	Pods int64
	// Held is the number of pods on all nodes of the zone that count for its caps, see HeldFor: a pod on a node that
	// has been cordoned or tainted since is still a pod in the zone.
	Held int64
	// Eligible is true when the zone has a node that the pod's affinity and tolerations admit, as far as the policy
	// honors them. In a Closing or Closed zone the taints of the node lifecycle do not count.
	Eligible bool
}

// Input is all that the rules depend on besides the policy.
type Input struct {
	// Domains are the zones that have nodes, each once, in any order.
	Domains []Domain
	// Replicas is R, see Policy.Replicas.
	Replicas int64
	// OwnerMissing is true if R is about to be known; until then every zone is refused.
	OwnerMissing bool
	// Availability is how the zones take part.
	Availability ZoneAvailability
}

// Table holds the rule that refuses each zone, for one pod and one policy. Evaluate makes it once per pod (PreFilter);
// Rule is then a map lookup that allocates nothing (Filter). Any number of goroutines may read it, and Add needs it for
// itself: preemption works on a Clone.
type Table struct {
	policy       *Policy
	replicas     int64
	ownerMissing bool

	index map[string]int // shared by clones, since zones are never added
	zones []zoneRow
	other zoneRow // the rule for a zone that is not in zones

	// smallest is the zone of which pods/weight is smallest among those that hold others back, -1 when none
	// does. least is what it counts as.
	smallest    int
	leastPods   int64
	leastWeight int64
	there       int64 // how many zones count for minZones
	belowMin    bool  // they are fewer
	weights     int64
}

type zoneRow struct {
	name    string
	weight  int64
	pods    int64
	held    int64
	cap     int64
	capRule Rule
	counts  bool // belongs to D
	rule    Rule

	availability Availability
}

// Evaluate applies the rules to every zone at once.
//
// With c the pods in a zone, h those that its cap counts, and w its weight:
//
//	D = eligible zones that are not absent, and declared zones without nodes; without weights of 0
//	A = D without closed, full and excluded zones
//	m = the zone with the smallest c/w among those of A that may still take a pod (are below their
//	    cap) and are not recovering; the recovering ones when there is no other
//
//	zone z is allowed when   w(z) > 0
//	                 and     h(z) + 1 <= cap(z)
//	                 and     (c(z) + 1) * w(m) - w(z) * c(m) <= maxSkew * w(m)
//
// c(m) counts as 0 when the zones of D are fewer than minZones, and without any m the last line asks nothing.
// With equal weights and no caps this is the rule of topologySpreadConstraints.
//
// A zone that has reached its cap is left out of the minimum because it can never catch up: if it stayed, the
// others would wait for it for ever although they have room. With it left out, m itself is always
// allowed, so that the rules refuse every zone only when every available zone is at its cap.
func (p *Policy) Evaluate(in Input) *Table {
	t := &Table{
		policy:   p,
		replicas: in.Replicas,

		ownerMissing: in.OwnerMissing,

		index: make(map[string]int, len(in.Domains)+len(p.declared)),
		zones: make([]zoneRow, 0, len(in.Domains)+len(p.declared)),
	}
	for i := range in.Domains {
		d := &in.Domains[i]
		row := t.row(d.Name, in.Availability)
		row.pods, row.held, row.counts = d.Pods, d.Held, d.Eligible && row.availability != Absent
		t.add(row)
	}
	for i := range p.declared {
		t.addMissing(p.declared[i].name, in.Availability)
	}
	t.other = t.row("", nil)
	t.decide()
	return t
}

// addMissing adds a zone that takes part although it has no nodes, unless it is there.
func (t *Table) addMissing(name string, availability ZoneAvailability) {
	if _, known := t.index[name]; !known {
		row := t.row(name, availability)
		row.counts = true
		t.add(row)
	}
}

func (t *Table) add(row zoneRow) {
	t.index[row.name] = len(t.zones)
	t.zones = append(t.zones, row)
}

func (t *Table) row(name string, availability ZoneAvailability) zoneRow {
	weight, maxPods := t.policy.weightOf(name)
	row := zoneRow{name: name, weight: weight, availability: availability[name]}
	row.cap, row.capRule = t.policy.capOf(maxPods, t.replicas)
	return row
}

// decide computes the minimum and the rule of every zone from the counts.
func (t *Table) decide() {
	t.there, t.weights, t.smallest = 0, 0, -1
	recovering := -1
	for i := range t.zones {
		z := &t.zones[i]
		if !z.counts || z.weight == 0 {
			continue
		}
		t.there++
		if z.availability.unavailable() {
			continue
		}
		t.weights += z.weight
		if z.held >= z.cap {
			continue
		}
		candidate := &t.smallest
		if z.availability == Recovering {
			candidate = &recovering
		}
		if *candidate < 0 || z.emptier(&t.zones[*candidate]) {
			*candidate = i
		}
	}
	if t.smallest < 0 {
		t.smallest = recovering
	}
	t.leastPods, t.leastWeight = 0, 1
	if t.smallest >= 0 {
		t.leastPods, t.leastWeight = t.zones[t.smallest].pods, t.zones[t.smallest].weight
	}
	t.belowMin = t.there < t.policy.minZones
	if t.belowMin {
		t.leastPods = 0
	}
	for i := range t.zones {
		t.zones[i].rule = t.refusedBy(&t.zones[i])
	}
	t.other.rule = t.refusedBy(&t.other)
}

// emptier compares pods/weight. Of equal zones the first by name is taken, so that the words of a refusal, which become
// a condition of the pod, do not depend on the order in which zones were seen.
func (z *zoneRow) emptier(than *zoneRow) bool {
	mine, its := z.pods*than.weight, than.pods*z.weight
	return mine < its || mine == its && z.name < than.name
}

// refusedBy returns the first rule that refuses a zone.
func (t *Table) refusedBy(z *zoneRow) Rule {
	switch {
	case t.ownerMissing:
		return OwnerUnknown
	case z.weight == 0:
		return Forbidden
	case z.held >= z.cap:
		return z.capRule
	case t.smallest < 0 && !t.belowMin:
		return Pass
	case (z.pods+1)*t.leastWeight-z.weight*t.leastPods <= t.policy.maxSkew*t.leastWeight:
		return Pass
	case t.belowMin:
		return MinZones
	}
	return Skew
}

// Policy returns the policy that the table was made for.
func (t *Table) Policy() *Policy { return t.policy }

// Rule returns the rule that refuses a zone, or Pass. Whether a refusal keeps the pod off the
// zone depends on Policy.Hard.
func (t *Table) Rule(zone string) Rule { return t.lookup(zone).rule }

func (t *Table) lookup(zone string) *zoneRow {
	if i, ok := t.index[zone]; ok {
		return &t.zones[i]
	}
	return &t.other
}

// Check returns the rule that refuses a node by its labels, or Pass, for a hard policy; a soft one lets every node
// pass.
func (t *Table) Check(nodeLabels map[string]string) Rule {
	if t.policy.soft {
		return Pass
	}
	zone, ok := nodeLabels[t.policy.topologyKey]
	if !ok {
		return NoLabel
	}
	return t.Rule(zone)
}

// Zones is how many zones the table knows, see Slot.
func (t *Table) Zones() int { return len(t.zones) }

// Slot numbers the zones: 0 to Zones()-1 for the node's zone, Zones() when it has none, and -1 when the table does
// not know its zone. Nodes of one slot are refused alike, until Add.
func (t *Table) Slot(nodeLabels map[string]string) int {
	zone, ok := nodeLabels[t.policy.topologyKey]
	if !ok {
		return len(t.zones)
	}
	if i, ok := t.index[zone]; ok {
		return i
	}
	return -1
}

// Change is how many pods come to a zone, or go when it is negative, by what counts them, see Domain.
type Change struct{ Pods, Held int64 }

// Add changes the counts of a zone, and all rules with them. A zone that the table does not know is passed over: its
// nodes came after the counts.
func (t *Table) Add(zone string, c Change) {
	i, ok := t.index[zone]
	if !ok || c == (Change{}) {
		return
	}
	z := &t.zones[i]
	z.pods += c.Pods
	z.held += c.Held
	t.decide()
}

// Refuses reports whether the table of a hard policy refuses some zone.
func (t *Table) Refuses() bool {
	return !t.policy.soft && slices.ContainsFunc(t.zones, func(z zoneRow) bool { return !z.rule.OK() })
}

// Scaling returns what decides whether another R may end a refusal.
func (t *Table) Scaling() Scaling {
	s := Scaling{AtCap: Unlimited}
	if t.smallest >= 0 {
		s.Behind = t.zones[t.smallest].held
	}
	for i := range t.zones {
		if z := &t.zones[i]; z.rule == MaxPerZone || z.rule == QuorumSafe {
			s.AtCap = min(s.AtCap, z.held)
		}
	}
	return s
}

// Clone returns a table that can be changed without a change to this one.
func (t *Table) Clone() *Table {
	c := *t
	c.zones = slices.Clone(t.zones)
	return &c
}
