package act

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// maxPartlyBound is how many gangs that are bound in part a status lists.
	maxPartlyBound = 100
	// partlyBoundFor is how long a gang has to be bound in part at least. A member of a running gang that is replaced makes
	// it so for a moment.
	partlyBoundFor = 5 * time.Minute
)

// Gang is what of a gang decides.
type Gang struct {
	UID             types.UID
	Namespace, Name string
	// Bound are the live members that have a node, which are among the observed pods. Missing is how many more the gang
	// needs.
	Bound   []types.UID
	Missing int
	// PartlyBound: the PodGroup asks for the eviction of its bound members, and the scheduler reports that it is bound in
	// part. Since is from when on; zero if the report does not say.
	PartlyBound bool
	Since       time.Time
	// Stays says why the members are not to be evicted; empty if nothing is known against it.
	Stays string
}

// Workload is that of the moves of its members.
func (g *Gang) Workload() string { return "PodGroup " + g.Namespace + "/" + g.Name }

// notePartlyBound lists the gangs that are reported to be bound in part. One whose report does not say since when is so
// since it was first listed.
func (n *next) notePartlyBound() {
	if n.Gangs == nil {
		return
	}
	listed := map[types.UID]*v1alpha1.RebalanceGang{}
	for i := range n.Status.PartlyBound {
		listed[n.Status.PartlyBound[i].UID] = &n.Status.PartlyBound[i]
	}
	var out []v1alpha1.RebalanceGang
	for _, uid := range slices.Sorted(maps.Keys(n.Gangs)) {
		g := n.Gangs[uid]
		if !g.PartlyBound {
			continue
		}
		entry := v1alpha1.RebalanceGang{
			Namespace: g.Namespace, Name: g.Name, UID: uid, Since: second(n.Now), Bound: int64(len(g.Bound)), Missing: int64(g.Missing),
		}
		if was := listed[uid]; was != nil {
			entry.Since, entry.Why = was.Since, was.Why
		}
		if !g.Since.IsZero() {
			entry.Since = second(g.Since)
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b v1alpha1.RebalanceGang) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	n.Status.PartlyBound = out[:min(len(out), maxPartlyBound)]
}

// dueGang returns the first gang whose bound members are to be evicted now, nil if there is none. waits says in words
// that one waits for the hour: no other move begins then, or it would wait for ever.
func (n *next) dueGang() (due *Gang, waits string) {
	room, free := n.roomThisHour()
	for i := range n.Status.PartlyBound {
		entry := &n.Status.PartlyBound[i]
		g, known := n.Gangs[entry.UID]
		if !known {
			continue // the gangs are not known now
		}
		entry.Why = ShortReason(n.whyNotEvicted(&g, entry.Since.Time))
		switch {
		case entry.Why != "":
		case len(g.Bound) > room:
			entry.Why = fmt.Sprintf("waits for the hour: %d members are bound, and maxPerHour is %d", len(g.Bound), MaxPerHour(n.ZoneRebalance))
			n.again(free)
			waits = cmp.Or(waits, fmt.Sprintf("the hour: %s is evicted first, and maxPerHour is %d", g.Workload(), MaxPerHour(n.ZoneRebalance)))
		case waits != "": // the first comes first
			entry.Why = "waits for another gang"
		default:
			if why := n.Refused(g.UID); why != "" { // asked last: it costs a copy of the cluster
				entry.Why = ShortReason(why)
				n.again(n.Now.Add(refusedWithin))
				continue
			}
			return &g, ""
		}
	}
	return nil, waits
}

// whyNotEvicted says why the bound members of a gang are not evicted, whatever the hour has room for.
func (n *next) whyNotEvicted(g *Gang, since time.Time) string {
	after := max(After(n.ZoneRebalance), partlyBoundFor)
	settled := since.Add(after)
	switch {
	case g.Stays != "":
		return g.Stays
	case n.Spec.Mode != v1alpha1.RebalanceEvict:
		return "the mode is not Evict"
	case len(g.Bound) > int(MaxPerHour(n.ZoneRebalance)):
		return fmt.Sprintf("%d members are bound, which are evicted together, and maxPerHour is %d", len(g.Bound), MaxPerHour(n.ZoneRebalance))
	case n.Now.Before(settled):
		n.again(settled.Add(time.Second))
		return fmt.Sprintf("has not been bound in part for %s yet", after)
	}
	if rests := GangRests(n.ZoneRebalance, g.Workload(), Cooldown(n.ZoneRebalance), n.Now); !rests.IsZero() {
		n.again(rests)
		return "its members were evicted within the cooldown"
	}
	return ""
}

// GangRests returns until when a gang rests because the ZoneRebalance has had its members evicted; zero if it does not.
func GangRests(r *v1alpha1.ZoneRebalance, workload string, cooldown time.Duration, now time.Time) (until time.Time) {
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		if end := m.At.Add(cooldown + time.Second); m.PodGroup != "" && m.Workload == workload && now.Before(end) && end.After(until) {
			until = end
		}
	}
	return until
}

// beginGang begins the evictions of all bound members of a gang. A part of them would be replaced before the others
// are gone.
func (n *next) beginGang(g *Gang) {
	begun := second(n.Now)
	n.Status.Moves = slices.DeleteFunc(slices.Clone(n.Status.Moves), func(m v1alpha1.RebalanceMove) bool { return slices.Contains(g.Bound, m.UID) }) // was refused
	for _, uid := range g.Bound {
		pod := n.Pods[uid]
		m := v1alpha1.RebalanceMove{
			Namespace: g.Namespace, Name: pod.Name, UID: uid, PodGroup: g.UID, Workload: g.Workload(), Controller: pod.Controller, From: pod.Zone,
			Round: n.Status.Round, State: v1alpha1.MoveEvicting, At: begun, Begun: begun, Due: second(n.Now.Add(pod.Grace + bindWithin)),
		}
		n.Status.Moves = append(n.Status.Moves, m)
		n.step.Evict = append(n.step.Evict, m)
	}
	n.step.Waits = "the eviction of the members of " + g.Workload()
	n.again(n.Now.Add(retryAfter))
}

// whole reports whether a gang needs no more members.
func (n *next) whole(gang types.UID) bool {
	g, known := n.Gangs[gang]
	return known && g.Missing == 0
}

// followGangs looks at what has come of the gangs whose members are evicted.
func (n *next) followGangs() {
	moves := map[types.UID][]*v1alpha1.RebalanceMove{}
	for i := range n.Status.Moves {
		if m := &n.Status.Moves[i]; m.PodGroup != "" && m.State == v1alpha1.MoveEvicted {
			moves[m.PodGroup] = append(moves[m.PodGroup], m)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(moves)) {
		n.followGang(uid, moves[uid])
	}
}

// followGang looks at what has come of a gang by its members that are evicted.
func (n *next) followGang(uid types.UID, moves []*v1alpha1.RebalanceMove) {
	g, exists := n.Gangs[uid]
	due := metav1.Time{}
	ends := ""
	var made []Pod
	for _, m := range moves {
		if due.Before(&m.Due) {
			due = m.Due
		}
		if _, there := n.Pods[m.UID]; there {
			ends = m.Name
		}
		_, replacements := n.replacements(m) // no zone is planned
		made = append(made, replacements...)
	}
	preempted := n.preemptedFor(made)
	end := func(why string) {
		for _, m := range moves {
			m.Why = why
			n.enter(m, v1alpha1.MoveMoved)
		}
	}
	fail := func(reason, why string) {
		for _, m := range moves {
			n.fail(reason, m, why)
		}
	}
	switch {
	case preempted != "":
		fail(v1alpha1.ReasonPreemption, fmt.Sprintf("pod %s was preempted on the node of a member in its place", preempted))
	case n.Gangs != nil && !exists && ends == "":
		end("the PodGroup is gone")
	case n.whole(uid):
		end("the gang is whole")
	case exists && n.Now.After(due.Time) && ends != "":
		fail(v1alpha1.ReasonNotBound, fmt.Sprintf("%s has not ended", ends))
	case exists && n.Now.After(due.Time) && len(g.Bound) > 0:
		fail(v1alpha1.ReasonGangPartlyBound, fmt.Sprintf("its gang is bound in part again: %d members are bound, and %d are missing", len(g.Bound), g.Missing))
	case exists && n.Now.After(due.Time):
		end("the gang waits as a whole")
	default:
		n.step.Waits = moves[0].Workload + ", to be whole or to wait as a whole"
		n.again(due.Add(time.Second))
	}
}
