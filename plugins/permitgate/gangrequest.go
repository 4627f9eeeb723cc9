package permitgate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/proposal"
)

// gangRequest is what a gang asks for: the input of a proposal besides the nodes.
type gangRequest struct {
	gangID
	rank      podgroup.Rank
	proposal  proposal.Request
	pods      map[types.UID]*v1.Pod // the missing members
	minMember int
	last      gang.Rollback
	changes   int // of the gang by then, see [gang.Gang.Changes]
	// readySince is when the quorum came to exist; running is true if a member has a node.
	readySince time.Time
	running    bool
	// victims are those of its preemption, with their nodes, which may still be there.
	victims map[types.UID]string
	// boundOn are the nodes of members that are bound or have a node, or are to have one whose victims are gone;
	// lostNodes those of members that a running gang has lost.
	boundOn, lostNodes []string
	members            map[types.UID]bool // all of them
	// awaited is what spec.minResources asks for beyond the members' requests.
	awaited []proposal.Amount
	// neverPreempts is true if a member must not preempt.
	neverPreempts bool
}

// requestOf collects what the gang asks for. It uses the scout's pod of the cycle, as the first of its class.
func (p *proposer) requestOf(id gangID, scout *v1.Pod) *gangRequest {
	req := &gangRequest{gangID: id, pods: map[types.UID]*v1.Pod{}, members: map[types.UID]bool{}}
	classes, refused := map[string][]*v1.Pod{}, map[types.UID]bool{} // by signature; those whose binds were refused
	p.gangs.read(id, func(e *gangEntry) {
		req.proposal.Need, req.minMember, req.rank, req.last = e.gang.Lacking(), e.gang.MinMember(), e.rank(), e.gang.LastRollback()
		req.changes = e.gang.Changes()
		req.readySince, req.running = e.gang.ReadySince(), e.gang.AnyPlaced() && (e.group == nil || !e.group.Constrained)
		topology := e.topology()
		req.proposal.Topology = proposal.Topology{Key: topology.Key, Required: topology.Required, Tried: e.domainsTried()}
		req.boundOn, req.awaited = e.nodesInUse(), e.awaited()
		if e.preempting != nil {
			req.victims = e.preempting.victims
			if e.preempting.cleared { // the gang is to go where its room is
				req.boundOn = slices.AppendSeq(req.boundOn, maps.Values(e.preempting.nodes))
				req.proposal.Topology.Tried = nil
			}
		}
		if req.running {
			req.lostNodes = slices.Sorted(maps.Keys(e.lostNodes))
		}
		for uid := range e.pods {
			req.members[uid] = true
		}
		for _, uid := range e.gang.Missing() {
			m := e.pods[uid]
			if m == nil {
				continue
			}
			pod := m.pod
			if uid == scout.UID {
				pod = scout
			}
			req.pods[uid], refused[uid] = pod, e.gang.BindRefused(uid)
			if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever {
				req.neverPreempts = true
			}
			classes[m.signature] = append(classes[m.signature], pod)
		}
	})
	req.setClasses(classes, scout, func(uid types.UID) bool { return refused[uid] })
	return req
}

// setClasses takes the missing members by signature. scout is the first of its class, and those for which last reports
// true come last: the quorum may do without members that would not be bound.
func (req *gangRequest) setClasses(classes map[string][]*v1.Pod, scout *v1.Pod, last func(uid types.UID) bool) {
	for _, signature := range slices.Sorted(maps.Keys(classes)) {
		pods := classes[signature]
		slices.SortFunc(pods, func(a, b *v1.Pod) int { return byAge(a, b, scout) })
		c := proposal.Class{Pod: pods[0]}
		for _, comeLast := range []bool{false, true} {
			for _, pod := range pods {
				if last(pod.UID) == comeLast {
					c.Members = append(c.Members, pod.UID)
				}
			}
		}
		req.proposal.Classes = append(req.proposal.Classes, c)
	}
}

// byAge orders pods by creation, then by name, with first at the front.
func byAge(a, b, first *v1.Pod) int {
	if first != nil && a.UID != b.UID {
		switch first.UID {
		case a.UID:
			return -1
		case b.UID:
			return 1
		}
	}
	return cmp.Or(
		a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// refusalOf describes a refusal: Detail has numbers of this moment, Reason has none.
func (req *gangRequest) refusalOf(r *proposal.Result) gang.Rollback {
	where, anywhere := "", ""
	if topology := req.proposal.Topology; topology.Required {
		anywhere = " in one " + topology.Key
		where = anywhere
		if r.Domain != "" {
			where = fmt.Sprintf(" in %s %s", topology.Key, r.Domain)
		}
	}
	reason := proposal.Short(r.Reasons)
	if reason == "" {
		reason = "there are no nodes"
	}
	return gang.Rollback{
		Cause:  gang.CauseNoRoom,
		Detail: fmt.Sprintf("needs %d%s, at most %d fit%s: %s", req.minMember, anywhere, req.minMember-req.proposal.Need+r.Bound, where, proposal.String(r.Reasons)),
		Reason: fmt.Sprintf("the cluster has no room for %d members at once%s: %s", req.minMember, anywhere, reason),
	}
}

// exhausted describes the refusal of a packed gang after every domain that could hold it has been tried.
func (req *gangRequest) exhausted() gang.Rollback {
	topology := &req.proposal.Topology
	r := gang.Rollback{
		Cause:  gang.CauseUnschedulable,
		Detail: fmt.Sprintf("none of the %d domains of %s that could hold the gang accepts it", len(topology.Tried), topology.Key),
	}
	if !req.Native { // its last round was in one of them
		r.Detail += "; in the last one: " + req.last.Detail
		r.Reason = req.last.Reason
	}
	return r
}

// isApartFrom reports whether the anti-affinity of a member is against one of some pods, see [preempt.IsApartFrom].
func (req *gangRequest) isApartFrom(pods []*v1.Pod) bool {
	return slices.ContainsFunc(req.proposal.Classes, func(c proposal.Class) bool { return preempt.IsApartFrom(c.Pod, pods) })
}

// roundOf returns the round for a proposal.
func (req *gangRequest) roundOf(result *proposalResult) gang.Round {
	r := gang.Round{}
	for i := range req.proposal.Classes {
		members := req.proposal.Classes[i].Members
		if result.proposal.Verdict == proposal.Proposed {
			members = members[:result.proposal.Hints[i].Members]
		}
		r.Members = append(r.Members, members...)
		r.First = append(r.First, members[:min(len(members), 1)]...)
	}
	return r
}
