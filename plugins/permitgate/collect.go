package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Pods that need one piece of room starve a gang that needs many at once. After it has been refused for long, such a
// gang collects room: no pod of the same or a lower priority is placed where that leaves room for fewer of its members,
// until the quorum has enough. One gang at a time does so, for a limited time. One that has not run yet does so only if
// it would fit beside the pods that do not leave for it: those of a higher priority and of DaemonSets.

// reasonCollects is the reason of the event about a gang that begins to collect.
const reasonCollects = "GangCollectsRoom"

// collectAtLeast is the least time for which a gang may collect, and for which it then leaves the room to others.
const collectAtLeast = time.Minute

// collector lets gangs collect room; only scheduling cycles use it.
type collector struct {
	collecting *collecting
	proposer   *proposer
	after      time.Duration // how long a gang is refused before
	// whileKnown runs a function on the lock of a gang, and has the gang collect no longer if it does not lack its quorum.
	whileKnown func(gang gangID, f func())
	// event sends an event about a PodGroup.
	event func(ctx context.Context, gang gangID, reason, note string)
}

// limit is how long a gang may collect.
func (c *collector) limit() time.Duration { return max(c.after, collectAtLeast) }

// collectForStarving lets a gang collect that has been refused for lack of room for long enough, or goes on with it.
func (c *collector) collectForStarving(ctx context.Context, req *gangRequest, result *proposalResult) {
	if result.refusal.Cause != gang.CauseNoRoom || result.view == nil || len(req.settings.minResources) > 0 {
		return
	}
	began := c.proposer.gangs.clock.Now()
	// One that runs has waited before, and the nodes of its members may come back.
	waited := req.running || began.Sub(req.readySince) >= c.after
	mayBegin := waited && req.victims == nil && c.collecting.admits(req.rank) && !c.collecting.restsNow(req.gangID, began)
	if !mayBegin && !c.collecting.isBy(req.gangID) {
		return
	}
	alone := req.proposal
	alone.Cluster = &yielding{clusterView: result.view, req: req}
	r := proposal.Make(alone)
	if !req.running && r.Verdict != proposal.Proposed && r.Verdict != proposal.Unproven {
		now := c.proposer.gangs.clock.Now()
		c.collecting.giveUp(req.gangID, now.Add(max(collectAtLeast, searchShare*now.Sub(began))), now)
		return
	}
	if !c.begin(req, result.view.nodes, domain{req.proposal.Topology.Key, r.Domain}, 2*c.limit()) {
		return
	}
	since := "has been refused for " + c.after.String()
	if req.running {
		since = "lacks members of its quorum"
	}
	c.event(ctx, req.gangID, reasonCollects, "the gang "+since+" and now collects room that becomes free, for at most "+c.limit().String())
}

// collectForReplacement lets a running gang collect whose quorum lacks one member, which has just found no node: so
// that no pod of the same priority takes the room that comes back.
func (c *collector) collectForReplacement(key types.NamespacedName) {
	lacksOne := false
	c.proposer.gangs.read(key, func(e *gangEntry) { lacksOne = e.awaitsReplacement() })
	if !lacksOne {
		return
	}
	req := c.proposer.requestOf(key, nil)
	if !c.collecting.admits(req.rank) {
		return
	}
	nodes, _ := c.proposer.handle.SnapshotSharedLister().NodeInfos().List() // a snapshot has no error to return
	c.begin(req, nodes, domain{}, c.limit())
}

// begin has a gang collect, and rest for a time from now, or renews what it collects. It reports whether the gang did
// not before.
func (c *collector) begin(req *gangRequest, nodes []fwk.NodeInfo, within domain, rest time.Duration) (begun bool) {
	claim := c.claimOf(req, nodes, within)
	c.whileKnown(req.gangID, func() {
		now := c.proposer.gangs.clock.Now()
		begun = c.collecting.begin(claim, now.Add(rest), now)
	})
	return begun
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
		if corev1.PodPriority(pod) > y.req.rank.Priority || ofDaemonSet(pod) || y.req.members[pod.UID] {
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
