package permitgate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// roomClaim is what a gang that collects keeps: on each node of its domain as many members' room as there is. It does
// not change, and may be used by several goroutines.
type roomClaim struct {
	gang    gangID
	rank    podgroup.Rank
	until   time.Time
	domain  domain
	bound   *proposal.Bound
	filters *profileFilters
	// held is what was held on nodes for pods other than the members when the gang was looked at.
	held map[string][]int64
}

func (c *collector) claimOf(req *gangRequest, nodes []fwk.NodeInfo, within domain) *roomClaim {
	r := req.proposal
	r.Filters = c.proposer.filters.Filters()
	kept := &roomClaim{
		gang: req.gangID, rank: req.rank, until: c.proposer.gangs.clock.Now().Add(c.limit()),
		domain: within, bound: proposal.NewBound(r), filters: c.proposer.filters, held: map[string][]int64{},
	}
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

// concerns reports whether a pod has to leave the gang its room.
func (c *roomClaim) concerns(pod *v1.Pod) bool {
	if corev1.PodPriority(pod) > c.rank.Priority || ofDaemonSet(pod) {
		return false
	}
	gang, ok := gangOf(pod)
	return !ok || gang != c.gang
}

// takes returns how many members a node has room for, beside a pod that comes unless it is nil.
func (c *roomClaim) takes(info fwk.NodeInfo, beside *v1.Pod) int {
	if !c.domain.has(info.Node()) {
		return 0
	}
	names := c.bound.Names()
	free := make([]int64, len(names))
	v := &clusterView{nodes: []fwk.NodeInfo{info}, filters: c.filters}
	v.Free(0, names, free)
	for i, n := range c.held[info.Node().Name] {
		free[i] -= n
	}
	if beside != nil {
		for _, amount := range proposal.Requests(beside) {
			if i := slices.Index(names, amount.Name); i >= 0 {
				free[i] -= amount.Value
			}
		}
	}
	return c.bound.Takes(info.Node(), free)
}

// takesByNode has the nodes that a claim keeps room on as they were when a pod-group cycle began: when it looks for pods
// to preempt, kube-scheduler shows the nodes without these.
type takesByNode struct {
	claim   *roomClaim
	members map[string]int
}

func (c *roomClaim) takesByNode(nodes []fwk.NodeInfo) *takesByNode {
	t := &takesByNode{claim: c, members: map[string]int{}}
	for _, info := range nodes {
		if n := c.takes(info, nil); n > 0 {
			t.members[info.Node().Name] = n
		}
	}
	return t
}

// keepsOff reports whether a pod must not come to a node, which would leave it room for fewer members of the gang that
// collects than it has. Room that a preemption would make does not count: that is for who preempts.
func (p *PermitGate) keepsOff(c *roomClaim, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) bool {
	name := info.Node().Name
	if !c.concerns(pod) {
		return false
	}
	before := c.takes(info, nil)
	if before == 0 {
		return false
	}
	left := c.takes(info, pod)
	if left >= before || p.isNominated(pod, name) {
		return false
	}
	if state.IsPodGroupSchedulingCycle() {
		t := p.takesBefore
		return t == nil || t.claim != c || left < t.members[name]
	}
	unchanged, err := p.handle.SnapshotSharedLister().NodeInfos().Get(name)
	return err != nil || left < c.takes(unchanged, nil)
}

// isNominated reports whether a pod is nominated to a node, since it has preempted there, or was about to be bound. The
// framework knows before the API does.
func (p *PermitGate) isNominated(pod *v1.Pod, node string) bool {
	return pod.Status.NominatedNodeName == node || slices.ContainsFunc(p.handle.NominatedPodsForNode(node), func(nominated fwk.PodInfo) bool {
		return nominated.GetPod().UID == pod.UID
	})
}
