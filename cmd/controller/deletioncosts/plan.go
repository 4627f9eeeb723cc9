package deletioncosts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// plan is what is to be written.
type plan struct {
	changes []change // those first that have or get the lowest costs
	// policies are those with KeepSpread, by namespace and name.
	policies []*activePolicy
	// have is how many pods have a cost of the part, and leftAlone how many ReplicaSets a cost of somebody else.
	have, leftAlone int
	// next is after how long to look again if nothing changes.
	next time.Duration
}

// change is a cost of a pod that is another one now.
type change struct {
	pod  *v1.Pod
	cost int32
	// set is what the pod belongs to; nil if no policy asks for its cost.
	set     *podSet
	written bool
}

// lowest is the lower one of the cost that the pod has and that which it is to have: a pod that would leave too soon is
// as urgent as one that leaves too late.
func (c *change) lowest() int32 {
	current, _ := costOf(c.pod)
	return min(current, c.cost)
}

// group names the changes that are refused together.
func (c *change) group() string {
	if c.set != nil {
		return c.set.name
	}
	return c.pod.Namespace
}

// podSet is the live pods of a ReplicaSet or ReplicationController, by name, or a part of them.
type podSet struct {
	name  string
	owner types.UID
	pods  []*v1.Pod
	// policy decides for a part, for which eligible nodes count. Nil of a whole set.
	policy   *activePolicy
	eligible counts.Eligibility
	workload policy.Workload
	// rollout names the Deployment that replaces the pods now.
	rollout string
	// foreign says who else has given one of the pods a cost.
	foreign string
	// failed is why a cost could not be written.
	failed string
}

// activePolicy is a policy with KeepSpread.
type activePolicy struct {
	*policy.Policy
	object *v1alpha1.ZoneSpreadPolicy
	zones  *policy.Zones
	live   int64 // pods that it selects, if it asks for them (spec.replicas Matching)
	sets   []*podSet
	// overruled names another policy that decides for some pods.
	overruled string
}

// planFor returns what makes the costs what the policies ask for.
func planFor(cluster *snapshot.Snapshot, now time.Time) *plan {
	p := &plan{next: idleInterval}
	r := newReader(cluster, now)
	p.policies = r.policies
	wanted := map[types.UID]bool{} // pods whose cost is decided
	for _, set := range r.sets() {
		parts := r.parts(set)
		for _, part := range parts {
			part.policy.sets = append(part.policy.sets, part)
			for _, pod := range part.pods {
				wanted[pod.UID] = true
			}
			if set.rollout == "" {
				p.planPart(r, part)
			}
		}
		if len(parts) > 0 && set.rollout == "" && set.foreign != "" {
			p.leftAlone++
		}
	}
	for _, pod := range snapshot.List[*v1.Pod](cluster) {
		if !pods.Live(pod) || !isOurs(pod) {
			continue
		}
		p.have++
		if !wanted[pod.UID] {
			p.change(pod, 0, nil)
		}
	}
	slices.SortFunc(p.changes, func(a, b change) int {
		return cmp.Or(
			cmp.Compare(a.lowest(), b.lowest()), cmp.Compare(a.pod.Namespace, b.pod.Namespace),
			cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	return p
}

// planPart plans the costs of pods for which one policy decides alike, none where somebody else has given one.
func (p *plan) planPart(r *reader, part *podSet) {
	var costs map[*v1.Pod]int32
	if part.foreign == "" {
		costs = r.costs(part)
	}
	for _, pod := range part.pods {
		if !pods.Ready(pod) && part.foreign == "" {
			if keepsPlace(pod, r.now) {
				p.next = min(p.next, placeKept)
			}
			continue // it leaves before those that are ready
		}
		p.change(pod, costs[pod], part)
	}
}

// change plans a cost unless the pod has it, or has one of somebody else.
func (p *plan) change(pod *v1.Pod, cost int32, set *podSet) {
	if current, ok := costOf(pod); ok && current != cost {
		p.changes = append(p.changes, change{pod: pod, cost: cost, set: set})
	}
}

// waiting is how many costs are not written.
func (p *plan) waiting() (pods int) {
	for i := range p.changes {
		if !p.changes[i].written {
			pods++
		}
	}
	return pods
}

// answer is the condition ScaleDownOrdered of a policy.
type answer struct {
	policy          *v1alpha1.ZoneSpreadPolicy
	status          metav1.ConditionStatus
	reason, message string
}

// answers returns the conditions of all policies.
func (p *plan) answers() []answer {
	waits := map[*podSet]bool{}
	for i := range p.changes {
		if c := &p.changes[i]; !c.written {
			waits[c.set] = true
		}
	}
	var out []answer
	for _, a := range p.policies {
		out = append(out, a.answer(waits))
	}
	return out
}

// answer returns the condition; waits has the sets of which not all costs are written.
func (a *activePolicy) answer(waits map[*podSet]bool) answer {
	out := answer{policy: a.object, status: metav1.ConditionFalse}
	first := func(matches func(set *podSet) bool) *podSet {
		if i := slices.IndexFunc(a.sets, matches); i >= 0 {
			return a.sets[i]
		}
		return nil
	}
	if set := first(func(set *podSet) bool { return set.failed != "" }); set != nil {
		out.reason, out.message = v1alpha1.ReasonNotWritten, set.name+": "+set.failed
	} else if set := first(func(set *podSet) bool { return set.foreign != "" }); set != nil {
		out.reason, out.message = v1alpha1.ReasonOtherManager, set.name+" is left alone: "+set.foreign
	} else if a.overruled != "" {
		out.reason, out.message = v1alpha1.ReasonOtherPolicy, "ZoneSpreadPolicy "+a.overruled+" decides for some of the pods"
	} else if len(a.sets) == 0 {
		out.reason, out.message = v1alpha1.ReasonNothingToOrder, "no pods of a ReplicaSet or ReplicationController are selected, and other controllers look at no costs"
	} else if set := first(func(set *podSet) bool { return set.rollout != "" }); set != nil {
		out.reason, out.message = v1alpha1.ReasonInProgress, set.rollout+" replaces its pods: their costs stay as they are until it has"
	} else if set := first(func(set *podSet) bool { return waits[set] }); set != nil {
		out.reason, out.message = v1alpha1.ReasonInProgress, "costs of "+set.name+" are still to be written"
	} else {
		out.status, out.reason, out.message = metav1.ConditionTrue, v1alpha1.ReasonOrdered, "pods leave in the order that keeps the spread"
	}
	return out
}

func nameOf(kind string, object metav1.Object) string {
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}
