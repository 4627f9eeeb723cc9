package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Preemption asks for a plan for which pods may be removed.
type Preemption struct {
	// Request is one that Make has refused.
	Request
	// Candidates returns the pods on node i that may be removed, each with what its absence gives of each named
	// resource. It is called once for each node, from several goroutines when the Request has a Parallel.
	Candidates func(i int, names []v1.ResourceName) []Candidate
	// Without returns the Request's Cluster as it is when these pods are gone. Its nodes have the same numbers.
	Without func(gone []Removal) Cluster
	// Openings says of nodes that pods on them close to a member, such as by host ports or anti-affinity, which of their
	// candidates have to go so that they are open; nodes that stay closed are left out. It is asked once for each class of
	// members, and only when there is no plan without. nil means that closed nodes stay closed.
	Openings func(pod *v1.Pod, nodes []int) map[int][]types.UID
	// Budgets are those of the cluster, in any order.
	Budgets []*policyv1.PodDisruptionBudget
}

// Candidate is a pod that may be removed.
type Candidate struct {
	Pod *v1.Pod
	// Gain is what its absence gives of each named resource.
	Gain []int64
	// Leaving is true for a pod that terminates already: its room is counted as free, and it is no victim.
	Leaving bool
	// Company is what the pod may not be torn out of; nil for a pod that may go by itself.
	Company *Company
}

// Company is a set of candidates that stand together, such as a gang: some may go singly, and the others all or
// none. Candidates of one company share the pointer. Those that are Leaving are not part of it.
type Company struct {
	// Name orders companies.
	Name string
	// Spare is how many may go singly.
	Spare int
	// Whole tells that all may go together. It is false when one of them is no candidate.
	Whole bool
}

// Removal is a pod that is to go from a node, which has that number in the Cluster.
type Removal struct {
	Pod  *v1.Pod
	Node int
}

// Eviction is a plan and who has to go for it, or why there is none.
type Eviction struct {
	// Result has the slots. When its Refusal is not nil nobody is to go.
	Result
	// Victims are sorted by node and name. There are none when the room of pods that leave already is enough.
	Victims []Removal
	// Leaving are the pods on the nodes of the plan that terminate already, sorted likewise.
	Leaving []Removal
	// Violations is how many of the victims go against a budget.
	Violations int
}

// exactReprieves bounds how many victims are spared by planning anew without them. The others are only spared where
// the slots leave room for them.
const exactReprieves = 256

// Preempt finds a plan for which as few and as unimportant pods as possible have to go: as few against their budgets as
// possible, then of the lowest priorities, then the fewest. It does so only when the plan is then complete: Make
// finds one in the cluster without them.
//
// It is a heuristic, like Make: members are placed one after the other where the next one costs least, and then victims
// that are not needed are spared, the most important first. Pods are removed for their room. Only when that does not
// do, and r has Openings, they are removed for their host ports and for what anti-affinity there is, too.
func Preempt(r *Preemption) Eviction {
	x := newExchange(r)
	base := r.Request
	if len(x.leaving) > 0 {
		base.Cluster = r.Without(x.leaving)
	}
	p := newPlanner(base)
	x.measure(p)
	if a := p.search(); a.placed >= r.Need {
		return x.eviction(Result{Slots: a.slots()}, nil)
	}
	e := p.trade(x, r)
	if e.Refusal == nil || r.Openings == nil {
		return e
	}
	wider := *r
	if wider.Members = p.open(x, r); wider.Members == nil {
		return e
	}
	return p.trade(x, &wider)
}

// trade looks for victims.
func (p *planner) trade(x *exchange, r *Preemption) Eviction {
	found := 0
	for _, blind := range []bool{false, true} {
		best := p.cheapest(x, blind)
		found = max(found, min(best.placed, r.Need-1))
		if best.placed < r.Need {
			continue
		}
		for _, victims := range [][]int32{best.reprieve(), best.victims} {
			if result := x.verify(r, victims); result.Refusal == nil {
				result, victims = x.spare(r, p, result, victims)
				return x.eviction(result, victims)
			}
		}
	}
	return Eviction{Result: Result{Refusal: &Refusal{Found: found}}}
}

// verify plans without the victims as Make will do when they are gone.
func (x *exchange) verify(r *Preemption, victims []int32) Result {
	request := r.Request
	request.Removed = x.removals(victims)
	request.Cluster = r.Without(append(slices.Clone(x.leaving), request.Removed...))
	return Make(request)
}

// spare spares victims in whose place the plan has put nobody.
func (x *exchange) spare(r *Preemption, p *planner, result Result, victims []int32) (Result, []int32) {
	for {
		fewer := x.unneeded(p, result.Slots, victims)
		if len(fewer) == len(victims) {
			return result, victims
		}
		again := x.verify(r, fewer)
		if again.Refusal != nil {
			return result, victims
		}
		result, victims = again, fewer
	}
}

// unneeded returns the victims that the slots leave no room for.
func (x *exchange) unneeded(p *planner, slots []Slot, victims []int32) []int32 {
	k := len(p.names)
	classes := map[types.UID]*class{}
	for _, c := range p.classes {
		for _, pod := range c.pods {
			classes[pod.UID] = c
		}
	}
	blocking := map[int32]bool{}
	free := slices.Clone(p.free)
	for _, v := range victims {
		c := &x.candidates[v]
		for j, gain := range c.Gain {
			free[int(c.node)*k+j] += gain
		}
	}
	at := make(map[string]int, p.n)
	for i := range p.n {
		at[p.Cluster.Node(i).Name] = i
	}
	for _, s := range slots {
		node := at[s.Node]
		c := classes[s.Pod.UID]
		for j, amount := range c.request {
			free[node*k+j] -= amount
		}
		for _, id := range c.blockers[node] {
			blocking[id] = true
		}
	}
	var kept []int32
	for _, u := range x.units(victims) {
		if blocks(u, blocking) {
			kept = append(kept, u...)
			continue
		}
		fits := true
		for _, v := range u {
			c := &x.candidates[v]
			for j, gain := range c.Gain {
				free[int(c.node)*k+j] -= gain
			}
			fits = fits && !slices.ContainsFunc(free[int(c.node)*k:][:k], func(left int64) bool { return left < 0 })
		}
		if fits {
			continue
		}
		for _, v := range u {
			c := &x.candidates[v]
			for j, gain := range c.Gain {
				free[int(c.node)*k+j] += gain
			}
		}
		kept = append(kept, u...)
	}
	return kept
}

// eviction words an answer.
func (x *exchange) eviction(result Result, victims []int32) Eviction {
	e := Eviction{Result: result, Victims: x.removals(victims), Violations: x.violations(victims)}
	on := make(map[string]bool, len(result.Slots))
	for _, s := range result.Slots {
		on[s.Node] = true
	}
	for _, l := range x.leaving {
		if on[x.r.Cluster.Node(l.Node).Name] {
			e.Leaving = append(e.Leaving, l)
		}
	}
	return e
}

// removals lists candidates by node and name.
func (x *exchange) removals(ids []int32) []Removal {
	if len(ids) == 0 {
		return nil
	}
	all := make([]Removal, 0, len(ids))
	for _, id := range ids {
		c := &x.candidates[id]
		all = append(all, Removal{Pod: c.Pod, Node: int(c.node)})
	}
	x.sort(all)
	return all
}

func (x *exchange) sort(all []Removal) {
	slices.SortFunc(all, func(a, b Removal) int {
		return cmp.Or(
			cmp.Compare(x.r.Cluster.Node(a.Node).Name, x.r.Cluster.Node(b.Node).Name),
			cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
			cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
}
