package rebalance

import (
	"slices"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// table is what a rule says about the zones, with the pods where they are, or where they would be after moves. Its
// formulas are those by which the scheduler's plugin decides.
type table interface {
	// Above is how many pods of a zone are more than the rule allows there.
	Above(zone string) int64
	// Fullest is the zone that a pod should leave first, and Emptiest that which should take the next one, of those
	// that the function admits.
	Fullest(leaves func(zone string) bool) (zone string, ok bool)
	Emptiest(takes func(zone string) bool) (zone string, ok bool)
	// shift adds pods to a zone, or takes them away.
	shift(zone string, pods int64)
	clone() table
}

// policyTable is that of a ZoneSpreadPolicy.
type policyTable struct{ *policy.Table }

func (t policyTable) shift(zone string, pods int64) {
	change := policy.Change{Pods: pods}
	if t.Policy().Caps() {
		change.Held = pods // else they are not counted
	}
	t.Add(zone, change)
}

func (t policyTable) clone() table { return policyTable{t.Clone()} }

// constraintTable is that of a topologySpreadConstraint.
type constraintTable struct {
	view                counts.View
	zones               []string // in order
	maxSkew, minDomains int32
}

func newConstraintTable(t *counts.Table, maxSkew, minDomains int32) *constraintTable {
	c := &constraintTable{view: counts.NewView(t), maxSkew: maxSkew, minDomains: minDomains}
	for _, zone := range t.All() {
		c.zones = append(c.zones, zone)
	}
	slices.Sort(c.zones)
	return c
}

func (t *constraintTable) minimum() int {
	return counts.GlobalMinimum(t.view.Minimum(), t.view.Domains(), int(t.minDomains))
}

func (t *constraintTable) Above(zone string) int64 {
	return int64(counts.Above(t.view.Count(zone), t.minimum(), t.maxSkew))
}

func (t *constraintTable) Fullest(leaves func(zone string) bool) (zone string, ok bool) {
	most := int64(0)
	for _, z := range t.zones {
		if above := t.Above(z); above > most && leaves(z) {
			zone, most, ok = z, above, true
		}
	}
	return zone, ok
}

func (t *constraintTable) Emptiest(takes func(zone string) bool) (zone string, ok bool) {
	minimum, fewest := t.minimum(), 0
	for _, z := range t.zones {
		pods := t.view.Count(z)
		if counts.Fits(pods, true, minimum, t.maxSkew) && (!ok || pods < fewest) && takes(z) {
			zone, fewest, ok = z, pods, true
		}
	}
	return zone, ok
}

func (t *constraintTable) shift(zone string, pods int64) { t.view.Add(zone, int(pods)) }

func (t *constraintTable) clone() table {
	c := *t
	c.view = t.view.Clone()
	return &c
}

// canMove reports whether a pod of a zone has, by the rule alone, a zone to go to.
func canMove(t table, from string, takes func(zone string) bool) bool {
	t = t.clone()
	t.shift(from, -1)
	to, ok := t.Emptiest(takes)
	return ok && to != from
}
