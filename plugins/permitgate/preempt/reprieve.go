package preempt

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// A reprieve runs the filters for at most reprievesAtLeast members, or reprievesPerMember times for each. What it has not come to by then goes:
// the least important, since the others come first.
const (
	reprievesAtLeast   = 4000
	reprievesPerMember = 20
)

// unit is pods of which none or all go, or a gang's, which may go as long as they leave it a quorum.
type unit struct {
	gang *victimGang // nil for a single pod
	pods []*candidate
	rank rank
	from time.Time // when the first of them started
}

// units groups the victims, the most important first, as upstream's MoreImportantVictim orders them.
func (a *attempt) units() (units []*unit) {
	byGang := map[*victimGang]*unit{}
	for _, c := range a.victims() {
		u := byGang[c.gang]
		if c.gang == nil || u == nil {
			u = &unit{gang: c.gang, from: startOf(c.pod())}
			units = append(units, u)
			if c.gang != nil {
				byGang[c.gang] = u
			}
		}
		u.pods = append(u.pods, c)
		if !c.leaving {
			u.rank = max(u.rank, rankOf(c.priority, false))
		}
		if start := startOf(c.pod()); start.Before(u.from) {
			u.from = start
		}
	}
	for _, u := range units {
		slices.SortStableFunc(u.pods, func(a, b *candidate) int { return compareImportance(b, a) })
	}
	slices.SortStableFunc(units, func(a, b *unit) int {
		gangs := 0
		if (a.gang != nil) != (b.gang != nil) {
			gangs = first(a.gang != nil)
		}
		return cmp.Or(cmp.Compare(b.rank, a.rank), gangs, cmp.Compare(len(b.pods), len(a.pods)), a.from.Compare(b.from))
	})
	return units
}

// reprieve puts back the victims without which the members still fit, as upstream's selectVictimsOnDomain does: those first whose eviction
// violates a budget, as long as it does, and the most important first.
func (a *attempt) reprieve(ctx context.Context) {
	violate := func(pods []*candidate) bool {
		return slices.ContainsFunc(pods, func(c *candidate) bool { return a.used.violated(a.budgetsOf(c)) })
	}
	if violate(a.victims()) { // others on the same nodes may do as well
		for _, i := range slices.Sorted(maps.Keys(a.guests)) {
			a.evict(ctx, a.withGangs(a.removable(i, nil, true))...)
		}
	}
	var back [][]*candidate
	rest := a.units()
	for again := true; again; { // those that have to go may violate a budget that others would have left
		var violating, others []*unit
		for _, u := range rest {
			if !violate(u.pods) {
				others = append(others, u)
				continue
			}
			violating = append(violating, u)
			a.count(-1, u.pods...) // as if they came back
		}
		for _, u := range violating {
			a.count(1, u.pods...)
		}
		back = append(back, a.reprieveUnits(ctx, violating)...)
		again, rest = len(violating) > 0, others
	}
	back = append(back, a.reprieveUnits(ctx, rest)...)
	if len(back) > 0 && !a.allFit(ctx) {
		a.evict(ctx, slices.Concat(back...)...)
		a.reprieveBesideAll(ctx, back)
	}
}

// allFit reports whether the members fit on all nodes. The other functions only ask about the node of who comes back.
func (a *attempt) allFit(ctx context.Context) bool {
	for _, i := range slices.Sorted(maps.Keys(a.guests)) {
		if !a.fitTogether(ctx, i) {
			return false
		}
	}
	return true
}

// reprieveBesideAll puts back what does not keep members off other nodes. It tries all together, and each half if that
// is refused, as reprieveOn does.
func (a *attempt) reprieveBesideAll(ctx context.Context, units [][]*candidate) {
	if !a.mayAsk() {
		return
	}
	pods := slices.Concat(units...)
	a.putBack(ctx, pods...)
	if a.allFit(ctx) {
		return
	}
	a.evict(ctx, pods...)
	if half := len(units) / 2; half > 0 {
		a.reprieveBesideAll(ctx, units[:half])
		a.reprieveBesideAll(ctx, units[half:])
	}
}

// reprieveUnits puts back units in their order, the single pods of a node that follow each other together.
func (a *attempt) reprieveUnits(ctx context.Context, units []*unit) (back [][]*candidate) {
	singles := map[int][]*candidate{} // by site
	reprieveSingles := func() {
		for _, i := range slices.Sorted(maps.Keys(singles)) {
			for _, c := range a.reprieveOn(ctx, i, singles[i]) {
				back = append(back, []*candidate{c})
			}
		}
		clear(singles)
	}
	for _, u := range units {
		if u.gang == nil {
			singles[u.pods[0].site] = append(singles[u.pods[0].site], u.pods...)
			continue
		}
		reprieveSingles()
		back = append(back, a.reprieveUnit(ctx, u))
	}
	reprieveSingles()
	return back
}

// reprieveUnit puts back the pods of a unit without which the members on their nodes still fit. A gang gets a quorum back, or nothing.
func (a *attempt) reprieveUnit(ctx context.Context, u *unit) (back []*candidate) {
	for _, c := range u.pods {
		if a.mayAsk() && a.leavesRoom(c) && a.fitTogether(ctx, c.site, c) {
			back = append(back, c)
		}
	}
	if u.gang == nil || len(u.gang.Bound) < u.gang.MinMember || len(u.gang.Bound)-a.lost[u.gang] >= u.gang.MinMember {
		return back
	}
	a.evict(ctx, back...)
	return nil
}

// reprieveOn puts back pods of a node in their order. It tries all of them together, and each half if the filters refuse: so few that have
// to go among many are found by few runs of the filters.
func (a *attempt) reprieveOn(ctx context.Context, i int, pods []*candidate) (back []*candidate) {
	for len(pods) > 0 && a.mayAsk() {
		rest := a.leavingRoom(pods)
		switch {
		case len(rest) == 0:
			return back
		case a.fitTogether(ctx, i, rest...):
			return append(back, rest...)
		case len(rest) == 1:
			pods = pods[slices.Index(pods, rest[0])+1:]
		default:
			half := slices.Index(pods, rest[len(rest)/2])
			back = append(back, a.reprieveOn(ctx, i, pods[:half])...)
			pods = pods[half:]
		}
	}
	return back
}

// mayAsk reports whether the reprieve may run the filters once more.
func (a *attempt) mayAsk() bool {
	return !a.failed && a.asked < max(reprievesAtLeast, reprievesPerMember*a.Request.Need)
}

// leavingRoom lists those victims of a node whose requests leave room for the members there if the ones before come back too.
func (a *attempt) leavingRoom(pods []*candidate) (leaving []*candidate) {
	for _, c := range pods {
		if a.leavesRoom(c) {
			leaving = append(leaving, c)
			a.addFree(c.site, c.amounts, -1)
		}
	}
	for _, c := range leaving {
		a.addFree(c.site, c.amounts, 1)
	}
	return leaving
}

// leavesRoom reports whether a victim's requests leave room for the members on its node.
func (a *attempt) leavesRoom(c *candidate) bool {
	free, kept := a.freeNow(c.site), a.kept[c.site]
	for k, n := range a.guests[c.site] {
		for j, want := range a.classes[k].request {
			if n > 0 && want > 0 && c.amounts[j] > 0 && free[j]-c.amounts[j] < kept[j] {
				return false
			}
		}
	}
	return true
}

// fitTogether puts victims back on a node, if the filters then let the members there onto it, one after the other. It takes the members off
// first, since a node does not count who has a host port.
func (a *attempt) fitTogether(ctx context.Context, i int, victims ...*candidate) bool {
	var members []int // by their class
	for k, n := range a.guests[i] {
		members = append(members, slices.Repeat([]int{k}, n)...)
	}
	a.asked += len(members)
	for _, k := range members {
		a.removePod(ctx, a.classes[k].info, i)
	}
	a.putBack(ctx, victims...)
	fit := 0
	for ; fit < len(members) && a.fits(ctx, members[fit], i); fit++ {
		a.addPod(ctx, a.classes[members[fit]].info, i)
	}
	if fit == len(members) {
		return true
	}
	for _, k := range members[:fit] {
		a.removePod(ctx, a.classes[k].info, i)
	}
	a.evict(ctx, victims...)
	for _, k := range members {
		a.addPod(ctx, a.classes[k].info, i)
	}
	return false
}
