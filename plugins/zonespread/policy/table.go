package policy

import "slices"

// Rule is the part of a policy that refuses a zone.
type Rule uint8

// The rules, in the order in which they are asked. Pass refuses nothing.
const (
	Pass Rule = iota
	// Forbidden: the zone's weight is 0.
	Forbidden
	// MaxPods, MaxPerZone, QuorumSafe: the zone would exceed a cap, the smallest of which is named.
	MaxPods
	MaxPerZone
	QuorumSafe
	// MinZones: fewer zones than minZones are available, and the zone would exceed maxSkew.
	MinZones
	// Skew: the zone would be ahead of the emptiest zone by more than maxSkew.
	Skew
	// NoLabel: the node has no zone.
	NoLabel
)

// String returns the rule's name, for metrics and logs.
func (r Rule) String() string {
	return [...]string{"Pass", "Forbidden", "MaxPods", "MaxPerZone", "QuorumSafe", "MinZones", "Skew", "NoLabel"}[r]
}

// field is the field of the spec that a cap comes from.
func (r Rule) field() string {
	return map[Rule]string{MaxPods: "maxPods", MaxPerZone: "maxPerZone", QuorumSafe: "quorumSafe"}[r]
}

// OK reports whether the zone is allowed.
func (r Rule) OK() bool { return r == Pass }

// capped reports whether a cap refuses the zone.
func (r Rule) capped() bool { return r == MaxPods || r == MaxPerZone || r == QuorumSafe }

// Resolvable reports whether the removal of pods could change the verdict: Unschedulable instead of
// UnschedulableAndUnresolvable in the framework's terms.
func (r Rule) Resolvable() bool { return r != Forbidden && r != NoLabel }

// Part is how a zone takes part in the decision about one pod.
type Part uint8

// The parts. A zone that a View does not name is Available.
const (
	// Available zones are compared with each other.
	Available Part = iota
	// Unavailable zones (closed, or full for the pod) hold no other zone back.
	Unavailable
	// Recovering zones hold no other zone back either, unless no zone is Available; scores prefer them.
	Recovering
	// Closing zones have no open node while downAfter still runs. They are compared like Available ones, also when none of
	// their nodes is eligible or left.
	Closing
)

// View says which zones are not simply Available for one pod, at one moment. See Zones.View.
type View map[string]Part

// Domain is what the counts say about one zone, for one incoming pod.
type Domain struct {
	Name string
	// Pods is the number of pods that count for the incoming pod's skew (SelectorFor, its namespace, not
	// terminating) on the zone's nodes that are eligible for it, and AllPods on all of its nodes.
	Pods, AllPods int64
	// Held is the number of pods on all nodes of the zone that count for its caps, see HeldFor: a pod on a node that has
	// been cordoned or tainted since is still a pod in the zone.
	Held int64
	// Eligible is true when the zone has a node that the pod's affinity and tolerations admit, as far as the
	// policy honors them.
	Eligible bool
	// Excluded is true when the zone has nodes and the pod's own node selector or required affinity admits
	// none, and the policy honors that. Such a zone takes no part, whether it is declared or waited for.
	Excluded bool
}

// Question is all that a verdict depends on besides the policy.
type Question struct {
	// Domains are the zones that have nodes, each once, in any order.
	Domains []Domain
	// Replicas is R, see Policy.Replicas.
	Replicas int64
	// Typical is true when the same nodes are eligible for the pod as for the one that Zones were observed by, the policy's
	// newest. A zone without a node that is eligible is then one that closes, otherwise one that only this pod cannot use.
	Typical bool
	// View is how the zones take part.
	View View
}

// Table holds the verdict on every zone for one pod and one policy. Judge makes it once per pod (PreFilter); Rule
// is then a map lookup that allocates nothing (Filter). Any number of goroutines may read it, and Add needs
// it for itself: preemption works on a Clone.
type Table struct {
	policy   *Policy
	replicas int64

	index map[string]int // shared by clones, since zones are never added
	zones []zoneRow
	other zoneRow // the verdict on a zone that is not in zones

	// smallest is the zone of which pods/weight is smallest among those that hold others back, -1 when none
	// does. least is what it counts as.
	smallest    int
	leastPods   int64
	leastWeight int64
	available   int64
	shortOfZone bool
	weights     int64
}

type zoneRow struct {
	name    string
	weight  int64
	pods    int64
	held    int64
	cap     int64
	capRule Rule
	member  bool // of D
	byAll   bool // pods on ineligible nodes count for the skew, too: there are no others
	part    Part
	rule    Rule
}

// Judge answers the question for every zone at once.
//
// With c the pods in a zone, h those that its cap counts, and w its weight:
//
//	D = eligible zones, zones that close, and declared zones
//	A = D without the unavailable zones and without weights of 0
//	m = the zone with the smallest c/w among those of A that may still take a pod (are below their
//	    cap) and are not recovering; the recovering ones when there is no other
//
//	zone z is allowed when   w(z) > 0
//	                 and     h(z) + 1 <= cap(z)
//	                 and     (c(z) + 1) * w(m) - w(z) * c(m) <= maxSkew * w(m)
//
// c(m) counts as 0 when A has fewer than minZones zones, and without any m the last line asks nothing. With equal
// weights and no caps this is the rule of topologySpreadConstraints.
//
// A zone that closes is one without an open node whose downAfter is not over. That it counts, declared or not, keeps the
// taints of its nodes from ending the grace period at once.
//
// A zone that has reached its cap is left out of the minimum because it can never catch up: if it stayed, the
// others would wait for it for ever although they have room. With it left out, m itself is always
// allowed, so that the rules refuse every zone only when every available zone is at its cap.
func (p *Policy) Judge(q Question) *Table {
	t := &Table{
		policy:   p,
		replicas: q.Replicas,
		index:    make(map[string]int, len(q.Domains)+len(p.declared)),
		zones:    make([]zoneRow, 0, len(q.Domains)+len(p.declared)),
	}
	for i := range q.Domains {
		d := &q.Domains[i]
		row := t.row(d.Name, q.View)
		row.pods, row.held = d.Pods, d.Held
		row.member = d.Eligible
		if !d.Eligible && !d.Excluded && (q.Typical || row.part == Closing) {
			// All its nodes are tainted. What it holds is still there.
			row.member, row.byAll, row.pods = true, true, d.AllPods
		}
		t.add(row)
	}
	for i := range p.declared {
		t.addMissing(p.declared[i].name, q.View)
	}
	for name, part := range q.View {
		if part == Closing {
			t.addMissing(name, q.View)
		}
	}
	t.other = t.row("", nil)
	t.decide()
	return t
}

// addMissing adds a zone that takes part although it has no nodes, unless it is there.
func (t *Table) addMissing(name string, view View) {
	if _, seen := t.index[name]; !seen {
		row := t.row(name, view)
		row.member = true
		t.add(row)
	}
}

func (t *Table) add(row zoneRow) {
	t.index[row.name] = len(t.zones)
	t.zones = append(t.zones, row)
}

func (t *Table) row(name string, view View) zoneRow {
	weight, maxPods := t.policy.weightOf(name)
	row := zoneRow{name: name, weight: weight, part: view[name]}
	row.cap, row.capRule = t.policy.capOf(maxPods, t.replicas)
	return row
}

// decide computes the minimum and all verdicts from the counts.
func (t *Table) decide() {
	t.available, t.weights, t.smallest = 0, 0, -1
	recovering := -1
	for i := range t.zones {
		z := &t.zones[i]
		if !z.member || z.weight == 0 || z.part == Unavailable {
			continue
		}
		t.available++
		t.weights += z.weight
		if z.held >= z.cap {
			continue
		}
		candidate := &t.smallest
		if z.part == Recovering {
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
	t.shortOfZone = t.available < t.policy.minZones
	if t.shortOfZone {
		t.leastPods = 0
	}
	for i := range t.zones {
		t.zones[i].rule = t.verdict(&t.zones[i])
	}
	t.other.rule = t.verdict(&t.other)
}

// emptier compares pods/weight. Of equal zones the first by name is taken, so that the words of a refusal, which become a
// condition of the pod, do not depend on the order in which zones were seen.
func (z *zoneRow) emptier(than *zoneRow) bool {
	mine, its := z.pods*than.weight, than.pods*z.weight
	return mine < its || mine == its && z.name < than.name
}

func (t *Table) verdict(z *zoneRow) Rule {
	switch {
	case z.weight == 0:
		return Forbidden
	case z.held >= z.cap:
		return z.capRule
	case t.smallest < 0 && !t.shortOfZone:
		return Pass
	case (z.pods+1)*t.leastWeight-z.weight*t.leastPods <= t.policy.maxSkew*t.leastWeight:
		return Pass
	case t.shortOfZone:
		return MinZones
	}
	return Skew
}

// Policy returns the policy that the table was made for.
func (t *Table) Policy() *Policy { return t.policy }

// Rule returns the verdict on a zone: Pass, or the rule that refuses it. Whether a refusal keeps the pod off the
// zone depends on Policy.Hard.
func (t *Table) Rule(zone string) Rule { return t.lookup(zone).rule }

func (t *Table) lookup(zone string) *zoneRow {
	if i, ok := t.index[zone]; ok {
		return &t.zones[i]
	}
	return &t.other
}

// Check returns the verdict on a node by its labels, for a hard policy; a soft one lets every node pass.
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

// Zones is how many zones have a verdict of their own, see Slot.
func (t *Table) Zones() int { return len(t.zones) }

// Slot numbers the verdicts: 0 to Zones()-1 for the node's zone, Zones() when it has none, and -1 when the table does
// not know its zone. Nodes of one slot have one verdict and one message, until Add.
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
type Change struct{ Pods, AllPods, Held int64 }

// Add changes the counts of a zone, and every verdict with them. A zone that the table does not know is passed over: its
// nodes came after the counts.
func (t *Table) Add(zone string, c Change) {
	i, ok := t.index[zone]
	if !ok || c == (Change{}) {
		return
	}
	z := &t.zones[i]
	if z.byAll {
		z.pods += c.AllPods
	} else {
		z.pods += c.Pods
	}
	z.held += c.Held
	t.decide()
}

// Refused returns the zones that the table refuses, with the rule that does; nil for a soft policy.
func (t *Table) Refused() map[string]Rule {
	var refused map[string]Rule
	for i := range t.zones {
		if z := &t.zones[i]; !z.rule.OK() && !t.policy.soft {
			if refused == nil {
				refused = map[string]Rule{}
			}
			refused[z.name] = z.rule
		}
	}
	return refused
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
