package preempt

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"
)

// A reprieve runs the filters for at most reprievesAtLeast members, or reprievesPerMember times for each. What it has
// not come to by then goes: the least important, since the others come first.
const (
	reprievesAtLeast   = 4000
	reprievesPerMember = 20
)

// unit is a victim, or the victims of a gang, which may go as long as they leave it a quorum.
type unit struct {
	gang     *victimGang // nil for a single pod
	pods     []*candidate
	priority int64     // the highest of them; below all priorities if they leave anyway
	from     time.Time // when the first of them started
}

// unitsOf groups victims, the most important first, as upstream's MoreImportantVictim orders them.
func unitsOf(victims []*candidate) (units []*unit) {
	byGang := map[*victimGang]*unit{}
	for _, c := range victims {
		u := byGang[c.gang]
		if c.gang == nil || u == nil {
			u = &unit{gang: c.gang, from: startOf(c.pod()), priority: math.MinInt64}
			units = append(units, u)
			if c.gang != nil {
				byGang[c.gang] = u
			}
		}
		u.pods = append(u.pods, c)
		if !c.leaving {
			u.priority = max(u.priority, int64(c.priority))
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
		return cmp.Or(cmp.Compare(b.priority, a.priority), gangs, cmp.Compare(len(b.pods), len(a.pods)), a.from.Compare(b.from))
	})
	return units
}

// reprieve puts back the victims without which the members still fit, as upstream's selectVictimsOnDomain does: those
// first whose eviction violates a budget, and the most important first.
func (a *attempt) reprieve(ctx context.Context) {
	units := unitsOf(a.victims())
	violating := slices.DeleteFunc(slices.Clone(units), func(u *unit) bool {
		return !slices.ContainsFunc(u.pods, func(c *candidate) bool { return a.used.violated(a.budgetsOf(c)) })
	})
	a.reprieveUnits(ctx, violating)
	a.reprieveUnits(ctx, slices.DeleteFunc(units, func(u *unit) bool { return slices.Contains(violating, u) }))
}

// settleTogether takes off again those who came back, if the members do not fit on all nodes with them, and puts back
// what does not keep members off other nodes. The other functions only ask about the node of the pod that comes back.
func (a *attempt) settleTogether(ctx context.Context) {
	var back []*candidate
	for _, i := range slices.Sorted(maps.Keys(a.freed)) {
		for _, c := range a.sites[i].candidates {
			if off, touched := a.evicted[c]; touched && !off && (a.guests[i] != nil || c.gang != nil) {
				back = append(back, c)
			}
		}
	}
	if len(back) == 0 || a.allFit(ctx) {
		return
	}
	a.evict(ctx, back...)
	for _, u := range unitsOf(back) {
		if !a.mayAsk() {
			return
		}
		a.putBack(ctx, u.pods...)
		if !a.allFit(ctx) {
			a.evict(ctx, u.pods...)
		}
	}
}

// allFit reports whether the members fit on all nodes.
func (a *attempt) allFit(ctx context.Context) bool {
	for _, i := range slices.Sorted(maps.Keys(a.guests)) {
		if !a.fitTogether(ctx, i) {
			return false
		}
	}
	return true
}

// reprieveUnits puts back units in their order, the single pods of a node that follow each other together.
func (a *attempt) reprieveUnits(ctx context.Context, units []*unit) {
	singles := map[int][]*candidate{} // by site
	reprieveSingles := func() {
		for _, i := range slices.Sorted(maps.Keys(singles)) {
			a.reprieveOn(ctx, i, singles[i])
		}
		clear(singles)
	}
	for _, u := range units {
		if u.gang == nil {
			singles[u.pods[0].site] = append(singles[u.pods[0].site], u.pods...)
			continue
		}
		reprieveSingles()
		a.reprieveUnit(ctx, u)
	}
	reprieveSingles()
}

// reprieveUnit puts back the pods of a unit without which the members on their nodes still fit. A gang gets a quorum
// back, or nothing.
func (a *attempt) reprieveUnit(ctx context.Context, u *unit) {
	var back []*candidate
	for _, c := range u.pods {
		if a.mayAsk() && a.leavesRoom(c) && a.fitTogether(ctx, c.site, c) {
			back = append(back, c)
		}
	}
	if len(u.gang.Bound) < u.gang.MinMember || len(u.gang.Bound)-a.lost[u.gang] >= u.gang.MinMember {
		return
	}
	a.evict(ctx, back...)
}

// reprieveOn puts back pods of a node in their order. It tries all of them together, and each half if the filters
// refuse: so few that have to go among many are found by few runs of the filters.
func (a *attempt) reprieveOn(ctx context.Context, i int, pods []*candidate) {
	for len(pods) > 0 && a.mayAsk() {
		rest := a.leavingRoom(pods)
		switch {
		case len(rest) == 0 || a.fitTogether(ctx, i, rest...):
			return
		case len(rest) == 1:
			pods = pods[slices.Index(pods, rest[0])+1:]
		default:
			half := slices.Index(pods, rest[len(rest)/2])
			a.reprieveOn(ctx, i, pods[:half])
			pods = pods[half:]
		}
	}
}

// mayAsk reports whether the reprieve may run the filters once more.
func (a *attempt) mayAsk() bool {
	return !a.failed && a.asked < max(reprievesAtLeast, reprievesPerMember*a.Request.Need)
}

// leavingRoom lists those victims of a node whose requests leave room for the members there if the ones before come
// back too.
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

// fitTogether puts victims back on a node, if the filters then let the members there onto it, one after the other. It
// takes the members off first, since a node does not count who has a host port.
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
