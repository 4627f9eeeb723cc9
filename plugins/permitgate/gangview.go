package permitgate

import (
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
func (g *gangs) Get(id gangID) (state serve.Gang, known bool) {
	now := g.clock.Now()
	known = g.read(id, func(e *gangEntry) {
		state.Group, state.Phase, state.Last, state.MinMember = e.group, e.gang.Phase(), e.gang.LastRollback(), e.gang.MinMember()
		state.Reason, state.Detail = e.gang.BlockedBy()
		state.Live, _, state.Bound = e.gang.Counts()
		state.Unbound, state.ShortSince, state.Nominated = e.unbound, e.gang.ShortSince(), e.nominated
		state.PartlyBound, state.Lacking = e.gang.PartlyBound(now), e.gang.Lacking()
		state.Preempting = e.preempting != nil
		state.Vain, state.Refusal = e.lastCycle.happened, e.lastCycle.refusal
		if state.Reason == gang.ReasonTooFew {
			state.Detail += e.absentClaim()
		}
	})
	if known && state.Reason == gang.ReasonNotFound && !id.Native {
		state.Reason, state.Detail = g.missing()
	}
	return state, known
}

// Members implements serve.Gangs.
func (g *gangs) Members(id gangID) (members []serve.Member) {
	g.read(id, func(e *gangEntry) {
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

// IDs implements serve.Gangs.
func (g *gangs) IDs() (ids []gangID) {
	g.each(func(e *gangEntry) { ids = append(ids, e.id) })
	return ids
}

// SetSucceeded implements serve.Gangs.
func (g *gangs) SetSucceeded(id gangID, pods sets.Set[types.UID]) {
	set := func(e *gangEntry, now time.Time) {
		if e.gang.SetSucceeded(pods, now) {
			g.agenda.Add(id)
		}
	}
	if len(pods) > 0 {
		g.change(id, set)
	} else {
		g.update(id, set)
	}
}

// Rehearsing implements rehearse.Gangs.
func (g *gangs) Rehearsing(id gangID, r gang.Rehearsal) (pod *v1.Pod, node string) {
	g.read(id, func(e *gangEntry) {
		if m := e.pods[r.UID]; m != nil && e.gang.Rehearsing(r) {
			pod, node = m.pod, e.gang.Node(r.UID)
		}
	})
	return pod, node
}

// Rehearsed implements rehearse.Gangs.
func (g *gangs) Rehearsed(id gangID, r gang.Rehearsal, refused string) {
	g.change(id, func(e *gangEntry, now time.Time) { e.gang.Rehearsed(r, refused, now) })
}
