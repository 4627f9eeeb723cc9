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
	// partlyBoundFor is how long a gang has to be bound in part at least. A member of a running gang that is replaced
	// makes it so for a moment.
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
	// part. Since is from when on, unless that was seen later; zero if the report does not say.
	PartlyBound bool
	Since       time.Time
	// Stays says why the members are not to be evicted; empty if nothing is known against it.
	Stays string
}

// Workload is that of the moves of its members.
func (g *Gang) Workload() string { return "PodGroup " + g.Namespace + "/" + g.Name }

// notePartlyBound lists the gangs that are reported to be bound in part. Each is so since it was first listed, or since
// the report says if that is later. Of too many those are left out that may not be evicted.
func (n *next) notePartlyBound() {
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
			Namespace: g.Namespace, Name: g.Name, UID: uid, Since: second(n.Now), Bound: int64(len(g.Bound)),
			Missing: int64(g.Missing),
		}
		if before := listed[uid]; before != nil {
			entry.Since, entry.Why = before.Since, before.Why
		}
		if g.Since.After(entry.Since.Time) {
			entry.Since = second(g.Since)
		}
		out = append(out, entry)
	}
	byAge := func(a, b v1alpha1.RebalanceGang) int {
		return cmp.Or(
			a.Since.Compare(b.Since.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		)
	}
	slices.SortFunc(out, byAge)
	if len(out) > maxPartlyBound {
		slices.SortStableFunc(out, func(a, b v1alpha1.RebalanceGang) int {
			return cmp.Compare(n.lastListed(a.UID), n.lastListed(b.UID))
		})
		out = out[:maxPartlyBound]
		slices.SortFunc(out, byAge)
	}
	n.Status.PartlyBound = out
}

// lastListed is 1 for a gang of which is known that it may not be evicted, which is listed after the others.
func (n *next) lastListed(gang types.UID) int {
	g := n.Gangs[gang]
	if g.Stays != "" || len(g.Bound) > int(MaxPerHour(n.ZoneRebalance)) || n.Tried(gang).Refused != "" {
		return 1
	}
	return 0
}

// noteWhy says of each gang that is not being evicted why it is not, while nothing may begin.
func (n *next) noteWhy(waits string) {
	for i := range n.Status.PartlyBound {
		entry := &n.Status.PartlyBound[i]
		if n.isEvicted(entry.UID) {
			entry.Why = ""
			continue
		}
		g := n.Gangs[entry.UID]
		entry.Why = ShortReason(cmp.Or(n.whyNotEvicted(&g, entry.Since.Time), "waits for "+waits))
	}
}

// isEvicted reports whether moves of a gang are under way.
func (n *next) isEvicted(gang types.UID) bool {
	return slices.ContainsFunc(n.Status.Moves, func(m v1alpha1.RebalanceMove) bool {
		return m.PodGroup == gang && (m.State == v1alpha1.MoveEvicting || m.State == v1alpha1.MoveEvicted)
	})
}

// Tried is whether the API server would let the bound members of a gang be evicted.
type Tried struct {
	// At is when that was found out; zero if it was not yet.
	At time.Time
	// Refused says why it would not; empty if it would.
	Refused string
}

// dueGang returns the first gang whose bound members are to be evicted now, nil if there is none. waits says in words
// what is waited for if one could be evicted that is not yet: no other move begins then, or it would wait for ever. A
// gang that would be refused keeps no other back; one of these is tried again every five minutes. At most one gang is
// tried in a step, since that costs a copy of the cluster.
func (n *next) dueGang() (due *Gang, waits string) {
	var first, old *v1alpha1.RebalanceGang
	var lastTry time.Time
	others := false
	for i := range n.Status.PartlyBound {
		entry := &n.Status.PartlyBound[i]
		g := n.Gangs[entry.UID]
		entry.Why = ShortReason(n.whyNotEvicted(&g, entry.Since.Time))
		if entry.Why != "" {
			continue
		}
		tried := n.Tried(g.UID)
		entry.Why = ShortReason(tried.Refused)
		if tried.At.After(lastTry) {
			lastTry = tried.At
		}
		switch {
		case tried.Refused == "" && first == nil:
			first = entry
		case tried.Refused == "":
			others, entry.Why = true, "waits for another gang"
		case old == nil || tried.At.Before(n.Tried(old.UID).At):
			old = entry
		}
	}
	switch again := lastTry.Add(refusedWithin); {
	case first != nil:
		due, waits = n.tryGang(first)
	case old != nil && n.Now.Before(again):
		n.again(again)
	case old != nil:
		due, waits = n.tryGang(old)
	}
	if due == nil && waits == "" && others {
		waits = "a copy of the cluster on which the next gang is tried"
		n.again(n.Now.Add(time.Second))
	}
	return due, waits
}

// tryGang finds out whether the bound members of a gang can be evicted now, and returns it if they are to be. waits
// says in words what it waits for.
func (n *next) tryGang(entry *v1alpha1.RebalanceGang) (due *Gang, waits string) {
	g, tried := n.Gangs[entry.UID], n.Tried(entry.UID)
	room, free := n.roomThisHour()
	if fits := len(g.Bound) <= room; fits || n.Now.Sub(tried.At) >= refusedWithin {
		if from := n.Try(g.UID); !from.IsZero() {
			n.again(from)
			if tried.Refused != "" {
				return nil, ""
			}
			entry.Why = "waits for a copy of the cluster on which its eviction is tried"
			return nil, "a copy of the cluster on which the eviction of " + g.Workload() + " is tried"
		}
		tried = n.Tried(g.UID)
		entry.Why = ShortReason(tried.Refused)
		switch {
		case tried.Refused != "":
			n.again(n.Now.Add(refusedWithin))
			return nil, ""
		case fits:
			return &g, ""
		}
	}
	entry.Why = fmt.Sprintf(
		"waits for the hour: %d members are bound, and maxPerHour is %d", len(g.Bound), MaxPerHour(n.ZoneRebalance),
	)
	n.again(free)
	return nil, fmt.Sprintf(
		"the hour: %s is evicted first, and maxPerHour is %d", g.Workload(), MaxPerHour(n.ZoneRebalance),
	)
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
		return fmt.Sprintf(
			"%d members are bound, which are evicted together, and maxPerHour is %d", len(g.Bound),
			MaxPerHour(n.ZoneRebalance),
		)
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
		end := m.At.Add(cooldown + time.Second)
		if m.PodGroup != "" && m.Workload == workload && now.Before(end) && end.After(until) {
			until = end
		}
	}
	return until
}

// beginGang begins the evictions of all bound members of a gang. A part of them would be replaced before the others
// are gone.
func (n *next) beginGang(g *Gang) {
	begun := second(n.Now)
	refusedBefore := func(m v1alpha1.RebalanceMove) bool { return slices.Contains(g.Bound, m.UID) }
	n.Status.Moves = slices.DeleteFunc(slices.Clone(n.Status.Moves), refusedBefore)
	for _, uid := range g.Bound {
		pod := n.Pods[uid]
		m := v1alpha1.RebalanceMove{
			Namespace: g.Namespace, Name: pod.Name, UID: uid, PodGroup: g.UID, Workload: g.Workload(),
			Controller: pod.Controller, From: pod.Zone, Round: n.Status.Round, State: v1alpha1.MoveEvicting,
			At: begun, Begun: begun, Due: second(n.Now.Add(pod.Grace + bindWithin)),
		}
		n.Status.Moves = append(n.Status.Moves, m)
		n.step.Evict = append(n.step.Evict, m)
	}
	n.step.Waits = "the eviction of the members of " + g.Workload()
	n.again(n.Now.Add(retryAfter))
}

// forgetGangStop forgets an earlier stop once it is over and no gang whose eviction has failed is still bound in
// part: such a gang would be evicted again after the shortest pause.
func (n *next) forgetGangStop() {
	if n.Status.GangStop == nil || n.gangsStopped() || n.underWay() > 0 {
		return
	}
	for i := range n.Status.Moves {
		m := &n.Status.Moves[i]
		failed := m.State == v1alpha1.MoveFailed || m.State == v1alpha1.MoveRefused
		sameGang := func(g v1alpha1.RebalanceGang) bool { return g.UID == m.PodGroup }
		if failed && slices.ContainsFunc(n.Status.PartlyBound, sameGang) {
			return
		}
	}
	n.Status.GangStop = nil
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
	case !exists && ends == "":
		end("the PodGroup is gone")
	case n.whole(uid):
		end("the gang is whole")
	case exists && n.Now.After(due.Time) && ends != "":
		fail(v1alpha1.ReasonNotBound, fmt.Sprintf("%s has not ended", ends))
	case exists && n.Now.After(due.Time) && len(g.Bound) > 0:
		fail(v1alpha1.ReasonGangPartlyBound, fmt.Sprintf(
			"its gang is bound in part again: %d members are bound, and %d are missing", len(g.Bound), g.Missing,
		))
	case exists && n.Now.After(due.Time):
		end("the gang waits as a whole")
	default:
		n.step.Waits = moves[0].Workload + ", to be whole or to wait as a whole"
		n.again(due.Add(time.Second))
	}
}
