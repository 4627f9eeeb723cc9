package policy

import (
	"cmp"
	"math"
	"slices"
)

// This file says in which order pods leave when a workload is made smaller.

// DeletionCosts returns deletion costs (controller.kubernetes.io/pod-deletion-cost) by which the pods of a ReplicaSet leave in
// the order that keeps the spread. own is how many pods it has in each zone; the table counts them. Each zone gets as many
// costs, the highest first: that of the pod that leaves last, at most 0.
//
// Pods leave in the reverse of the order in which they would be placed: with none of its own, the next one goes to a zone below
// its cap, as caps are with so many replicas; of these to one that it does not put ahead of its share, or least; of these to
// that with the smallest share. So the k pods with the lowest costs are for every k those whose loss is best for the spread,
// and it does not matter which of equal costs go first.
//
// As long as zones may keep their shares, a cost follows from the place of the pod among those of its zone, and from the
// weights: the cost of no other pod changes when one comes or goes. Where caps or missing pods of another zone change the order,
// so do the costs from there on downwards.
func (t *Table) DeletionCosts(own map[string]int) map[string][]int32 {
	at := placement{Table: t.Clone()}
	left, pods := map[string]int{}, 0
	for i := range at.zones {
		z := &at.zones[i]
		left[z.name] = own[z.name]
		pods += own[z.name]
		at.shift(z, -int64(own[z.name]))
	}
	desired, scale := at.replicas, at.costScale()
	costs := make(map[string][]int32, len(own))
	lowest := int64(0)
	var equal equalPlaces
	for range pods {
		at.prepare(desired)
		next := at.nextPlace(left)
		z := &at.zones[next]
		if !equal.joins(next) {
			if len(equal.zones) > 0 {
				lowest--
			}
			equal = at.equalPlaces(next)
		}
		lowest = max(math.MinInt32, min(lowest, -int64(len(costs[z.name]))*scale/max(1, z.weight)))
		costs[z.name] = append(costs[z.name], int32(lowest))
		left[z.name]--
		at.shift(z, 1)
	}
	return costs
}

// placement is a table to which pods are added one after the other.
type placement struct {
	*Table
	// uneven says that some zone is ahead of its share by more than a pod.
	uneven bool
}

// shift adds pods to a zone without a new decision.
func (t *placement) shift(z *zoneRow, pods int64) {
	z.pods += pods
	if t.policy.Caps() {
		z.held += pods // otherwise it is not counted
	}
}

// prepare decides anew before the next pod.
func (t *placement) prepare(desired int64) {
	t.resize(desired)
	t.decide()
	t.uneven = slices.ContainsFunc(t.zones, func(z zoneRow) bool { return t.skewOf(&z) > 1 })
}

// resize sets the caps for the replicas that there are with one more pod, which are no more than desired.
func (t *placement) resize(desired int64) {
	if !t.policy.ScalesCaps() || t.policy.replicas.number > 0 || desired == UnknownReplicas {
		return
	}
	held := int64(1)
	for i := range t.zones {
		held += t.zones[i].held
	}
	t.replicas = min(desired, held)
	for i := range t.zones {
		z := &t.zones[i]
		_, maxPods := t.policy.weightOf(z.name)
		z.cap, z.capRule = t.policy.capOf(maxPods, t.replicas)
	}
}

// nextPlace returns the zone that the next pod is placed in, of those that have pods left.
func (t *placement) nextPlace(left map[string]int) int {
	next := -1
	for i := range t.zones {
		if z := &t.zones[i]; left[z.name] > 0 && (next < 0 ||
			cmp.Or(t.comparePlaces(z, &t.zones[next]), cmp.Compare(z.name, t.zones[next].name)) < 0) {
			next = i
		}
	}
	return next
}

// comparePlaces orders zones for one more pod, the better one first; 0 if either does.
func (t *placement) comparePlaces(a, b *zoneRow) int {
	return cmp.Or(
		cmp.Compare(over(a), over(b)), cmp.Compare(t.aheadWithOneMore(a), t.aheadWithOneMore(b)), cmp.Compare(t.idle(a), t.idle(b)),
		cmp.Compare(a.pods*max(1, b.weight), b.pods*max(1, a.weight)),
	)
}

// idle is 1 for a zone that is not compared with others while some zone is ahead: one more pod there does not help.
func (t *placement) idle(z *zoneRow) int {
	if t.uneven && (!z.counts || z.availability.unavailable()) {
		return 1
	}
	return 0
}

// over is how far one more pod takes a zone above its cap; the worst of all where none is allowed.
func over(z *zoneRow) int64 {
	if z.weight == 0 {
		return math.MaxInt64
	}
	return max(0, z.held+1-z.cap)
}

// aheadWithOneMore is how far one more pod takes a zone ahead of its share. Where no spread is better than a whole pod it is 1.
func (t *placement) aheadWithOneMore(z *zoneRow) int64 {
	more := *z
	more.pods++
	return max(1, t.skewOf(&more))
}

// equalPlaces are zones of which any could have taken the next pod when the first of them did.
type equalPlaces struct {
	candidates []bool // by zone
	zones      []int  // those that have taken one
}

func (t *placement) equalPlaces(first int) equalPlaces {
	out := equalPlaces{candidates: make([]bool, len(t.zones)), zones: []int{first}}
	for i := range t.zones {
		out.candidates[i] = t.comparePlaces(&t.zones[i], &t.zones[first]) == 0
	}
	return out
}

// joins reports whether a zone is one of the equal ones that has not taken a pod yet; it then has.
func (e *equalPlaces) joins(zone int) bool {
	if len(e.zones) == 0 || !e.candidates[zone] || slices.Contains(e.zones, zone) {
		return false
	}
	e.zones = append(e.zones, zone)
	return true
}

// maxCostScale bounds what weights do to costs, so that 30,000 pods of one zone have room.
const maxCostScale = int64(1) << 16

// costScale is how far costs of a zone with weight 1 lie apart, so that unequal shares have unequal costs. With equal weights
// the costs of a zone are 0, -1, -2 and so on.
func (t *placement) costScale() int64 {
	divisor, greatest, least := int64(0), int64(1), int64(math.MaxInt64)
	for i := range t.zones {
		if w := t.zones[i].weight; w > 0 {
			divisor, greatest, least = gcd(divisor, w), max(greatest, w), min(least, w)
		}
	}
	if least >= greatest {
		return greatest
	}
	return min(greatest*(greatest/divisor), max(greatest, maxCostScale))
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
