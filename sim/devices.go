package sim

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file stands for the controllers of ephemeral claims, of volumes as of devices. How a volume comes to a claim is
// in volumes.go.

// makeClaims makes the claims for a pod's own volumes and devices. Without the template there is no claim, and the
// scheduler says so.
func (s *Sim) makeClaims(pod *v1.Pod) {
	if pod.UID == "" {
		s.store.mu.Lock()
		s.store.stampLocked(pod)
		s.store.mu.Unlock()
	}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			template := v.Ephemeral.VolumeClaimTemplate
			_ = s.createClaim(&v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), OwnerReferences: owner,
					Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				},
				Spec: *template.Spec.DeepCopy(),
			}) // one that is there is another's, which the scheduler notices
		}
	}
	pod.Status.ResourceClaimStatuses = nil
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		if ref.ResourceClaimTemplateName == nil {
			continue
		}
		template, ok := get[*resourcev1.ResourceClaimTemplate](
			s.store, pod.Namespace+"/"+*ref.ResourceClaimTemplateName,
		)
		if !ok {
			continue
		}
		claim := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace,
				Name:      fmt.Sprintf("%s-%s-%s", pod.Name, ref.Name, pod.UID[max(0, len(pod.UID)-5):]),
				Labels:    maps.Clone(template.Spec.Labels), Annotations: maps.Clone(template.Spec.Annotations),
				OwnerReferences: owner,
			},
			Spec: *template.Spec.Spec.DeepCopy(),
		}
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, resourcev1.PodResourceClaimAnnotation, ref.Name)
		if err := s.store.create(claim); err == nil {
			pod.Status.ResourceClaimStatuses = append(
				pod.Status.ResourceClaimStatuses,
				v1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: &claim.Name},
			)
		}
	}
}

// releaseClaims releases the claims of a pod that has ended.
func (s *Sim) releaseClaims(pod *v1.Pod) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil {
			key := pod.Namespace + "/" + ephemeral.VolumeClaimName(pod, v)
			if claim, ok := get[*v1.PersistentVolumeClaim](s.store, key); ok && metav1.IsControlledBy(claim, pod) {
				s.store.remove(kindFor[*v1.PersistentVolumeClaim](s.store), key)
				if claim.Spec.VolumeName != "" {
					s.store.remove(kindFor[*v1.PersistentVolume](s.store), claim.Spec.VolumeName)
					s.returnCapacity(claim, pod.Spec.NodeName)
				}
			}
		}
	}
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	for _, name := range names {
		claim, ok := get[*resourcev1.ResourceClaim](s.store, pod.Namespace+"/"+name)
		switch {
		case !ok:
		case metav1.IsControlledBy(claim, pod):
			s.store.remove(kindFor[*resourcev1.ResourceClaim](s.store), keyOf(claim))
		default:
			_, _ = changeObject(s.store, keyOf(claim), func(claim *resourcev1.ResourceClaim) error {
				claim.Status.ReservedFor = slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(r resourcev1.ResourceClaimConsumerReference) bool {
					return r.UID == pod.UID
				})
				if len(claim.Status.ReservedFor) == 0 {
					claim.Status.Allocation = nil // the last consumer is gone
				}
				return nil
			})
		}
	}
}

// removeNodes removes nodes with the data of their drivers, and returns what says which volumes and devices the nodes
// have.
func (s *Sim) removeNodes(names map[string]bool) (drivers []client.Object) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s.store.remove(kindFor[*v1.Node](s.store), name)
		if csi, ok := get[*storagev1.CSINode](s.store, name); ok {
			drivers = append(drivers, csi)
			s.store.remove(kindFor[*storagev1.CSINode](s.store), name)
		}
	}
	for _, attachment := range list[*storagev1.VolumeAttachment](s.store) {
		if names[attachment.Spec.NodeName] {
			s.store.remove(kindFor[*storagev1.VolumeAttachment](s.store), attachment.Name)
		}
	}
	for _, slice := range list[*resourcev1.ResourceSlice](s.store) {
		if names[ptr.Deref(slice.Spec.NodeName, "")] {
			drivers = append(drivers, slice)
			s.store.remove(kindFor[*resourcev1.ResourceSlice](s.store), slice.Name)
		}
	}
	return drivers
}

// copyDrivers gives a new node the volume limits, the storage and the devices of another one.
func (s *Sim) copyDrivers(model, node *v1.Node) {
	if csi, ok := get[*storagev1.CSINode](s.store, model.Name); ok {
		c := copyOf(csi)
		c.ObjectMeta = metav1.ObjectMeta{Name: node.Name, Annotations: c.Annotations}
		_ = s.store.create(c) // a node that is new has none
	}
	s.copyCapacities(model, node)
	for _, slice := range list[*resourcev1.ResourceSlice](s.store) {
		if ptr.Deref(slice.Spec.NodeName, "") == model.Name {
			c := copyOf(slice)
			c.ObjectMeta = metav1.ObjectMeta{Name: slice.Name + "-" + node.Name}
			c.Spec.NodeName = &node.Name
			if c.Spec.Pool.Name == model.Name {
				c.Spec.Pool.Name = node.Name
			}
			_ = s.store.create(c) // as above
		}
	}
}
