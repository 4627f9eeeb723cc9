package permitgate

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/serve"
)

// served shows the gangs to package serve. It implements serve.Gangs.
type served struct {
	gangs *gangs
	// missing says why a PodGroup is not known.
	missing func() (gang.Reason, string)
}

var _ serve.Gangs = served{}

// Look implements serve.Gangs.
func (s served) Look(key types.NamespacedName) (g serve.Gang, known bool) {
	known = s.gangs.look(key, func(e *entry, now time.Time) {
		g.Group, g.Phase, g.Last, g.MinMember = e.group, e.gang.Phase(), e.gang.Last(), e.gang.MinMember()
		g.Reason, g.Detail = e.gang.Blocked(now)
		g.Live, _, g.Settled = e.gang.Counts()
		g.Unbound, g.Arrivals = e.unbound, e.arrivals
		g.Stranded, g.Depleted = e.gang.Stranded(now), e.gang.Depleted(now)
		g.Preempting = e.preempting != nil
		g.Priority, g.HighestPriority = e.lowest(), e.highest()
		g.Foreign = slices.Sorted(maps.Keys(e.foreign))
	})
	if known && g.Reason == gang.ReasonNotFound {
		g.Reason, g.Detail = s.missing()
	}
	return g, known
}

// Members implements serve.Gangs.
func (s served) Members(key types.NamespacedName) (members []serve.Member) {
	s.gangs.look(key, func(e *entry, _ time.Time) {
		members = make([]serve.Member, 0, len(e.pods))
		missing := map[types.UID]bool{}
		uids, _ := e.gang.Missing()
		for _, uid := range uids {
			missing[uid] = true
		}
		for uid, m := range e.pods {
			one := serve.Member{Pod: m.pod, Missing: missing[uid] && m.pod.Spec.NodeName == "", SentBack: e.gang.SentBack(uid)}
			if e.gang.KeepsNode(uid) {
				one.Keeps = m.node
			}
			members = append(members, one)
		}
	})
	return members
}

// Keys implements serve.Gangs.
func (s served) Keys() (keys []types.NamespacedName) {
	s.gangs.each(func(e *entry) { keys = append(keys, e.key) })
	return keys
}

// Done implements serve.Gangs.
func (s served) Done(key types.NamespacedName, begin, end []types.UID) {
	s.gangs.change(key, func(e *entry, now time.Time) {
		for _, uid := range begin {
			e.gang.SetDone(uid, now)
		}
		for _, uid := range end {
			e.gang.DeleteDone(uid, now)
		}
	})
}

// Recover implements serve.Gangs.
func (s served) Recover(key types.NamespacedName) (begun bool) {
	s.gangs.change(key, func(e *entry, now time.Time) { begun = e.gang.Recover(now) })
	return begun
}
