package policy

// This file measures pods where they are. Evaluate says what a policy does with one more.

// Above returns how many of the pods in a zone are more than the policy allows there: all of them where the weight is
// 0, else those beyond the cap or those by which the zone is ahead of its share by more than maxSkew, whichever are
// more. Pods in a zone that is closed or full are ahead of nothing.
func (t *Table) Above(zone string) int64 { return t.above(t.lookup(zone)) }

func (t *Table) above(z *zoneRow) int64 {
	if z.weight == 0 {
		return z.pods
	}
	return max(0, z.held-z.cap, t.skewOf(z)-t.policy.maxSkew)
}

// Fullest returns the zone that a pod should leave first, of those that hold more than the policy allows and from which
// a pod may leave; false if there is none. From a zone that exceeds its cap, or has a weight of 0, pods have to go
// whatever the others hold.
func (t *Table) Fullest(leaves func(zone string) bool) (zone string, ok bool) {
	var fullest *zoneRow
	for i := range t.zones {
		z := &t.zones[i]
		if t.above(z) > 0 && (fullest == nil || t.fuller(z, fullest)) && leaves(z.name) {
			fullest = z
		}
	}
	if fullest == nil {
		return "", false
	}
	return fullest.name, true
}

// fuller compares two zones that hold more than is allowed.
func (t *Table) fuller(z, than *zoneRow) bool {
	if must, other := z.mustShrink(), than.mustShrink(); must != other {
		return must
	}
	mine, its := t.surplus(z)*than.weight, t.surplus(than)*z.weight
	if z.mustShrink() {
		mine, its = t.above(z), t.above(than)
	}
	return mine > its || mine == its && z.name < than.name
}

// surplus is what a zone has beyond its share and maxSkew, times the weight of the zone that it is compared with. By
// this, divided by the zone's own weight, the emptiest zone has to rise before the zone may keep all of its pods.
func (t *Table) surplus(z *zoneRow) int64 {
	return (z.pods-t.policy.maxSkew)*t.leastWeight - z.weight*t.leastPods
}

// mustShrink reports whether the zone holds too much whatever the others hold.
func (z *zoneRow) mustShrink() bool { return z.weight == 0 || z.held > z.cap }

// Emptiest returns the zone that should take the next pod, that with the smallest share of those that the rules allow
// and that may take one; false if there is none. Zones that are closed or full, and those that have no eligible node,
// take none.
func (t *Table) Emptiest(takes func(zone string) bool) (zone string, ok bool) {
	var emptiest *zoneRow
	for i := range t.zones {
		z := &t.zones[i]
		if z.rule.OK() && z.counts && !z.availability.unavailable() && (emptiest == nil || z.emptier(emptiest)) && takes(z.name) {
			emptiest = z
		}
	}
	if emptiest == nil {
		return "", false
	}
	return emptiest.name, true
}
