package permitgate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/permitgate/proposal"
)

// spec.minResources of a PodGroup is written by operators (KubeRay, Kubeflow Trainer, spark-operator). Where it is what
// the members ask for, it says nothing new. Where it is more, members are to come that do not exist yet, as the
// executors of a driver: the gang waits until the whole cluster has room for these too, and once it has been let in,
// other gangs leave them that room, until they exist or the gang's timeout is over. It names no nodes.

// awaited returns what a gang's PodGroup asks for beyond what the members ask for that exist.
func (e *gangEntry) awaited() []proposal.Amount {
	var awaited []proposal.Amount
	if e.group == nil {
		return nil
	}
	for name, quantity := range e.group.MinResources {
		awaited = append(awaited, proposal.Amount{Name: name, Value: amount.Of(name, quantity)})
	}
	for _, m := range e.pods {
		for _, has := range m.amounts {
			if i := slices.IndexFunc(awaited, func(a proposal.Amount) bool { return a.Name == has.Name }); i >= 0 {
				awaited[i].Value -= has.Value
			}
		}
	}
	return slices.DeleteFunc(awaited, func(a proposal.Amount) bool { return a.Value <= 0 })
}

// awaitMembers has other gangs leave room for members that do not exist yet, as the gang is let in.
func (e *gangEntry) awaitMembers(now time.Time) {
	if len(e.awaited()) > 0 {
		e.awaitedUntil = now.Add(e.gang.Timeout())
	}
}

// awaitedBy lists what gangs of the same or a higher priority await, but for one of them.
func (g *gangs) awaitedBy(id gangID, priority int32) (awaited []proposal.Amount) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for e := range g.open {
		if now.Before(e.awaitedUntil) && e.id != id && e.lowestPriority() >= priority {
			awaited = append(awaited, e.awaited()...)
		}
	}
	return awaited
}

// lackingResource describes the resource of which the cluster has too little for a gang and the members that it and
// other gangs await; empty if there is none, or no members are awaited.
func (p *proposer) lackingResource(req *gangRequest, v *clusterView) string {
	others := p.gangs.awaitedBy(req.gangID, req.rank.Priority)
	if len(req.awaited)+len(others) == 0 {
		return ""
	}
	var names []v1.ResourceName
	for _, a := range slices.Concat(req.awaited, others) {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	own, promised := make([]int64, len(names)), make([]int64, len(names))
	proposal.Add(own, names, req.awaited)
	proposal.Add(promised, names, others)
	for j, name := range names {
		own[j] += req.least(name)
	}
	total, free := make([]int64, len(names)), make([]int64, len(names))
	for i := range v.Len() {
		v.Free(i, names, free)
		for j := range names {
			total[j] = min(proposal.Unlimited, total[j]+max(0, free[j]))
		}
	}
	for j, name := range names {
		if own[j]+promised[j] > total[j] {
			words := fmt.Sprintf("%s: %s wanted, %s free in the cluster", name, amount.Quantity(name, own[j]), amount.Quantity(name, total[j]))
			if promised[j] > 0 {
				words += fmt.Sprintf(", %s of it for members that other gangs await", amount.Quantity(name, promised[j]))
			}
			return words
		}
	}
	return ""
}

// least returns the least of a resource that as many members ask for as the quorum lacks.
func (req *gangRequest) least(name v1.ResourceName) (sum int64) {
	type want struct {
		each int64
		n    int
	}
	var wants []want
	for i := range req.proposal.Classes {
		c, each := &req.proposal.Classes[i], []int64{0}
		proposal.Add(each, []v1.ResourceName{name}, proposal.Requests(c.Pod))
		wants = append(wants, want{each[0], len(c.Members)})
	}
	slices.SortFunc(wants, func(a, b want) int { return cmp.Compare(a.each, b.each) })
	need := req.proposal.Need
	for _, w := range wants {
		n := min(w.n, need)
		sum += w.each * int64(n)
		need -= n
	}
	return sum
}
