package gangbudgets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/podgroup"
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
)

// plan is what is to be written.
type plan struct {
	create, update, remove []*policyv1.PodDisruptionBudget
	refusals               []refusal
}

// refusal says why a PodGroup that asks for a budget has none.
type refusal struct {
	group           *schedulingv1alpha1.PodGroup
	reason, message string
}

// planFor returns what makes the budgets of the cluster what its PodGroups ask for.
func planFor(cluster *snapshot.Snapshot) *plan {
	p := &plan{}
	groups := snapshot.List[*schedulingv1alpha1.PodGroup](cluster)
	budgets := map[string][]*policyv1.PodDisruptionBudget{} // by namespace
	own := map[types.UID]*policyv1.PodDisruptionBudget{}    // by PodGroup
	for _, b := range snapshot.List[*policyv1.PodDisruptionBudget](cluster) {
		if uid := ownerOf(b); uid != "" {
			own[uid] = b
		} else {
			budgets[b.Namespace] = append(budgets[b.Namespace], b)
		}
	}
	asking := map[types.NamespacedName]bool{}
	for _, g := range groups {
		if _, asks := g.Annotations[podgroup.DisruptionBudgetAnnotation]; asks && g.DeletionTimestamp == nil {
			asking[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = true
		}
	}
	bound := boundMembers(cluster, asking)
	for _, g := range groups {
		key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
		if asking[key] {
			p.planGroup(g, own[g.UID], bound[key], budgets[g.Namespace])
			delete(own, g.UID)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(own)) { // they are not asked for any more
		p.remove = append(p.remove, own[uid])
	}
	return p
}

// planGroup plans for a PodGroup that asks for a budget. own is what it has, nil if none.
func (p *plan) planGroup(g *schedulingv1alpha1.PodGroup, own *policyv1.PodDisruptionBudget, bound []*v1.Pod, others []*policyv1.PodDisruptionBudget) {
	reason, message := refusalOf(g, bound, others)
	if reason != "" {
		p.refusals = append(p.refusals, refusal{group: g, reason: reason, message: message})
	}
	whole := len(bound) >= int(g.Spec.MinMember)
	switch wanted := budgetOf(g); {
	case reason != "" || len(bound) == 0:
		if own != nil {
			p.remove = append(p.remove, own)
		}
	case own != nil && !equality.Semantic.DeepEqual(own.Spec, wanted.Spec):
		wanted.ResourceVersion = own.ResourceVersion
		p.update = append(p.update, wanted)
	case own == nil && whole:
		p.create = append(p.create, wanted)
	}
}

// refusalOf returns why a PodGroup that asks for a budget is not to have one; empty if it may.
func refusalOf(g *schedulingv1alpha1.PodGroup, bound []*v1.Pod, others []*policyv1.PodDisruptionBudget) (reason, message string) {
	if value := g.Annotations[podgroup.DisruptionBudgetAnnotation]; value != podgroup.BudgetOfMinMember {
		return reasonInvalid, fmt.Sprintf("annotation %s is %q, must be %q", podgroup.DisruptionBudgetAnnotation, value, podgroup.BudgetOfMinMember)
	}
	if g.Spec.MinMember < 1 {
		return reasonInvalid, fmt.Sprintf("spec.minMember is %d: no member has to stay", g.Spec.MinMember)
	}
	for _, b := range others {
		if b.Name == g.Name {
			return reasonOtherBudget, fmt.Sprintf("PodDisruptionBudget %s exists and is not of this PodGroup", b.Name)
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // it selects nothing
		}
		for _, pod := range bound {
			if selector.Matches(labels.Set(pod.Labels)) {
				return reasonOtherBudget, fmt.Sprintf("PodDisruptionBudget %s selects member %s: with two budgets no eviction of a pod succeeds", b.Name, pod.Name)
			}
		}
	}
	return "", ""
}

// budgetOf returns the budget of a PodGroup. A member that is not ready may be evicted: it does none of the gang's work, and would keep its node from being
// drained for ever.
func budgetOf(g *schedulingv1alpha1.PodGroup) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace, Name: g.Name, Labels: map[string]string{managedByLabel: managedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: schedulingv1alpha1.SchemeGroupVersion.String(), Kind: "PodGroup", Name: g.Name, UID: g.UID, Controller: new(true),
			}},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(g.Spec.MinMember)),
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{schedulingv1alpha1.PodGroupLabel: g.Name}},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// ownerOf returns the UID of the PodGroup to which a budget of the part belongs; empty if it is none of the part.
func ownerOf(b *policyv1.PodDisruptionBudget) types.UID {
	owner := metav1.GetControllerOfNoCopy(b)
	if b.Labels[managedByLabel] != managedBy || owner == nil || owner.Kind != "PodGroup" || owner.APIVersion != schedulingv1alpha1.SchemeGroupVersion.String() {
		return ""
	}
	return owner.UID
}

// boundMembers returns the members with a node of some PodGroups, sorted by name.
func boundMembers(cluster *snapshot.Snapshot, of map[types.NamespacedName]bool) map[types.NamespacedName][]*v1.Pod {
	out := map[types.NamespacedName][]*v1.Pod{}
	if len(of) == 0 {
		return out
	}
	for _, pod := range snapshot.List[*v1.Pod](cluster) {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[schedulingv1alpha1.PodGroupLabel]}
		if of[key] && pod.Spec.NodeName != "" && pods.Live(pod) {
			out[key] = append(out[key], pod)
		}
	}
	for _, members := range out {
		slices.SortFunc(members, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}
