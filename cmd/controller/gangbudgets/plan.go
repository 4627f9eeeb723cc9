package gangbudgets

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/sim/kinds"
)

// The label of the part's budgets.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "zonewise-controller"
)

// Reasons of events.
const (
	reasonInvalid     = "DisruptionBudgetInvalid"
	reasonOtherBudget = "OtherDisruptionBudget"
	reasonNoSelector  = "NoLabelsOfItsOwn"
)

const podGroupKind = "PodGroup"

// nativeGroupLabel is the label that the members of a native gang may have, with the name of their PodGroup as its value.
// The component autoscaler-constraints gives it to members of packed gangs.
const nativeGroupLabel = "zonewise.dev/native-pod-group"

// plan is what is to be written.
type plan struct {
	create, update, remove []*policyv1.PodDisruptionBudget
	refusals               []refusal
	// kept has the names of the budgets that PodGroups keep or get by what they select, and named these names.
	kept  map[podSelector]string
	named map[types.NamespacedName]bool
}

// refusal says why a PodGroup that asks for a budget has none.
type refusal struct {
	group           *group
	reason, message string
}

// group is a PodGroup of either API that asks for a budget.
type group struct {
	client.Object
	id         podgroup.ID
	apiVersion string
	// minMember is how many members have to stay, and minField where the PodGroup says so.
	minMember int32
	minField  string
	// members are the live ones, and bound those that have a node.
	members, bound []*v1.Pod
}

// podSelector is a label by which the budget of a gang selects pods of its namespace.
type podSelector struct{ namespace, label, value string }

// selectorsOf returns those that select a pod.
func selectorsOf(pod *v1.Pod) (selectors []podSelector) {
	for _, label := range []string{schedulingv1alpha1.PodGroupLabel, nativeGroupLabel, batchv1.ControllerUidLabel} {
		if value := pod.Labels[label]; value != "" {
			selectors = append(selectors, podSelector{pod.Namespace, label, value})
		}
	}
	return selectors
}

// groupsOf returns the PodGroups that ask for a budget. Native ones without a gang policy are none.
func groupsOf(cluster *snapshot.Snapshot) (out []*group) {
	add := func(object client.Object, native bool, minMember int32, minField string) {
		if _, asks := object.GetAnnotations()[podgroup.DisruptionBudgetAnnotation]; asks && object.GetDeletionTimestamp() == nil {
			_, kind := kinds.ResourceOf(object)
			out = append(out, &group{
				Object: object, id: podgroup.ID{NamespacedName: client.ObjectKeyFromObject(object), Native: native},
				apiVersion: kind.GroupVersion().String(), minMember: minMember, minField: minField,
			})
		}
	}
	for _, g := range snapshot.List[*schedulingv1alpha1.PodGroup](cluster) {
		add(g, false, g.Spec.MinMember, "spec.minMember")
	}
	for _, g := range snapshot.List[*kinds.NativePodGroup](cluster) {
		if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
			add(g, true, gang.MinCount, "spec.schedulingPolicy.gang.minCount")
		}
	}
	return out
}

// addMembers gives groups their members, sorted by name, and counts all pods by what budgets of gangs select by.
func addMembers(groups []*group, cluster *snapshot.Snapshot) (selected map[podSelector]int) {
	selected = map[podSelector]int{}
	byID := map[podgroup.ID]*group{}
	for _, g := range groups {
		byID[g.id] = g
	}
	for _, pod := range snapshot.Sorted[*v1.Pod](cluster, "") {
		if !pods.Live(pod) {
			continue
		}
		if id, is := podgroup.IDOf(pod); is && byID[id] != nil {
			g := byID[id]
			g.members = append(g.members, pod)
			if pod.Spec.NodeName != "" {
				g.bound = append(g.bound, pod)
			}
		}
		for _, selector := range selectorsOf(pod) {
			selected[selector]++
		}
	}
	return selected
}

// planFor returns what makes the budgets of the cluster what its PodGroups ask for. The budgets of the part are known by
// their label and their owner.
func planFor(cluster *snapshot.Snapshot) *plan {
	p := &plan{kept: map[podSelector]string{}, named: map[types.NamespacedName]bool{}}
	others, own := map[string][]*policyv1.PodDisruptionBudget{}, map[types.UID]*policyv1.PodDisruptionBudget{}
	for _, b := range snapshot.List[*policyv1.PodDisruptionBudget](cluster) {
		if owner := metav1.GetControllerOfNoCopy(b); b.Labels[managedByLabel] == managedBy && owner != nil && owner.Kind == podGroupKind {
			own[owner.UID] = b
		} else {
			others[b.Namespace] = append(others[b.Namespace], b)
		}
	}
	groups := groupsOf(cluster)
	if len(groups) > 0 {
		selected := addMembers(groups, cluster)
		for _, g := range groups {
			if p.planGroup(g, own[g.GetUID()], selected, others[g.GetNamespace()]) {
				delete(own, g.GetUID())
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(own)) { // they are not asked for, or not to be
		p.remove = append(p.remove, own[uid])
	}
	return p
}

// planGroup plans for a PodGroup, and reports whether it keeps or gets a budget. own is what it has, nil if none; selected
// counts the pods by what budgets select by.
func (p *plan) planGroup(
	g *group, own *policyv1.PodDisruptionBudget, selected map[podSelector]int, others []*policyv1.PodDisruptionBudget,
) (kept bool) {
	reason, message := p.refusal(g, others)
	var selector podSelector
	if reason == "" && len(g.bound) > 0 {
		if selector, message = g.selector(selected); message != "" {
			reason = reasonNoSelector
		}
	}
	if reason != "" {
		p.refusals = append(p.refusals, refusal{group: g, reason: reason, message: message})
	}
	if reason != "" || len(g.bound) == 0 {
		return false
	}
	wanted := budgetOf(g, selector)
	switch {
	case own == nil && len(g.bound) < int(g.minMember):
		return false
	case own == nil:
		p.create = append(p.create, wanted)
	case !equality.Semantic.DeepEqual(own.Spec, wanted.Spec):
		wanted.ObjectMeta = *own.ObjectMeta.DeepCopy() // others may have added to it
		p.update = append(p.update, wanted)
	}
	p.kept[selector], p.named[client.ObjectKeyFromObject(wanted)] = wanted.Name, true
	return true
}

// refusal returns why a PodGroup is not to have a budget beside those of PodGroups before it; empty if it may. others are the
// budgets that are not the part's.
func (p *plan) refusal(g *group, others []*policyv1.PodDisruptionBudget) (reason, message string) {
	if value := g.GetAnnotations()[podgroup.DisruptionBudgetAnnotation]; value != podgroup.BudgetOfMinMember {
		return reasonInvalid, fmt.Sprintf(
			"annotation %s is %q, must be %q", podgroup.DisruptionBudgetAnnotation, value, podgroup.BudgetOfMinMember,
		)
	}
	if g.minMember < 1 {
		return reasonInvalid, fmt.Sprintf("%s is %d: no member has to stay", g.minField, g.minMember)
	}
	if p.named[client.ObjectKeyFromObject(g)] { // by one of the other API with the same name
		return reasonOtherBudget, otherOwnerText(g.GetName())
	}
	for _, b := range others {
		if b.Name == g.GetName() {
			return reasonOtherBudget, otherOwnerText(b.Name)
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // it selects nothing
		}
		for _, pod := range g.bound {
			if selector.Matches(labels.Set(pod.Labels)) {
				return reasonOtherBudget, twoBudgetsText(b.Name, pod)
			}
		}
	}
	for _, pod := range g.bound {
		for _, selector := range selectorsOf(pod) {
			if name, selects := p.kept[selector]; selects {
				return reasonOtherBudget, twoBudgetsText(name, pod)
			}
		}
	}
	return "", ""
}

func otherOwnerText(budget string) string {
	return fmt.Sprintf("PodDisruptionBudget %s exists and is not of this PodGroup", budget)
}

func twoBudgetsText(budget string, pod *v1.Pod) string {
	return fmt.Sprintf("PodDisruptionBudget %s selects member %s: with two budgets no eviction of a pod succeeds", budget, pod.Name)
}

// selector returns the label that all members of a gang have and no other pod: that of its PodGroup, or of the Job of a
// native gang. message says why there is none; empty if there is.
func (g *group) selector(selected map[podSelector]int) (selector podSelector, message string) {
	candidates := []podSelector{{g.GetNamespace(), schedulingv1alpha1.PodGroupLabel, g.GetName()}}
	if g.id.Native {
		job := g.members[0].Labels[batchv1.ControllerUidLabel]
		candidates = []podSelector{{g.GetNamespace(), nativeGroupLabel, g.GetName()}, {g.GetNamespace(), batchv1.ControllerUidLabel, job}}
	}
	message = "the members are not pods of one Job, and not all have label " + nativeGroupLabel + ": a budget selects by labels"
	for _, c := range candidates {
		other := func(pod *v1.Pod) bool { return pod.Labels[c.label] != c.value }
		switch {
		case c.value == "" || slices.ContainsFunc(g.members, other):
		case selected[c] > len(g.members):
			message = fmt.Sprintf("pods that are no members have label %s=%s too: a budget selects by labels", c.label, c.value)
		default:
			return c, ""
		}
	}
	return podSelector{}, message
}

// budgetOf returns the budget of a PodGroup. A member that is not ready may be evicted: it does none of the gang's
// work, and would keep its node from being drained for ever.
func budgetOf(g *group, selector podSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.GetNamespace(), Name: g.GetName(), Labels: map[string]string{managedByLabel: managedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: g.apiVersion, Kind: podGroupKind, Name: g.GetName(), UID: g.GetUID(), Controller: new(true),
			}},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(g.minMember)),
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{selector.label: selector.value}},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}
