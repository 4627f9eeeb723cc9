package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Pods that need one piece of room starve a gang that needs many at once. After it has been refused for long, such a
// gang collects room: no pod of the same or a lower priority is placed where that leaves room for fewer of its members,
// until the quorum has enough. One gang at a time does so, for a limited time, and only if it would fit beside the pods
// that it cannot displace.

// reasonCollects is the reason of the event about a gang that begins to collect.
const reasonCollects = "GangCollectsRoom"

// collectAtLeast is the least time for which a gang may collect, and for which it then leaves the room to others.
const collectAtLeast = time.Minute

// collector lets gangs collect room; only scheduling cycles use it.
type collector struct {
	gangs    *gangs
	proposer *proposer
	after    time.Duration // how long a gang is refused before
	// event sends an event about a PodGroup.
	event func(ctx context.Context, key types.NamespacedName, pod *v1.Pod, reason, note string)
}

// limit is how long a gang may collect.
func (c *collector) limit() time.Duration { return max(c.after, collectAtLeast) }

// collectForStarving lets a gang collect that has been refused for lack of room for long enough, or goes on with it.
func (c *collector) collectForStarving(ctx context.Context, req *gangRequest, result *proposalResult) {
	if result.refusal.Cause != gang.CauseNoRoom || result.view == nil || len(req.settings.minResources) > 0 {
		return
	}
	began, may, running := c.gangs.clock.Now(), false, false
	c.gangs.read(req.key, func(e *gangEntry) {
		other := c.gangs.collects
		running = e.gang.AnyPlaced() // it has waited before, and the nodes of its members may come back
		waited := running || began.Sub(e.gang.ReadySince()) >= c.after
		may = other == e || e.preempting == nil && waited && !began.Before(e.collecting.rest) &&
			(other == nil || e.rank().Compare(other.rank()) < 0)
	})
	if !may {
		return
	}
	alone := req.proposal
	alone.Cluster = &yielding{clusterView: result.view, req: req}
	r := proposal.Make(alone)
	possible, begun := running || r.Verdict == proposal.Proposed || r.Verdict == proposal.Unproven, false
	if possible {
		kept := c.claimOf(req, result.view.nodes, domain{req.proposal.Topology.Key, r.Domain})
		c.gangs.update(req.key, func(e *gangEntry, now time.Time) { begun = c.beginLocked(e, kept, 2*c.limit(), now) })
	} else {
		c.gangs.update(req.key, func(e *gangEntry, now time.Time) {
			if c.gangs.collects == e {
				c.gangs.stopCollectingLocked()
			}
			e.collecting.rest = now.Add(max(collectAtLeast, searchShare*now.Sub(began)))
		})
	}
	if begun {
		since := "has been refused for " + c.after.String()
		if running {
			since = "lacks members of its quorum"
		}
		c.event(ctx, req.key, nil, reasonCollects, "the gang "+since+" and now collects room that becomes free, for at most "+c.limit().String())
	}
}

// collectForReplacement lets a running gang collect whose quorum lacks one member, which has just found no node: so
// that no pod of the same priority takes the room that comes back.
func (c *collector) collectForReplacement(key types.NamespacedName) {
	may := false
	c.gangs.read(key, func(e *gangEntry) {
		other := c.gangs.collects
		may = e.awaitsReplacement() && (other == nil || e.rank().Compare(other.rank()) < 0)
	})
	if !may {
		return
	}
	nodes, _ := c.proposer.handle.SnapshotSharedLister().NodeInfos().List() // a snapshot has no error to return
	kept := c.claimOf(c.proposer.requestOf(key, nil), nodes, domain{})
	c.gangs.update(key, func(e *gangEntry, now time.Time) {
		if e.awaitsReplacement() {
			c.beginLocked(e, kept, c.limit(), now)
		}
	})
}

// beginLocked has a gang collect, and rest after that, or renews what it collects. It reports whether the gang did not
// before.
func (c *collector) beginLocked(e *gangEntry, kept *roomClaim, rest time.Duration, now time.Time) (begun bool) {
	if c.gangs.collects != e {
		if c.gangs.collects != nil {
			c.gangs.stopCollectingLocked()
		}
		begun = true
		c.gangs.collects = e
		e.collecting = collecting{until: now.Add(c.limit()), rest: now.Add(rest)}
		c.gangs.agenda.AddAt(e.key, e.collecting.until)
	}
	c.gangs.claim.Store(kept)
	return begun
}

// roomClaim is what a gang that collects keeps: on each node of its domain as many members' room as there is. It does
// not change, and may be used by several goroutines.
type roomClaim struct {
	gang     types.NamespacedName
	priority int32
	domain   domain
	bound    *proposal.Bound
	filters  *profileFilters
	// held is what was held on nodes for pods other than the members when the gang was looked at.
	held map[string][]int64
}

func (c *collector) claimOf(req *gangRequest, nodes []fwk.NodeInfo, within domain) *roomClaim {
	r := req.proposal
	r.Filters = c.proposer.filters.Filters()
	kept := &roomClaim{gang: req.key, priority: req.priority, domain: within, bound: proposal.NewBound(r), filters: c.proposer.filters, held: map[string][]int64{}}
	if within.value == "" {
		kept.domain = domain{}
	}
	if c.proposer.holds == nil || len(r.Classes) == 0 {
		return kept
	}
	names := kept.bound.Names()
	for _, info := range nodes {
		held := make([]int64, len(names))
		c.proposer.holds.Kept(r.Classes[0].Pod, info, names, held)
		if slices.ContainsFunc(held, func(n int64) bool { return n != 0 }) {
			kept.held[info.Node().Name] = held
		}
	}
	return kept
}

// leavesTooLittle reports whether a node has room for fewer members once a pod is there.
func (c *roomClaim) leavesTooLittle(pod *v1.Pod, info fwk.NodeInfo) bool {
	if corev1.PodPriority(pod) > c.priority || !c.domain.has(info.Node()) || ofDaemonSet(pod) {
		return false
	}
	if key, ok := podgroup.Of(pod); ok && key == c.gang {
		return false
	}
	names := c.bound.Names()
	free := make([]int64, len(names))
	v := &clusterView{nodes: []fwk.NodeInfo{info}, filters: c.filters}
	v.Free(0, names, free)
	for i, n := range c.held[info.Node().Name] {
		free[i] -= n
	}
	before := c.bound.Takes(info.Node(), free)
	if before == 0 {
		return false
	}
	for _, amount := range proposal.Requests(pod) {
		if i := slices.Index(names, amount.Name); i >= 0 {
			free[i] -= amount.Value
		}
	}
	return c.bound.Takes(info.Node(), free) < before
}

// yielding is a cluster without the pods that may leave some day: those of the same or a lower priority, except for
// those of DaemonSets. It implements proposal.Cluster.
type yielding struct {
	*clusterView
	req *gangRequest
}

// Free implements proposal.Cluster.
func (y *yielding) Free(i int, names []v1.ResourceName, into []int64) {
	y.clusterView.Free(i, names, into)
	for _, info := range y.nodes[i].GetPods() {
		pod := info.GetPod()
		if corev1.PodPriority(pod) > y.req.priority || ofDaemonSet(pod) || y.req.members[pod.UID] {
			continue
		}
		proposal.Add(into, names, proposal.Requests(pod))
	}
}

// Kept implements proposal.Cluster. It leaves out nominations, which end.
func (y *yielding) Kept(i int, pod *v1.Pod, names []v1.ResourceName, into []int64) {
	if y.holds != nil {
		y.holds.Kept(pod, y.nodes[i], names, into)
	}
}
