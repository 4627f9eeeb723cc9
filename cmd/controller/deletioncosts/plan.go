package deletioncosts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

// plan is what is to be written in a namespace.
type plan struct {
	namespace string
	policies  []*keeper // by name
	pods      []*v1.Pod // live ones
	changes   []change  // those first that have or get the lowest costs
	have      int       // pods that have a cost of the part
}

// keeper is a policy with KeepSpread.
type keeper struct {
	*policy.Policy
	object  *v1alpha1.ZoneSpreadPolicy
	ordered bool // it has pods of a ReplicaSet or ReplicationController
	// leftAlone names the first of these that has a pod with a cost of another writer.
	leftAlone string
	// overruled names another policy that decides for some pods.
	overruled string
	// unwritten is how many costs are still to be written, and failed why.
	unwritten int
	failed    string
}

// change is a cost that a pod does not have yet. The keeper is nil if no policy asks for one.
type change struct {
	pod    *v1.Pod
	cost   int32
	keeper *keeper
}

// lowestCost is the lower one of the costs that the pod has and is to have: a pod that would leave too soon is as
// urgent as one that would leave too late.
func (c *change) lowestCost() int32 { return min(currentCost(c.pod), c.cost) }

// policiesOf returns the policies with KeepSpread, by namespace and name.
func policiesOf(cluster *snapshot.Snapshot) (out []*keeper) {
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](cluster, "") {
		p, errs := policy.Compile(object)
		if len(errs) == 0 && p.KeepsSpread() && object.DeletionTimestamp == nil {
			out = append(out, &keeper{Policy: p, object: object})
		}
	}
	return out
}

// planNamespaces returns what makes the costs what the policies ask for, by namespace.
func planNamespaces(cluster *snapshot.Snapshot) []*plan {
	plans := map[string]*plan{}
	planOf := func(namespace string) *plan {
		if plans[namespace] == nil {
			plans[namespace] = &plan{namespace: namespace}
		}
		return plans[namespace]
	}
	for _, k := range policiesOf(cluster) {
		planOf(k.Namespace()).policies = append(planOf(k.Namespace()).policies, k)
	}
	for _, pod := range snapshot.List[*v1.Pod](cluster) {
		if pods.Live(pod) && (plans[pod.Namespace] != nil || hasOwnCost(pod)) {
			planOf(pod.Namespace).pods = append(planOf(pod.Namespace).pods, pod)
		}
	}
	nodes := map[string]*v1.Node{}
	for _, node := range snapshot.List[*v1.Node](cluster) {
		nodes[node.Name] = node
	}
	out := make([]*plan, 0, len(plans))
	for _, p := range plans {
		p.planChanges(nodes)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *plan) int { return strings.Compare(a.namespace, b.namespace) })
	return out
}

// podSet is the pods of a ReplicaSet or ReplicationController for which a policy decides.
type podSet struct {
	keeper *keeper
	owner  types.UID
}

// planChanges plans what is to be written.
func (p *plan) planChanges(nodes map[string]*v1.Node) {
	slices.SortFunc(p.pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	sets, leftAlone := map[podSet][]*v1.Pod{}, map[podSet]bool{}
	for _, pod := range p.pods {
		if hasOwnCost(pod) {
			p.have++
		}
		keeper, owner := p.keeperOf(pod), metav1.GetControllerOfNoCopy(pod)
		if keeper == nil || owner == nil || owner.Kind != "ReplicaSet" && owner.Kind != "ReplicationController" {
			p.addChange(pod, 0, nil)
			continue
		}
		keeper.ordered = true
		set := podSet{keeper, owner.UID}
		sets[set] = append(sets[set], pod)
		if foreign := foreignCost(pod); foreign != "" {
			leftAlone[set] = true
			keeper.leftAlone = cmp.Or(keeper.leftAlone, fmt.Sprintf("%s %s is left alone: %s", owner.Kind, owner.Name, foreign))
		}
	}
	for set, members := range sets {
		if !leftAlone[set] {
			p.orderPods(set.keeper, members, nodes)
			continue
		}
		for _, pod := range members {
			p.addChange(pod, 0, nil)
		}
	}
	slices.SortFunc(p.changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.lowestCost(), b.lowestCost()), cmp.Compare(a.pod.Name, b.pod.Name))
	})
}

// orderPods plans the costs of the ready pods of a ReplicaSet. The others leave before them, and keep what they have.
func (p *plan) orderPods(keeper *keeper, members []*v1.Pod, nodes map[string]*v1.Node) {
	zones := map[string][]*v1.Pod{}
	for _, pod := range members {
		if node := nodes[pod.Spec.NodeName]; node != nil && pods.Ready(pod) {
			zone := node.Labels[keeper.TopologyKey()]
			zones[zone] = append(zones[zone], pod)
		}
	}
	for zone, ready := range zones {
		costs := make([]int32, len(ready))
		for rank := range costs {
			costs[rank] = keeper.DeletionCost(zone, rank)
		}
		for pod, cost := range assignCosts(ready, costs) {
			p.addChange(pod, cost, keeper)
		}
	}
}

// addChange plans a cost unless the pod has it, or one of another writer.
func (p *plan) addChange(pod *v1.Pod, cost int32, keeper *keeper) {
	if currentCost(pod) == cost {
		return
	}
	p.changes = append(p.changes, change{pod: pod, cost: cost, keeper: keeper})
	if keeper != nil {
		keeper.unwritten++
	}
}

// keeperOf returns the policy that decides for a pod, the first by name of those that select it; nil if none does.
func (p *plan) keeperOf(pod *v1.Pod) (first *keeper) {
	for _, k := range p.policies {
		switch {
		case !k.Selects(pod.Labels):
		case first == nil:
			first = k
		default:
			k.overruled = first.Key()
		}
	}
	return first
}

// condition returns the condition ScaleDownOrdered of a policy, without times.
func (k *keeper) condition() metav1.Condition {
	status := metav1.ConditionFalse
	var reason, message string
	switch {
	case k.failed != "":
		reason, message = v1alpha1.ReasonNotWritten, k.failed
	case k.leftAlone != "":
		reason, message = v1alpha1.ReasonOtherManager, k.leftAlone
	case k.overruled != "":
		reason = v1alpha1.ReasonOtherPolicy
		message = "ZoneSpreadPolicy " + k.overruled + " decides for some of the pods"
	case !k.ordered:
		reason = v1alpha1.ReasonNothingToOrder
		message = "no pods of a ReplicaSet or ReplicationController are selected, and other controllers look at no costs"
	case k.unwritten > 0:
		reason, message = v1alpha1.ReasonNotWritten, fmt.Sprintf("%d costs are still to be written", k.unwritten)
	default:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonOrdered
		message = "pods leave in the order that keeps the spread"
	}
	return metav1.Condition{Status: status, Reason: reason, Message: message}
}
