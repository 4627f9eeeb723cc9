package native

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Feature is kube-scheduler's gate for pod groups.
const Feature = "GenericWorkload"

// Read returns what a PodGroup asks for.
func Read(group *schedulingv1beta1.PodGroup) *podgroup.Group {
	policy, mode := group.Spec.SchedulingPolicy, group.Spec.DisruptionMode
	g := &podgroup.Group{
		ID: podgroup.ID{NamespacedName: podgroup.Key(group), Native: true}, Object: group, API: schedulingv1beta1.SchemeGroupVersion,
		Constrained:  group.Spec.SchedulingConstraints != nil && len(group.Spec.SchedulingConstraints.Topology) > 0,
		KeepsAll:     mode != nil && mode.All != nil,
		SharesClaims: len(group.Spec.ResourceClaims) > 0,
	}
	complaint := podgroup.Complaint{Reason: podgroup.ReasonInvalidTopology}
	g.Topology, complaint.Text = podgroup.TopologyOf(group)
	if g.Constrained && g.Topology != (podgroup.Topology{}) {
		g.Topology, complaint.Text = podgroup.Topology{}, "spec.schedulingConstraints is set as well, and takes precedence over the annotation"
	}
	g.Complaints = []podgroup.Complaint{complaint}
	switch {
	case group.Spec.ParentCompositePodGroupName != nil: // its members depend on those of other PodGroups
		g.Unguarded = podgroup.Complaint{Reason: "CompositeGroup", Text: "members of composite groups are not guarded: they are bound one by one"}
	case policy.Gang != nil:
		g.Gang = &gang.Spec{UID: group.UID, MinMember: int(policy.Gang.MinCount), Revision: strconv.FormatInt(group.Generation, 10)}
	}
	return g
}

// PodGroups are those that the scheduler's informer shows. Make one with Watch.
type PodGroups struct {
	lister schedulinglisters.PodGroupLister
}

// Watch starts to pass on changes of PodGroups, until the factory stops. synced reports whether the first list has been
// seen.
func Watch(factory informers.SharedInformerFactory, seen, gone func(*podgroup.Group)) (p *PodGroups, synced toolscache.InformerSynced, err error) {
	podGroups := factory.Scheduling().V1beta1().PodGroups()
	handler, err := podGroups.Informer().AddEventHandler(informer.Latest(
		func(group *schedulingv1beta1.PodGroup) { seen(Read(group)) },
		func(group *schedulingv1beta1.PodGroup) { gone(Read(group)) },
	))
	if err != nil {
		return nil, nil, fmt.Errorf("watching PodGroups of scheduling.k8s.io: %w", err)
	}
	return &PodGroups{podGroups.Lister()}, handler.HasSynced, nil
}

// Get returns a PodGroup, nil if the informer does not show it.
func (p *PodGroups) Get(key types.NamespacedName) *podgroup.Group {
	group, err := p.lister.PodGroups(key.Namespace).Get(key.Name)
	if err != nil {
		return nil // not found is the only error of a lister over memory
	}
	return Read(group)
}

// Conditions returns those of a PodGroup.
func Conditions(g *podgroup.Group) []metav1.Condition {
	group, ok := g.Object.(*schedulingv1beta1.PodGroup)
	if !ok {
		return nil
	}
	return group.Status.Conditions
}

// PatchConditions gives a PodGroup conditions, and returns it as it is then, or nil if it is gone.
func PatchConditions(ctx context.Context, client clientset.Interface, g *podgroup.Group, conditions []metav1.Condition) (*podgroup.Group, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": g.GetUID()},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	group, err := client.SchedulingV1beta1().PodGroups(g.Namespace).Patch(
		ctx, g.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return Read(group), nil
}

// Latest returns the later of two views of a PodGroup: that of the informer, and what a patch has returned, nil if
// nothing has been patched.
func Latest(shown, patched *podgroup.Group) *podgroup.Group {
	if patched == nil || patched.GetUID() != shown.GetUID() {
		return shown
	}
	order, err := resourceversion.CompareResourceVersion(shown.GetResourceVersion(), patched.GetResourceVersion())
	if err == nil && order < 0 {
		return patched
	}
	return shown
}
