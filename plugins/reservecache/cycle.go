package reservecache

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// systemCriticalPriority is the lowest priority of the pods that a cluster needs to work: that of the class
// system-cluster-critical.
const systemCriticalPriority int32 = 2_000_000_000

const stateKey fwk.StateKey = Name

// cycleData is what PreFilter finds out about holds for the cycle of one pod. Filter reads it from several
// goroutines; what changes is atomic or has a lock of its own.
type cycleData struct {
	asker   holds.Asker
	request ledger.Resources
	// owner is what the pod's reservation gives it; nil when it belongs to none. version is that of the owners.
	owner   *serve.Owner
	version any
	// betterNode is shared by all copies of the data, and asked lazily.
	betterNode *betterNode
	// probing means that the data is betterNode's own: a node that is not of the kind that is looked for is refused.
	probing bool
	// nominated is what pods will use of holds which are nominated to nodes. It belongs to a copy of the data.
	nominated map[string][]holds.Taken
	// rehearsed is what other members of a native pod group use of holds in the placement that is tried; nil outside
	// of pod-group cycles.
	rehearsed *rehearsal
	// choices are what the pod would use of holds on each node; nil for a pod that owns none.
	choices *choices
	// refused is set once holds have kept the pod off a node; nil for a hypothetical pod, which does not wait for room.
	refused *atomic.Bool
}

// Clone is called for what-if searches, which add and remove pods. Only nominated is ever changed after PreFilter, and
// never in place.
func (d *cycleData) Clone() fwk.StateData {
	c := *d
	return &c
}

// read returns the cycle's data, or nil when PreFilter found that no hold concerns the pod.
func read(state fwk.CycleState) *cycleData {
	data, _ := state.Read(stateKey) // an error says that there is none
	d, _ := data.(*cycleData)
	return d
}

// takenOn is what is used of holds on a node without being recorded.
func (d *cycleData) takenOn(node string) []holds.Taken {
	nominated, rehearsed := d.nominated[node], d.rehearsed.on(node)
	switch {
	case len(rehearsed) == 0:
		return nominated
	case len(nominated) == 0:
		return rehearsed
	}
	return slices.Concat(nominated, rehearsed)
}

// question asks for room for the pod on a node.
func (d *cycleData) question(node string, allocatable, requested *ledger.Resources, present holds.Present) holds.Question {
	return holds.Question{
		Who: &d.asker, Request: &d.request, Allocatable: allocatable, Requested: requested, Present: present, Taken: d.takenOn(node),
	}
}

// choices are what a pod would use of holds on each node. Filter looks at a node twice if pods are nominated to it, with them
// and without: the pod uses what it needs in either case.
type choices struct {
	mu    sync.Mutex // guards parts
	parts map[string]ledger.Resources
}

func (c *choices) raise(node string, part ledger.Resources) {
	if part.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	most := part.Clone()
	earlier := c.parts[node]
	most.Raise(&earlier)
	c.parts[node] = most
}

func (c *choices) get(node string) ledger.Resources {
	if c == nil {
		return ledger.Resources{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[node]
}

// rehearsal has what the members of a pod group use of holds in one tried placement. It is kept in the placement's state,
// so that each member finds what the ones before it have left. Reserve and Unreserve change it while no Filter runs.
type rehearsal struct {
	byNode atomic.Pointer[map[string][]holds.Taken]
}

// Clone implements fwk.StateData. The state of a placement is never cloned for what-if searches.
func (r *rehearsal) Clone() fwk.StateData { return r }

func (r *rehearsal) on(node string) []holds.Taken {
	if r == nil {
		return nil
	}
	if byNode := r.byNode.Load(); byNode != nil {
		return (*byNode)[node]
	}
	return nil
}

// set has a pod use a part of a claim on a node, and nothing elsewhere.
func (r *rehearsal) set(pod types.UID, node string, claim types.UID, part ledger.Resources) {
	next := map[string][]holds.Taken{}
	if byNode := r.byNode.Load(); byNode != nil {
		for name, taken := range *byNode {
			if taken = slices.DeleteFunc(slices.Clone(taken), func(t holds.Taken) bool { return t.Pod == pod }); len(taken) > 0 {
				next[name] = taken
			}
		}
	}
	if !part.IsZero() {
		next[node] = append(next[node], holds.Taken{Claim: claim, Pod: pod, Took: part})
	}
	r.byNode.Store(&next)
}

// rehearsalOf returns that of the placement that is tried, or nil outside of pod-group cycles.
func rehearsalOf(state fwk.CycleState) *rehearsal {
	if !state.IsPodGroupSchedulingCycle() {
		return nil
	}
	placement := state.GetPlacementCycleState()
	if placement == nil {
		return nil
	}
	if data, err := placement.Read(stateKey); err == nil {
		r, _ := data.(*rehearsal)
		return r
	}
	r := &rehearsal{}
	placement.Write(stateKey, r)
	return r
}

// ignoresHolds reports whether holds do not keep the pod off: pods of DaemonSets belong to their node, and what is critical
// to the system comes before any promise.
func ignoresHolds(pod *v1.Pod) bool {
	if schedulingv1.PodPriority(pod) >= systemCriticalPriority {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1" && pinned(pod)
}

// pinned reports whether a pod may run on one node only, as the DaemonSet controller pins it: every term of its required node
// affinity names that node. An owner reference proves nothing, since the creator of the pod writes it. The creator also
// writes this, but such a pod bypasses the holds of only one node.
func pinned(pod *v1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if !slices.ContainsFunc(terms[i].MatchFields, func(r v1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1
		}) {
			return false
		}
	}
	return len(terms) > 0
}

// askerFor returns the claim that a pod may use, and how. The owner is nil if the pod belongs to no reservation.
func (r *running) askerFor(pod *v1.Pod) (holds.Asker, *serve.Owner) {
	asker := holds.Asker{Priority: schedulingv1.PodPriority(pod)}
	if ignoresHolds(pod) {
		asker.IgnoreHolds = true
		return asker, nil
	}
	owner := r.server.OwnerOf(pod)
	if owner != nil {
		asker.Claim, asker.Use = owner.Claim, owner.Use
	}
	return asker, owner
}
