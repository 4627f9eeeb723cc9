package preempt

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// question is what the filters are asked about a member by itself, and not about its class.
type question struct {
	pod     *v1.Pod
	state   fwk.CycleState // nil if PreFilter refuses the member
	allowed *fwk.PreFilterResult
	after   int // how many reservations PreFilter has seen
}

// reservation is what plugins have reserved for a member on a node.
type reservation struct {
	pod   *v1.Pod
	state fwk.CycleState
	node  string
}

// takes reports whether the filters let a member of a class onto a node. Then plugins have reserved for the member what
// it takes there besides resources.
func (a *attempt) takes(ctx context.Context, k int, uid types.UID, i int) bool {
	pod, name := a.Reserving[uid], a.sites[i].name
	if pod == nil {
		return a.fits(ctx, k, i)
	}
	if a.question.pod != pod || a.question.after != len(a.reserved) {
		a.question = a.ask(ctx, pod)
	}
	q := a.question
	switch {
	case q.state == nil:
		// PreFilter refuses a member whose devices are still reserved, on the node that it is about to lose.
		return slices.ContainsFunc(a.leavers, func(c *candidate) bool { return c.pod().UID == uid }) && a.fits(ctx, k, i)
	case !q.allowed.AllNodes() && !q.allowed.NodeNames.Has(name),
		!a.Handle.RunFilterPlugins(ctx, q.state, pod, a.node(i)).IsSuccess():
		return false
	case !a.FilterRunner.Reserve(ctx, q.state, pod, name):
		a.question = question{} // its state has what was reserved
		return false
	}
	a.reserved = append(a.reserved, reservation{pod, q.state, name})
	return true
}

// ask prepares a question about a member. PreFilter sees the cluster as it is, with what has been reserved, and is told
// what the attempt has changed.
func (a *attempt) ask(ctx context.Context, pod *v1.Pod) question {
	q := question{pod: pod, after: len(a.reserved)}
	state, allowed, ok := a.FilterRunner.State(ctx, a.State, pod)
	if !ok {
		return q
	}
	q.state, q.allowed = state, allowed
	for _, c := range slices.Concat(a.leavers, a.victims()) {
		a.tellRemoved(ctx, state, pod, c.info, a.node(c.site))
	}
	for i, guests := range a.guests {
		for k, n := range guests {
			for range n {
				a.tellAdded(ctx, state, pod, a.classes[k].info, a.node(i))
			}
		}
	}
	return q
}

// unreserve gives back what plugins have reserved. A reprieve needs none of it: victims that come back take no more than
// they have.
func (a *attempt) unreserve(ctx context.Context) {
	for _, r := range slices.Backward(a.reserved) {
		a.FilterRunner.Unreserve(ctx, r.state, r.pod, r.node)
	}
	a.reserved, a.question = nil, question{}
}
