package gangbudgets

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// named are the PodGroups that have been planned for.
	named map[types.NamespacedName]bool
}

// group is a PodGroup of either API.
type group struct {
	client.Object
	apiVersion string
	// minMember is how many members have to stay, and minField where the PodGroup says so.
	minMember int32
	minField  string
	native    bool
}

// groupsOf returns the PodGroups of a cluster. Native ones without a gang policy are none.
func groupsOf(cluster *snapshot.Snapshot) []*group {
	var out []*group
	for _, g := range snapshot.List[*schedulingv1alpha1.PodGroup](cluster) {
		out = append(out, &group{
			Object: g, apiVersion: schedulingv1alpha1.SchemeGroupVersion.String(), minMember: g.Spec.MinMember,
			minField: "spec.minMember",
		})
	}
	for _, g := range snapshot.List[*kinds.NativePodGroup](cluster) {
		if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
			_, kind := kinds.ResourceOf(g)
			out = append(out, &group{
				Object: g, apiVersion: kind.GroupVersion().String(), minMember: gang.MinCount,
				minField: "spec.schedulingPolicy.gang.minCount", native: true,
			})
		}
	}
	return out
}

// key tells the groups of a cluster apart: one of each API may have the same name.
type key struct {
	types.NamespacedName
	native bool
}

func (g *group) key() key { return key{client.ObjectKeyFromObject(g), g.native} }

// keyOf is the key of a pod's group.
func keyOf(pod *v1.Pod) key {
	if id, named := podgroup.NativeOf(pod); named {
		return key{id.NamespacedName, true}
	}
	return key{
		types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[schedulingv1alpha1.PodGroupLabel]}, false,
	}
}

// refusal says why a PodGroup that asks for a budget has none.
type refusal struct {
	group           *group
	reason, message string
}

// planFor returns what makes the budgets of the cluster what its PodGroups ask for.
func planFor(cluster *snapshot.Snapshot) *plan {
	p := &plan{named: map[types.NamespacedName]bool{}}
	groups := groupsOf(cluster)
	budgets := map[string][]*policyv1.PodDisruptionBudget{} // by namespace
	own := map[types.UID]*policyv1.PodDisruptionBudget{}    // by PodGroup
	for _, b := range snapshot.List[*policyv1.PodDisruptionBudget](cluster) {
		if uid := ownerOf(b); uid != "" {
			own[uid] = b
		} else {
			budgets[b.Namespace] = append(budgets[b.Namespace], b)
		}
	}
	asking := map[key]bool{}
	for _, g := range groups {
		if _, asks := g.GetAnnotations()[podgroup.DisruptionBudgetAnnotation]; asks && g.GetDeletionTimestamp() == nil {
			asking[g.key()] = true
		}
	}
	members, selected := livePods(cluster, asking)
	for _, g := range groups {
		if k := g.key(); asking[k] {
			p.planGroup(g, own[g.GetUID()], members[k], selected, budgets[g.GetNamespace()])
			delete(own, g.GetUID())
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(own)) { // they are not asked for any more
		p.remove = append(p.remove, own[uid])
	}
	return p
}

// planGroup plans for a PodGroup that asks for a budget. own is what it has, nil if none; selected counts the pods by what
// budgets select by.
func (p *plan) planGroup(
	g *group, own *policyv1.PodDisruptionBudget, members []*v1.Pod, selected map[podSelector]int,
	others []*policyv1.PodDisruptionBudget,
) {
	bound := slices.DeleteFunc(slices.Clone(members), func(pod *v1.Pod) bool { return pod.Spec.NodeName == "" })
	reason, message := refusalOf(g, bound, others)
	if p.named[client.ObjectKeyFromObject(g)] {
		reason, message = reasonOtherBudget, "a PodGroup of the other API with this name asks for a budget as well"
	}
	p.named[client.ObjectKeyFromObject(g)] = true
	var selector podSelector
	if reason == "" && len(bound) > 0 {
		selector, message = selectorOf(g, members, selected)
		if message != "" {
			reason = reasonNoSelector
		}
	}
	if reason != "" {
		p.refusals = append(p.refusals, refusal{group: g, reason: reason, message: message})
	}
	whole := len(bound) >= int(g.minMember)
	switch wanted := budgetOf(g, selector); {
	case reason != "" || len(bound) == 0:
		if own != nil {
			p.remove = append(p.remove, own)
		}
	case own != nil && !equality.Semantic.DeepEqual(own.Spec, wanted.Spec):
		wanted.ObjectMeta = *own.ObjectMeta.DeepCopy() // others may have added to it
		p.update = append(p.update, wanted)
	case own == nil && whole:
		p.create = append(p.create, wanted)
	}
}

// podSelector is a label by which the budget of a gang selects pods of its namespace.
type podSelector struct{ namespace, label, value string }

// selectorOf returns the label that all members of a gang have and no other pod: that of its PodGroup, or of the Job of a
// native gang. message says why there is none; empty if there is.
func selectorOf(g *group, members []*v1.Pod, selected map[podSelector]int) (selector podSelector, message string) {
	candidates := []podSelector{{g.GetNamespace(), schedulingv1alpha1.PodGroupLabel, g.GetName()}}
	if g.native {
		candidates = []podSelector{
			{g.GetNamespace(), nativeGroupLabel, g.GetName()},
			{g.GetNamespace(), batchv1.ControllerUidLabel, members[0].Labels[batchv1.ControllerUidLabel]},
		}
	}
	for _, selector := range candidates {
		switch {
		case slices.ContainsFunc(members, func(pod *v1.Pod) bool { return pod.Labels[selector.label] != selector.value }):
		case selector.value == "":
		case selected[selector] > len(members):
			message = fmt.Sprintf("pods that are no members have label %s=%s too: a budget selects by labels", selector.label, selector.value)
		default:
			return selector, ""
		}
	}
	return podSelector{}, cmp.Or(message, "the members are not pods of one Job, and not all have label "+nativeGroupLabel+": a budget selects by labels")
}

// refusalOf returns why a PodGroup that asks for a budget is not to have one; empty if it may.
func refusalOf(g *group, bound []*v1.Pod, others []*policyv1.PodDisruptionBudget) (reason, message string) {
	if value := g.GetAnnotations()[podgroup.DisruptionBudgetAnnotation]; value != podgroup.BudgetOfMinMember {
		return reasonInvalid, fmt.Sprintf(
			"annotation %s is %q, must be %q", podgroup.DisruptionBudgetAnnotation, value, podgroup.BudgetOfMinMember,
		)
	}
	if g.minMember < 1 {
		return reasonInvalid, fmt.Sprintf("%s is %d: no member has to stay", g.minField, g.minMember)
	}
	for _, b := range others {
		if b.Name == g.GetName() {
			return reasonOtherBudget, fmt.Sprintf("PodDisruptionBudget %s exists and is not of this PodGroup", b.Name)
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue // it selects nothing
		}
		for _, pod := range bound {
			if selector.Matches(labels.Set(pod.Labels)) {
				return reasonOtherBudget, fmt.Sprintf(
					"PodDisruptionBudget %s selects member %s: with two budgets no eviction of a pod succeeds", b.Name,
					pod.Name,
				)
			}
		}
	}
	return "", ""
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

// ownerOf returns the UID of the PodGroup to which a budget of the part belongs; empty if it is none of the part.
func ownerOf(b *policyv1.PodDisruptionBudget) types.UID {
	owner := metav1.GetControllerOfNoCopy(b)
	if b.Labels[managedByLabel] != managedBy || owner == nil || owner.Kind != podGroupKind {
		return ""
	}
	_, nativeKind := kinds.ResourceOf(&kinds.NativePodGroup{})
	switch version, _ := schema.ParseGroupVersion(owner.APIVersion); version.Group {
	case schedulingv1alpha1.SchemeGroupVersion.Group, nativeKind.Group:
		return owner.UID
	}
	return ""
}

// livePods returns the members of some PodGroups, sorted by name, and counts all pods by what budgets of gangs select by.
func livePods(cluster *snapshot.Snapshot, groups map[key]bool) (members map[key][]*v1.Pod, selected map[podSelector]int) {
	members, selected = map[key][]*v1.Pod{}, map[podSelector]int{}
	if len(groups) == 0 {
		return members, selected
	}
	for _, pod := range snapshot.Sorted[*v1.Pod](cluster, "") {
		if !pods.Live(pod) {
			continue
		}
		if k := keyOf(pod); groups[k] {
			members[k] = append(members[k], pod)
		}
		for _, label := range []string{schedulingv1alpha1.PodGroupLabel, nativeGroupLabel, batchv1.ControllerUidLabel} {
			if value := pod.Labels[label]; value != "" {
				selected[podSelector{pod.Namespace, label, value}]++
			}
		}
	}
	return members, selected
}
