package serve

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// maxKinds is how many kinds of pods a recount tells apart by the nodes that they may use, since each costs a look at
// all nodes. Further kinds count as if they could use every zone.
const maxKinds = 256

// recount counts the pods of some policies. Make one for each look; it is used by one goroutine.
type recount struct {
	serve     *Policies
	policies  map[*Applied]*counting
	workloads map[types.UID]*policy.Workload // by the UIDs of controllers
	nodes     []*v1.Node
	barred    map[kind]map[string]bool
	ofOwner   map[ownerPolicy]map[string]bool
}

// counting is what is counted for a policy.
type counting struct {
	tally    *policy.Tally
	withPods map[types.UID]bool // the workloads that have live pods, as runs name them
}

// kind is what decides which zones have no node for a pod.
type kind struct{ topologyKey, eligibility string }

// ownerPolicy names a controller, whose pods are alike, and a policy.
type ownerPolicy struct {
	owner  types.UID
	policy types.UID
}

// add counts a live pod for the policies that apply to it.
func (r *recount) add(pod *v1.Pod) {
	var workload *policy.Workload
	owner := ownerOf(pod)
	for _, a := range r.serve.active.selecting(pod) {
		c := r.policies[a]
		if c == nil {
			continue
		}
		if workload == nil {
			workload = r.workloadOf(pod.Namespace, owner)
		}
		c.withPods[cmp.Or(workload.UID, owner.uid, a.UID())] = true
		c.tally.Add(workload, pod.Labels, r.serve.zoneOf(a.TopologyKey(), pod.Spec.NodeName), r.barredFrom(a, pod, owner.uid))
	}
}

func (r *recount) workloadOf(namespace string, owner reference) *policy.Workload {
	w, known := r.workloads[owner.uid]
	if !known {
		found, _ := r.serve.cluster.workload(namespace, owner)
		w = &found
		if r.workloads == nil {
			r.workloads = map[types.UID]*policy.Workload{}
		}
		r.workloads[owner.uid] = w
	}
	return w
}

// barredFrom returns the zones that have nodes, but none that a pod may use, whatever state they are in.
func (r *recount) barredFrom(a *Applied, pod *v1.Pod, owner types.UID) map[string]bool {
	if barred, known := r.ofOwner[ownerPolicy{owner, a.UID()}]; known && owner != "" {
		return barred
	}
	eligible := counts.IgnoringLifecycle(
		counts.EligibilityOf(pod, a.HonorsAffinity(), a.HonorsTaints(), r.serve.comparisonOperators))
	k := kind{a.TopologyKey(), counts.KeyOf(eligible)}
	barred, known := r.barred[k]
	if !known && eligible != nil && len(r.barred) < maxKinds {
		if r.barred == nil {
			r.barred, r.ofOwner = map[kind]map[string]bool{}, map[ownerPolicy]map[string]bool{}
			r.nodes, _ = r.serve.cluster.nodes.List(labels.Everything()) // the lister of a cache has no errors
		}
		barred = map[string]bool{}
		for _, node := range r.nodes {
			zone, ok := node.Labels[a.TopologyKey()]
			if open, seen := barred[zone]; ok && (!seen || open) {
				barred[zone] = !eligible.Eligible(node)
			}
		}
		for zone, none := range barred {
			if !none {
				delete(barred, zone)
			}
		}
		r.barred[k] = barred
	}
	if r.ofOwner != nil {
		r.ofOwner[ownerPolicy{owner, a.UID()}] = barred
	}
	return barred
}
