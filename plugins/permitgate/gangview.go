package permitgate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/rehearse"
	"zonewise.dev/plugins/permitgate/serve"
)

var (
	_ serve.Gangs    = &gangs{}
	_ rehearse.Gangs = &gangs{}
)

// Get implements serve.Gangs.
func (g *gangs) Get(key types.NamespacedName) (state serve.Gang, known bool) {
	now := g.clock.Now()
	known = g.read(key, func(e *gangEntry) {
		state.Group, state.Phase, state.Last, state.MinMember = e.group, e.gang.Phase(), e.gang.LastRollback(), e.gang.MinMember()
		state.Reason, state.Detail = e.gang.BlockedBy()
		state.Live, _, state.Bound = e.gang.Counts()
		state.Unbound, state.ShortSince, state.Nominated = e.unbound, e.gang.ShortSince(), e.nominated
		state.PartlyBound = e.gang.PartlyBound(now)
		state.Preempting = e.preempting != nil
		state.LowestPriority, state.HighestPriority = e.lowestPriority(), e.highestPriority()
		if state.Reason == gang.ReasonTooFew {
			state.Detail += e.absentClaim()
		}
		state.Foreign = slices.Sorted(maps.Keys(e.foreign))
	})
	if known && state.Reason == gang.ReasonNotFound {
		state.Reason, state.Detail = g.missing()
	}
	return state, known
}

// Members implements serve.Gangs.
func (g *gangs) Members(key types.NamespacedName) (members []serve.Member) {
	g.read(key, func(e *gangEntry) {
		members = make([]serve.Member, 0, len(e.pods))
		missing := map[types.UID]bool{}
		for _, uid := range e.gang.Missing() {
			missing[uid] = true
		}
		for uid, m := range e.pods {
			member := serve.Member{Pod: m.pod, Missing: missing[uid] && m.pod.Spec.NodeName == "", SentBack: e.gang.SentBack(uid)}
			if m.pod.Spec.NodeName == "" {
				member.KeptNode = e.keptNode(uid)
			}
			members = append(members, member)
		}
	})
	return members
}

// Keys implements serve.Gangs.
func (g *gangs) Keys() (keys []types.NamespacedName) {
	g.each(func(e *gangEntry) { keys = append(keys, e.key) })
	return keys
}

// SetSucceeded implements serve.Gangs.
func (g *gangs) SetSucceeded(key types.NamespacedName, pods sets.Set[types.UID]) {
	set := func(e *gangEntry, now time.Time) {
		if e.gang.SetSucceeded(pods, now) {
			g.agenda.Add(key)
		}
	}
	if len(pods) > 0 {
		g.change(key, set)
	} else {
		g.update(key, set)
	}
}

// Rehearsing implements rehearse.Gangs.
func (g *gangs) Rehearsing(key types.NamespacedName, r gang.Rehearsal) (pod *v1.Pod, node string) {
	g.read(key, func(e *gangEntry) {
		if m := e.pods[r.UID]; m != nil && e.gang.Rehearsing(r) {
			pod, node = m.pod, e.gang.Node(r.UID)
		}
	})
	return pod, node
}

// Rehearsed implements rehearse.Gangs.
func (g *gangs) Rehearsed(key types.NamespacedName, r gang.Rehearsal, refused string) {
	g.change(key, func(e *gangEntry, now time.Time) { e.gang.Rehearsed(r, refused, now) })
}
