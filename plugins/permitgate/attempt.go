package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// attemptKey marks the cycle state of a member with what it is tried on.
const attemptKey = fwk.StateKey(Name + "/attempt")

// attempt is what a member is tried on in its cycle.
type attempt struct {
	began   time.Time
	refused bool // by PreFilter, which does not make the gang fail
	// hinted are the proposed nodes, nil if it is tried on all of its domain.
	hinted   []string
	confined domain
	// nodes are those that the member is tried on, nil for all.
	nodes sets.Set[string]
	// lifted are nominations of other members that are to be restored when the cycle ends.
	lifted []nomination
}

// Clone returns the attempt itself, which does not change.
func (a *attempt) Clone() fwk.StateData { return a }

// attemptOf returns what a member is tried on, nil for other pods.
func attemptOf(state fwk.CycleState) *attempt {
	data, _ := state.Read(attemptKey) // not found is the only error
	a, _ := data.(*attempt)
	return a
}

// beginAttempt returns what a member is tried on, or why it is refused. If it is the scout, it proposes for all members
// first, and then enters once more, as one of the round that has begun.
func (p *PermitGate) beginAttempt(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, nodes []fwk.NodeInfo) (*attempt, *fwk.Status) {
	began := p.gangs.clock.Now()
	scout, a, status := p.enterCycle(id, pod)
	if scout {
		status = p.propose(ctx, state, id, pod, nodes)
		if status == nil {
			scout, a, status = p.enterCycle(id, pod)
		}
		if status == nil && scout {
			status = p.gangs.refusal(id, gang.ReasonQueued, "has changed while its proposal was made")
		}
	}
	if status != nil {
		return &attempt{began: began, refused: true}, status
	}
	a.began = began
	switch {
	case a.hinted != nil:
		a.nodes = sets.New(a.hinted...)
	case a.confined != domain{}:
		a.nodes = a.confined.nodes(nodes)
	}
	for _, n := range a.lifted { // they would count on their own nodes alone, which makes spread constraints wrong
		p.handle.DeleteNominatedPodIfExists(n.pod)
	}
	return a, nil
}

// enterCycle records that a member is in its cycle, and returns what it is tried on, or why it is refused. Neither if
// it is the scout.
func (p *PermitGate) enterCycle(id gangID, pod *v1.Pod) (scout bool, a *attempt, refused *fwk.Status) {
	reason, detail := gang.ReasonNotFound, ""
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	p.gangs.update(id, func(e *gangEntry, now time.Time) {
		scout, reason, detail = e.gang.Enter(pod.UID, now)
		if !scout && reason == gang.ReasonNone {
			a = &attempt{confined: e.confineMember(infos)}
			if m := e.pods[pod.UID]; m != nil {
				a.hinted = e.plan.hintFor(m)
			}
			a.lifted = e.siblingsOn(a.hinted, pod.UID)
		}
	})
	return scout, a, p.gangs.refusal(id, reason, detail)
}

// nominateAgain restores the nominations that were lifted for the cycle of a member.
func (p *PermitGate) nominateAgain(a *attempt) {
	if a != nil {
		nominate(klog.Background(), p.handle, a.lifted)
		a.lifted = nil
	}
}

// hintFor returns the nodes to try a member on; nil for all.
func (p *roundPlan) hintFor(m *member) (nodes []string) {
	h := p.hints[m.signature]
	if h == nil || p.tried[m.pod.UID] {
		return nil
	}
	for _, node := range h.nodes {
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
		if len(nodes) == nodesPerTry {
			break
		}
	}
	return nodes
}

// confineMember returns the domain that a member may not leave in its cycle, which members with a node decide.
func (e *gangEntry) confineMember(infos fwk.NodeInfoLister) domain {
	alone := e.gang.RoundNumber() == 0
	if alone && (e.confined.key != e.topology().Key || !e.gang.AnyPlaced()) {
		e.confined = domain{} // no member is there any more, or the PodGroup names another label
	}
	if e.needsDomain() {
		e.chooseDomain(infos, e.nodesInUse()...)
	}
	if alone && !e.topology().Required {
		return domain{}
	}
	return e.confined
}

// siblingsOn returns the members without a node but one for which the gang's preemption keeps nodes among some (nil
// means all), which the API may not show yet.
func (e *gangEntry) siblingsOn(nodes []string, but types.UID) (siblings []nomination) {
	if e.preempting == nil {
		return nil
	}
	for uid, node := range e.preempting.nodes {
		m := e.pods[uid]
		if m != nil && uid != but && !e.gang.HasNode(uid) && (nodes == nil || slices.Contains(nodes, node)) {
			siblings = append(siblings, nomination{m.pod, node})
		}
	}
	return siblings
}
