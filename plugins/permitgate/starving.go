package permitgate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Pods that need one piece of room starve a gang that needs many at once. After it has been refused for long, such a
// gang keeps nodes, as backfilling does for the first job of a batch queue (EASY, Lifka 1995): no pod of the same or a
// lower priority comes to them until the gang is whole. The nodes are enough for the quorum once the pods are gone that
// may leave some day. One gang at a time does so, as long as more of its members fit there from time to time.

// reasonKeepsNodes is the reason of the event about a gang that begins to keep nodes.
const reasonKeepsNodes = "GangKeepsNodes"

const (
	// keepAtLeast is the least time after which a gang gives up nodes on which no more of its members fit.
	keepAtLeast = time.Minute
	// restShare is how many times as long as it has kept nodes for nothing a gang then keeps none.
	restShare = 10
)

// keeper decides which nodes a starving gang keeps; only scheduling cycles use it.
type keeper struct {
	keeping  *keeping
	proposer *proposer
	after    time.Duration // how long a gang is refused before
	start    int           // the node at which the next choice begins
	// event sends an event about a PodGroup.
	event func(ctx context.Context, gang gangID, reason, note string)
}

// limit is how long a gang keeps nodes on which no more of its members fit than before.
func (k *keeper) limit() time.Duration { return max(k.after, keepAtLeast) }

// keepForStarving lets a gang keep nodes that was refused for lack of room and has waited for long enough, or goes on
// with it. One that runs has waited before. filtered is true if the filters of the cycle have refused all nodes, also
// those that have room.
func (k *keeper) keepForStarving(ctx context.Context, req *gangRequest, result *proposalResult, filtered bool) {
	if result.refusal.Cause != gang.CauseNoRoom || result.view == nil || len(req.proposal.Classes) == 0 {
		return
	}
	now := k.proposer.gangs.clock.Now()
	before := k.keeping.claimOf(req.gangID)
	waited := req.running || now.Sub(req.readySince) >= k.after
	if req.victims != nil || before == nil && (!waited || !k.keeping.admits(req.gangID, req.rank, now)) {
		return
	}
	claim, holds := k.choose(req, result.view, before, filtered)
	now = k.proposer.gangs.clock.Now()
	switch {
	case claim == nil:
		k.keeping.rest(req.gangID, k.limit(), now)
		return
	case before == nil:
		claim.since, claim.until = now, now.Add(k.limit())
		k.start += len(claim.nodes)
	case claim.fit > before.fit || !holds:
		claim.since, claim.until = before.since, now.Add(k.limit())
	default:
		claim.since, claim.until, claim.fit = before.since, before.until, before.fit
	}
	k.proposer.gangs.update(req.gangID, func(*gangEntry, time.Time) { k.keeping.keep(claim) }) // unless it lacks its quorum no more
	if before == nil {
		since := "has been refused for " + k.after.String()
		if req.running {
			since = "lacks members of its quorum"
		}
		k.event(ctx, req.gangID, reasonKeepsNodes, fmt.Sprintf(
			"the gang %s and now keeps %d nodes, for as long as more of its members fit there at least every %s", since, len(claim.nodes), k.limit()))
	}
}

// claimMembersNodes returns the claim of a gang that is to keep the nodes that it gets by a preemption, until its
// victims have had time to leave and its members to come; nil if it may not keep nodes now.
func (k *keeper) claimMembersNodes(ctx context.Context, req *gangRequest, nodes map[types.UID]string, leave time.Duration) *nodeClaim {
	now := k.proposer.gangs.clock.Now()
	claim := &nodeClaim{
		gang: req.gangID, rank: req.rank, nodes: sets.New(slices.Collect(maps.Values(nodes))...),
		since: now, until: now.Add(leave + keepAtLeast), fit: len(nodes),
	}
	if before := k.keeping.claimOf(req.gangID); before != nil {
		claim.nodes, claim.known, claim.since = claim.nodes.Union(before.nodes), before.known, before.since
		return claim
	}
	if !k.keeping.admits(req.gangID, req.rank, now) {
		return nil
	}
	k.event(ctx, req.gangID, reasonKeepsNodes, fmt.Sprintf(
		"the gang keeps %d nodes until it is whole: pods like those that it preempts, from which its members are to be apart, could come there before these", len(claim.nodes)))
	return claim
}

// choose returns the nodes that a gang is to keep, nil for none: enough for its quorum without the pods that may leave,
// first those that have room now, then those that it keeps already. A gang that runs keeps those too that its members
// have lost. holds is false if none of them is of use now, so that nothing is kept from others.
func (k *keeper) choose(req *gangRequest, view *clusterView, before *nodeClaim, filtered bool) (claim *nodeClaim, holds bool) {
	claim = &nodeClaim{gang: req.gangID, rank: req.rank, nodes: sets.New(req.lostNodes...)}
	if req.running {
		claim.known = sets.New[string]()
		for _, info := range view.nodes {
			claim.known.Insert(info.Node().Name)
		}
	}
	alone := req.proposal
	alone.Cluster = &yielding{view, req}
	whole := proposal.Make(alone)
	enough := whole.Verdict == proposal.Proposed || whole.Verdict == proposal.Unproven
	if !enough && !req.running {
		return nil, false
	}
	bound := proposal.NewBound(alone)
	open := *view
	open.claim = nil // a gang before which this one comes keeps nothing from it any more
	type candidate struct {
		at, fits, takes int
		lost, kept      bool
	}
	var candidates []candidate
	for i := range view.nodes {
		c := candidate{at: (k.start + i) % len(view.nodes)}
		node := view.Node(c.at)
		c.lost, c.kept = claim.nodes.Has(node.Name), before != nil && before.nodes.Has(node.Name)
		if whole.Domain != "" && node.Labels[alone.Topology.Key] != whole.Domain {
			continue
		}
		c.takes, c.fits = bound.Node(alone.Cluster, c.at), bound.Node(&open, c.at)
		if c.takes > 0 && (!filtered || c.fits == 0) {
			candidates = append(candidates, c)
		}
	}
	rank := func(c *candidate) int {
		switch {
		case c.lost:
			return 0
		case c.fits > 0:
			return 1
		case c.kept:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.fits, a.fits)) })
	nodes := make([]fwk.NodeInfo, 0, len(candidates))
	takes, want := 0, req.proposal.Need
	for i := range candidates {
		c := &candidates[i]
		if takes >= want {
			if whole.Verdict != proposal.Proposed || k.holdQuorum(req, view, nodes) {
				break
			}
			want *= 2 // their shapes do not fit together
		}
		takes += c.takes
		claim.fit += c.fits
		nodes = append(nodes, view.nodes[c.at])
		claim.nodes.Insert(view.nodes[c.at].Node().Name)
	}
	return claim, len(nodes) > 0
}

// holdQuorum reports whether nodes would take the gang without the pods that may leave.
func (k *keeper) holdQuorum(req *gangRequest, view *clusterView, nodes []fwk.NodeInfo) bool {
	some := *view
	some.nodes = nodes
	r := req.proposal
	r.Cluster, r.Start = &yielding{&some, req}, 0
	return proposal.Make(r).Verdict == proposal.Proposed
}

// yielding is a cluster without the pods that may leave some day: those of the same or a lower priority, except for
// those of DaemonSets and static pods. It implements proposal.Cluster.
type yielding struct {
	*clusterView
	req *gangRequest
}

// Free implements proposal.Cluster.
func (y *yielding) Free(i int, names []v1.ResourceName, into []int64) {
	y.clusterView.Free(i, names, into)
	for _, info := range y.nodes[i].GetPods() {
		pod := info.GetPod()
		if corev1.PodPriority(pod) > y.req.rank.Priority || comesBack(pod) || y.req.members[pod.UID] {
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
