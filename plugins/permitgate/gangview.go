package permitgate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Look implements serve.Gangs.
func (s gangView) Look(key types.NamespacedName) (is serve.Gang, known bool) {
	now := s.clock.Now()
	known = s.read(key, func(e *entry) {
		is.Group, is.Phase, is.Last, is.MinMember = e.group, e.gang.Phase(), e.gang.Last(), e.gang.MinMember()
		is.Reason, is.Detail = e.gang.Blocked()
		is.Live, _, is.Settled = e.gang.Counts()
		is.Unbound, is.Arrivals, is.Nominated = e.unbound, e.arrivals, e.nominated
		is.Stranded, is.Depleted = e.gang.Stranded(now), e.gang.Depleted(now)
		is.Preempting = e.preempting != nil
		is.LowestPriority, is.HighestPriority = e.lowest(), e.highest()
		if is.Reason == gang.ReasonTooFew {
			is.Detail += e.absentClaim()
		}
		is.Foreign = slices.Sorted(maps.Keys(e.foreign))
	})
	if known && is.Reason == gang.ReasonNotFound {
		is.Reason, is.Detail = s.missing()
	}
	return is, known
}

// Members implements serve.Gangs.
func (s gangView) Members(key types.NamespacedName) (members []serve.Member) {
	s.read(key, func(e *entry) {
		members = make([]serve.Member, 0, len(e.pods))
		missing := map[types.UID]bool{}
		uids, _ := e.gang.Missing()
		for _, uid := range uids {
			missing[uid] = true
		}
		for uid, m := range e.pods {
			one := serve.Member{Pod: m.pod, Missing: missing[uid] && m.pod.Spec.NodeName == "", SentBack: e.gang.SentBack(uid)}
			if m.pod.Spec.NodeName == "" {
				one.Keeps = e.keptNode(uid)
			}
			members = append(members, one)
		}
	})
	return members
}

// Keys implements serve.Gangs.
func (s gangView) Keys() (keys []types.NamespacedName) {
	s.each(func(e *entry) { keys = append(keys, e.key) })
	return keys
}

// Done implements serve.Gangs.
func (s gangView) Done(key types.NamespacedName, begin, end []types.UID) {
	s.change(key, func(e *entry, now time.Time) {
		for _, uid := range begin {
			e.gang.SetDone(uid, now)
		}
		for _, uid := range end {
			e.gang.DeleteDone(uid, now)
		}
	})
}

// Rehearsing implements rehearse.Gangs.
func (s gangView) Rehearsing(key types.NamespacedName, of gang.Rehearsal) (pod *v1.Pod, node string) {
	s.read(key, func(e *entry) {
		if m := e.pods[of.UID]; m != nil && e.gang.Rehearsing(of) {
			pod, node = m.pod, m.node
		}
	})
	return pod, node
}

// Rehearsed implements rehearse.Gangs.
func (s gangView) Rehearsed(key types.NamespacedName, of gang.Rehearsal, refused string) {
	s.change(key, func(e *entry, now time.Time) { e.gang.Rehearsed(of, refused, now) })
}
