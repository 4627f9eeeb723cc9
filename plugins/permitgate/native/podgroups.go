package native

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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

// Read returns what a PodGroup asks for. hierarchies says that the scheduler knows composite groups.
func Read(group *schedulingv1beta1.PodGroup, hierarchies bool) *podgroup.Group {
	policy, mode := group.Spec.SchedulingPolicy, group.Spec.DisruptionMode
	g := &podgroup.Group{
		ID: podgroup.ID{NamespacedName: podgroup.Key(group), Native: true}, Object: group, API: schedulingv1beta1.SchemeGroupVersion,
		Constrained:  group.Spec.SchedulingConstraints != nil && len(group.Spec.SchedulingConstraints.Topology) > 0,
		KeepsAll:     mode != nil && mode.All != nil,
		SharesClaims: len(group.Spec.ResourceClaims) > 0,
	}
	complaint := podgroup.Complaint{Reason: podgroup.ReasonInvalidTopology}
	g.Topology, complaint.Text = podgroup.TopologyOf(group)
	parent := parentOf(group.Namespace, group.Spec.ParentCompositePodGroupName)
	switch packed := g.Topology != (podgroup.Topology{}); {
	case packed && parent.Name != "":
		g.Topology, complaint.Text = podgroup.Topology{}, "the PodGroup is part of a composite group, which kube-scheduler alone packs"
	case packed && g.Constrained:
		g.Topology, complaint.Text = podgroup.Topology{}, "spec.schedulingConstraints is set as well, and takes precedence over the annotation"
	}
	g.Complaints = []podgroup.Complaint{complaint}
	spec := &gang.Spec{UID: group.UID, MinMember: 1, Parent: parent, Revision: strconv.FormatInt(group.Generation, 10)}
	switch {
	case parent.Name != "" && !hierarchies: // its members depend on those of other PodGroups
		g.Unguarded = podgroup.Complaint{Reason: "CompositeGroup", Text: "the PodGroup is part of a composite group, of which the scheduler knows nothing: its feature gate " + CompositeFeature + " is off"}
	case policy.Gang != nil:
		spec.MinMember = int(policy.Gang.MinCount)
		g.Gang = spec
	case parent.Name != "": // for the composite group one member is enough
		g.Gang = spec
	}
	// Where a group of a hierarchy may go follows from all others of it, so there is nothing to prove about one alone.
	g.Constrained = g.Constrained || parent.Name != ""
	return g
}

// parentOf returns the composite group that a group names as its parent; the zero value without one.
func parentOf(namespace string, name *string) types.NamespacedName {
	if name == nil || *name == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: *name}
}

// PodGroups are those that the scheduler's informer shows. Make one with Watch.
type PodGroups struct {
	lister      schedulinglisters.PodGroupLister
	hierarchies bool
}

// Watch starts to pass on changes of PodGroups, until the factory stops. hierarchies says that the scheduler knows
// composite groups. synced reports whether the first list has been seen.
func Watch(
	factory informers.SharedInformerFactory, hierarchies bool, seen, gone func(*podgroup.Group),
) (p *PodGroups, synced toolscache.InformerSynced, err error) {
	podGroups := factory.Scheduling().V1beta1().PodGroups()
	handler, err := podGroups.Informer().AddEventHandler(informer.Latest(
		func(group *schedulingv1beta1.PodGroup) { seen(Read(group, hierarchies)) },
		func(group *schedulingv1beta1.PodGroup) { gone(Read(group, hierarchies)) },
	))
	if err != nil {
		return nil, nil, fmt.Errorf("watching PodGroups of scheduling.k8s.io: %w", err)
	}
	return &PodGroups{podGroups.Lister(), hierarchies}, handler.HasSynced, nil
}

// Get returns a PodGroup, nil if the informer does not show it.
func (p *PodGroups) Get(key types.NamespacedName) *podgroup.Group {
	group, err := p.lister.PodGroups(key.Namespace).Get(key.Name)
	if err != nil {
		return nil // not found is the only error of a lister over memory
	}
	return Read(group, p.hierarchies)
}

// PartsOf returns the PodGroups of a namespace that are part of composite groups.
func (p *PodGroups) PartsOf(namespace string) (parts []*podgroup.Group) {
	groups, _ := p.lister.PodGroups(namespace).List(labels.Everything()) // a lister over memory does not fail
	for _, group := range groups {
		if group.Spec.ParentCompositePodGroupName != nil {
			parts = append(parts, Read(group, p.hierarchies))
		}
	}
	return parts
}

// Conditions returns those of a PodGroup.
func Conditions(g *podgroup.Group) []metav1.Condition {
	group, ok := g.Object.(*schedulingv1beta1.PodGroup)
	if !ok {
		return nil
	}
	return group.Status.Conditions
}

// PatchConditions gives a PodGroup conditions. It is not an error if it is gone.
func PatchConditions(ctx context.Context, client clientset.Interface, g *podgroup.Group, conditions []metav1.Condition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": g.GetUID()},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = client.SchedulingV1beta1().PodGroups(g.Namespace).Patch(
		ctx, g.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
