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

// gangView shows the gangs to packages serve and rehearse.
type gangView struct{ *gangs }

var (
	_ serve.Gangs    = gangView{}
	_ rehearse.Gangs = gangView{}
)

// Get implements serve.Gangs.
func (s gangView) Get(key types.NamespacedName) (state serve.Gang, known bool) {
	now := s.clock.Now()
	known = s.read(key, func(e *gangEntry) {
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
		state.Reason, state.Detail = s.missing()
	}
	return state, known
}

// Members implements serve.Gangs.
func (s gangView) Members(key types.NamespacedName) (members []serve.Member) {
	s.read(key, func(e *gangEntry) {
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
func (s gangView) Keys() (keys []types.NamespacedName) {
	s.each(func(e *gangEntry) { keys = append(keys, e.key) })
	return keys
}

// SetSucceeded implements serve.Gangs.
func (s gangView) SetSucceeded(key types.NamespacedName, pods sets.Set[types.UID]) {
	set := func(e *gangEntry, now time.Time) {
		if e.gang.SetSucceeded(pods, now) {
			s.agenda.Add(key)
		}
	}
	if len(pods) > 0 {
		s.change(key, set)
	} else {
		s.update(key, set)
	}
}

// Rehearsing implements rehearse.Gangs.
func (s gangView) Rehearsing(key types.NamespacedName, r gang.Rehearsal) (pod *v1.Pod, node string) {
	s.read(key, func(e *gangEntry) {
		if m := e.pods[r.UID]; m != nil && e.gang.Rehearsing(r) {
			pod, node = m.pod, e.gang.Node(r.UID)
		}
	})
	return pod, node
}

// Rehearsed implements rehearse.Gangs.
func (s gangView) Rehearsed(key types.NamespacedName, r gang.Rehearsal, refused string) {
	s.change(key, func(e *gangEntry, now time.Time) { e.gang.Rehearsed(r, refused, now) })
}
