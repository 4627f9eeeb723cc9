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

// nativeGroupLabel is the label that the members of a native gang may have, with the name of their PodGroup as its
// value. The component autoscaler-constraints gives it to members of packed gangs.
const nativeGroupLabel = "zonewise.dev/native-pod-group"

// plan is what is to be written.
type plan struct {
	create, update, remove []*policyv1.PodDisruptionBudget
	refusals               []refusal
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

// budget is one that there is, or is about to be.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	// group is the PodGroup for which the part has made it; empty for a budget of somebody else.
	group types.UID
}

func newBudget(b *policyv1.PodDisruptionBudget) *budget {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	out := &budget{PodDisruptionBudget: b, selector: selector}
	if owner := metav1.GetControllerOfNoCopy(b); b.Labels[managedByLabel] == managedBy && owner != nil && owner.Kind == podGroupKind {
		out.group = owner.UID
	}
	return out
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

// addMembers gives groups their members, sorted by name.
func addMembers(groups []*group, cluster *snapshot.Snapshot) {
	byID := map[podgroup.ID]*group{}
	for _, g := range groups {
		byID[g.id] = g
	}
	for _, pod := range snapshot.Sorted[*v1.Pod](cluster, "") {
		id, is := podgroup.IDOf(pod)
		if !is || byID[id] == nil || !pods.Live(pod) {
			continue
		}
		g := byID[id]
		g.members = append(g.members, pod)
		if pod.Spec.NodeName != "" {
			g.bound = append(g.bound, pod)
		}
	}
}

// planFor returns what makes the budgets of the cluster what its PodGroups ask for. The budgets of the part are known
// by their label and their owner.
func planFor(cluster *snapshot.Snapshot) *plan {
	p := &plan{}
	others, ours := map[string][]*budget{}, map[string][]*budget{} // by namespace
	own := map[types.UID]*policyv1.PodDisruptionBudget{}           // by PodGroup
	for _, obj := range snapshot.List[*policyv1.PodDisruptionBudget](cluster) {
		b := newBudget(obj)
		if b.group == "" {
			others[b.Namespace] = append(others[b.Namespace], b)
			continue
		}
		ours[b.Namespace] = append(ours[b.Namespace], b)
		own[b.group] = obj
	}
	groups := groupsOf(cluster)
	if len(groups) > 0 {
		addMembers(groups, cluster)
	}
	for _, g := range groups {
		// One that has a budget gives way to those of others alone: of two PodGroups the first to have one keeps it.
		has := own[g.GetUID()]
		rivals := others[g.GetNamespace()]
		if has == nil {
			rivals = slices.Concat(rivals, ours[g.GetNamespace()])
		}
		wanted := p.planGroup(g, has, rivals)
		if wanted == nil {
			continue
		}
		if has == nil {
			ours[g.GetNamespace()] = append(ours[g.GetNamespace()], newBudget(wanted))
		}
		delete(own, g.GetUID())
	}
	for _, uid := range slices.Sorted(maps.Keys(own)) { // they are not asked for, or not to be
		p.remove = append(p.remove, own[uid])
	}
	return p
}

// planGroup plans for a PodGroup, and returns the budget that it keeps or gets; nil for none. own is what it has, nil
// if none, and rivals are the budgets beside which it is to have none.
func (p *plan) planGroup(g *group, own *policyv1.PodDisruptionBudget, rivals []*budget) (wanted *policyv1.PodDisruptionBudget) {
	reason, message := g.refusal(rivals)
	var selector map[string]string
	if reason == "" && len(g.bound) > 0 {
		if selector = g.selector(); selector == nil {
			reason = reasonNoSelector
			message = "the members are not pods of one Job, and not all have label " + nativeGroupLabel + ": a budget selects by labels"
		}
	}
	switch {
	case reason != "":
		p.refusals = append(p.refusals, refusal{group: g, reason: reason, message: message})
		return nil
	case len(g.bound) == 0, own == nil && len(g.bound) < int(g.minMember):
		return nil
	}
	wanted = budgetOf(g, selector)
	switch {
	case own == nil:
		p.create = append(p.create, wanted)
	case !equality.Semantic.DeepEqual(own.Spec, wanted.Spec):
		wanted.ObjectMeta = *own.ObjectMeta.DeepCopy() // others may have added to it
		p.update = append(p.update, wanted)
	}
	return wanted
}

// refusal returns why a PodGroup is not to have a budget; empty if it may.
func (g *group) refusal(rivals []*budget) (reason, message string) {
	if value := g.GetAnnotations()[podgroup.DisruptionBudgetAnnotation]; value != podgroup.BudgetOfMinMember {
		return reasonInvalid, fmt.Sprintf(
			"annotation %s is %q, must be %q", podgroup.DisruptionBudgetAnnotation, value, podgroup.BudgetOfMinMember,
		)
	}
	if g.minMember < 1 {
		return reasonInvalid, fmt.Sprintf("%s is %d: no member has to stay", g.minField, g.minMember)
	}
	for _, b := range rivals {
		if b.Name == g.GetName() {
			return reasonOtherBudget, fmt.Sprintf("PodDisruptionBudget %s exists and is not of this PodGroup", b.Name)
		}
		for _, pod := range g.bound {
			if b.selector.Matches(labels.Set(pod.Labels)) {
				return reasonOtherBudget, fmt.Sprintf(
					"PodDisruptionBudget %s selects member %s: with two budgets no eviction of a pod succeeds", b.Name, pod.Name,
				)
			}
		}
	}
	return "", ""
}

// selector returns a label that all members have: that of the PodGroup, or of the Job of a native gang; nil if there is
// none.
func (g *group) selector() map[string]string {
	candidates := [][2]string{{schedulingv1alpha1.PodGroupLabel, g.GetName()}}
	if g.id.Native {
		job := g.members[0].Labels[batchv1.ControllerUidLabel]
		candidates = [][2]string{{nativeGroupLabel, g.GetName()}, {batchv1.ControllerUidLabel, job}}
	}
	for _, c := range candidates {
		label, value := c[0], c[1]
		if value != "" && !slices.ContainsFunc(g.members, func(pod *v1.Pod) bool { return pod.Labels[label] != value }) {
			return map[string]string{label: value}
		}
	}
	return nil
}

// budgetOf returns the budget of a PodGroup. A member that is not ready may be evicted: it does none of the gang's
// work, and would keep its node from being drained for ever.
func budgetOf(g *group, selector map[string]string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.GetNamespace(), Name: g.GetName(), Labels: map[string]string{managedByLabel: managedBy},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: g.apiVersion, Kind: podGroupKind, Name: g.GetName(), UID: g.GetUID(), Controller: new(true),
			}},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(g.minMember)),
			Selector:                   &metav1.LabelSelector{MatchLabels: selector},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}
