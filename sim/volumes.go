package sim

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/volume"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/utils/ptr"
)

// This file stands for what gives claims their volumes: the API server's default class, the volume controller, and the
// provisioners of drivers, within the capacity that these publish.

func (s *Sim) classLister() storagelisters.StorageClassLister {
	return storagelisters.NewStorageClassLister(kindFor[*storagev1.StorageClass](s.store).indexer)
}

// createClaim creates a claim as a cluster does: without a class it gets the default one, and unless its class waits
// for a pod it is bound before a scheduler sees the pod. A claim that has its volume is taken as it is.
func (s *Sim) createClaim(claim *v1.PersistentVolumeClaim) error {
	if metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted) {
		return s.store.create(claim)
	}
	classes := s.classLister()
	if _, beta := claim.Annotations[v1.BetaStorageClassAnnotation]; !beta && claim.Spec.StorageClassName == nil {
		if class := s.defaultClass(); class != nil {
			claim.Spec.StorageClassName = &class.Name
		}
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	if err := s.store.create(claim); err != nil {
		return err
	}
	waits, err := volume.IsDelayBindingMode(claim, classes)
	if err != nil {
		return err
	}
	if pv := s.matchingVolume(claim, waits); pv != nil {
		s.bindVolume(pv, claim)
	} else if claim.Spec.VolumeName == "" && !waits {
		s.provisionAtOnce(claim)
	}
	return nil
}

// defaultClass returns the class of claims that name none: of several the youngest, as the API server's
// (util.GetDefaultClass).
func (s *Sim) defaultClass() *storagev1.StorageClass {
	var found *storagev1.StorageClass
	for _, class := range list[*storagev1.StorageClass](s.store) { // by name
		isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
			class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
		if isDefault && (found == nil || found.CreationTimestamp.Before(&class.CreationTimestamp)) {
			found = class
		}
	}
	return found
}

// matchingVolume returns the volume to which the volume controller binds a new claim, nil if there is none: the one
// that the claim names, one that names the claim, or else, unless its class waits for a pod, the smallest that is large
// enough.
func (s *Sim) matchingVolume(claim *v1.PersistentVolumeClaim, waits bool) *v1.PersistentVolume {
	if name := claim.Spec.VolumeName; name != "" {
		pv, ok := get[*v1.PersistentVolume](s.store, name)
		if !ok || pv.Spec.ClaimRef != nil && !volume.IsVolumeBoundToClaim(pv, claim) {
			return nil
		}
		return pv
	}
	volumes := slices.DeleteFunc(list[*v1.PersistentVolume](s.store), func(pv *v1.PersistentVolume) bool {
		return !volume.CheckAccessModes(claim, pv)
	})
	pv, _ := volume.FindMatchingVolume(claim, volumes, nil, nil, waits, true) // a selector that is wrong matches none
	return pv
}

// bindVolume binds a volume and a claim to each other.
func (s *Sim) bindVolume(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) {
	pv, err := changeObject(s.store, pv.Name, func(pv *v1.PersistentVolume) error {
		pv.Spec.ClaimRef = &v1.ObjectReference{
			Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		}
		return nil
	})
	if err == nil {
		s.bindClaim(pv)
	}
}

// bindClaim binds a claim to the volume that names it, as the volume controller does.
func (s *Sim) bindClaim(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || pv.Status.Phase == v1.VolumeBound {
		return
	}
	_, err := changeObject(s.store, ref.Namespace+"/"+ref.Name, func(claim *v1.PersistentVolumeClaim) error {
		if claim.Spec.VolumeName != "" && claim.Spec.VolumeName != pv.Name {
			return errUnchanged
		}
		claim.Spec.VolumeName, claim.Status.Phase = pv.Name, v1.ClaimBound
		claim.Annotations = maps.Clone(claim.Annotations)
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.AnnBindCompleted, "yes")
		return nil
	})
	if err != nil {
		return
	}
	_, _ = changeObject(s.store, pv.Name, func(pv *v1.PersistentVolume) error {
		pv.Status.Phase = v1.VolumeBound
		return nil
	})
}

// provisionSelected makes the volume of a claim for which the scheduler has chosen a node. If the driver has no room
// there, it takes the choice back, as a provisioner does, and returns false.
func (s *Sim) provisionSelected(claim *v1.PersistentVolumeClaim) bool {
	node, ok := get[*v1.Node](s.store, claim.Annotations[volume.AnnSelectedNode])
	if !ok || claim.Spec.VolumeName != "" {
		return true
	}
	class, ok := get[*storagev1.StorageClass](s.store, volume.GetPersistentVolumeClaimClass(claim))
	if !ok || s.provision(claim, class, node) {
		return true
	}
	_, _ = changeObject(s.store, keyOf(claim), func(claim *v1.PersistentVolumeClaim) error {
		claim.Annotations = without(claim.Annotations, volume.AnnSelectedNode)
		return nil
	})
	return false
}

// provisionAtOnce makes the volume of a claim whose class does not wait for a pod. Where is the provisioner's choice:
// among the places that its class allows and where it has room, by the claim's name, so that the claims of a
// StatefulSet are spread. Without such a place the claim stays as it is.
func (s *Sim) provisionAtOnce(claim *v1.PersistentVolumeClaim) {
	class, ok := get[*storagev1.StorageClass](s.store, volume.GetPersistentVolumeClaimClass(claim))
	if !ok || class.Provisioner == "" || class.Provisioner == volume.NotSupportedProvisioner {
		return
	}
	places := map[string]*v1.Node{}
	for _, node := range list[*v1.Node](s.store) {
		if !v1helper.MatchTopologySelectorTerms(class.AllowedTopologies, labels.Set(node.Labels)) ||
			!s.hasDriver(class, node) {
			continue
		}
		if capacity, limited := s.capacityFor(claim, class, node); limited && capacity == nil {
			continue
		}
		var place strings.Builder
		for _, r := range s.topologyOf(class, node) {
			place.WriteString(r.Values[0] + "\n")
		}
		if places[place.String()] == nil {
			places[place.String()] = node
		}
	}
	if len(places) > 0 {
		s.provision(claim, class, places[slices.Sorted(maps.Keys(places))[turnOf(claim.Name)%uint64(len(places))]])
	}
}

// turnOf numbers claims as the CSI provisioner does (getPVCNameHashAndIndexOffset): those of one StatefulSet follow one
// another.
func turnOf(claim string) uint64 {
	set, ordinal := claim, uint64(0)
	if i := strings.LastIndexByte(claim, '-'); i >= 0 {
		if n, err := strconv.ParseUint(claim[i+1:], 10, 32); err == nil {
			set, ordinal = claim[:i], n
		}
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(set))
	return uint64(h.Sum32()) + ordinal
}

// provision makes a volume on a node, or where its class' volumes are tied to, and binds the claim to it. It returns
// false if the driver has no room for it.
func (s *Sim) provision(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node *v1.Node) bool {
	if !s.takeCapacity(claim, class, node) {
		return false
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(claim.UID), Labels: map[string]string{},
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: class.Provisioner},
		},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName: class.Name, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: claim.Spec.Resources.Requests,
			ClaimRef: &v1.ObjectReference{
				Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: pv.Name}
	if place := s.topologyOf(class, node); len(place) > 0 {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{
			Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: place}}},
		}
	}
	if err := s.store.create(pv); err == nil {
		s.bindClaim(pv)
	}
	return true
}

// driverOf returns what a node's CSI driver says about a class' volumes, nil if the class' provisioner is no CSI driver
// of that node.
func (s *Sim) driverOf(class *storagev1.StorageClass, node *v1.Node) *storagev1.CSINodeDriver {
	if csi, ok := get[*storagev1.CSINode](s.store, node.Name); ok {
		for i := range csi.Spec.Drivers {
			if csi.Spec.Drivers[i].Name == class.Provisioner {
				return &csi.Spec.Drivers[i]
			}
		}
	}
	return nil
}

// hasDriver reports whether volumes of a class can be on a node, as far as is known: a provisioner that is a CSI driver
// of some node is not one of others.
func (s *Sim) hasDriver(class *storagev1.StorageClass, node *v1.Node) bool {
	_, isDriver := get[*storagev1.CSIDriver](s.store, class.Provisioner)
	return !isDriver || s.driverOf(class, node) != nil
}

// topologyOf returns what ties a volume of a class to where it is made on a node: the labels that the node's CSI driver
// names; of a provisioner that is none, those of the class' other volumes; or else the zone.
func (s *Sim) topologyOf(class *storagev1.StorageClass, node *v1.Node) []v1.NodeSelectorRequirement {
	keys, known := s.volumeKeys[class.Name]
	if driver := s.driverOf(class, node); driver != nil {
		keys = driver.TopologyKeys
	} else if !known {
		keys = []string{v1.LabelTopologyZone}
	}
	var out []v1.NodeSelectorRequirement
	for _, key := range keys {
		if value, ok := node.Labels[key]; ok {
			out = append(
				out, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}},
			)
		}
	}
	return out
}

// volumeKeysOf returns, for each class, the labels that tie its volumes to nodes.
func volumeKeysOf(volumes []*v1.PersistentVolume) map[string][]string {
	out := map[string][]string{}
	for _, pv := range volumes {
		class := pv.Spec.StorageClassName
		if _, known := out[class]; known || class == "" {
			continue
		}
		out[class] = nil
		if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil &&
			len(affinity.Required.NodeSelectorTerms) > 0 {
			for _, r := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
				out[class] = append(out[class], r.Key)
			}
		}
	}
	return out
}

// capacityFor returns the capacity from which a claim's volume on a node comes; nil if the driver has not enough there.
// It is not limited if the driver publishes none. It is the rule of upstream's filter (hasEnoughCapacity), which has to
// match.
func (s *Sim) capacityFor(
	claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node *v1.Node,
) (c *storagev1.CSIStorageCapacity, limited bool) {
	size, sized := claim.Spec.Resources.Requests[v1.ResourceStorage]
	driver, ok := get[*storagev1.CSIDriver](s.store, class.Provisioner)
	if !sized || !ok || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return nil, false
	}
	for _, capacity := range s.capacitiesOf(class.Name, node) {
		limit := capacity.MaximumVolumeSize
		if limit == nil {
			limit = capacity.Capacity
		}
		if limit != nil && limit.Cmp(size) >= 0 {
			return capacity, true
		}
	}
	return nil, true
}

// capacitiesOf returns what is published of a class for a node.
func (s *Sim) capacitiesOf(class string, node *v1.Node) []*storagev1.CSIStorageCapacity {
	return slices.DeleteFunc(list[*storagev1.CSIStorageCapacity](s.store), func(c *storagev1.CSIStorageCapacity) bool {
		if c.StorageClassName != class || c.NodeTopology == nil {
			return true
		}
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		return err != nil || !selector.Matches(labels.Set(node.Labels))
	})
}

// takeCapacity takes the size of a new volume from what its driver has left there. It returns false if that is less.
func (s *Sim) takeCapacity(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass, node *v1.Node) bool {
	capacity, limited := s.capacityFor(claim, class, node)
	if capacity == nil {
		return !limited
	}
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	size.Neg()
	s.changeCapacity(capacity, size)
	return true
}

// returnCapacity gives back what a volume took that is deleted.
func (s *Sim) returnCapacity(claim *v1.PersistentVolumeClaim, nodeName string) {
	node, ok := get[*v1.Node](s.store, nodeName)
	if !ok {
		return
	}
	for _, capacity := range s.capacitiesOf(volume.GetPersistentVolumeClaimClass(claim), node) {
		s.changeCapacity(capacity, claim.Spec.Resources.Requests[v1.ResourceStorage])
		return
	}
}

// changeCapacity changes what is left. No volume can be larger than that.
func (s *Sim) changeCapacity(capacity *storagev1.CSIStorageCapacity, size resource.Quantity) {
	_, _ = changeObject(s.store, keyOf(capacity), func(c *storagev1.CSIStorageCapacity) error {
		if c.Capacity == nil {
			return errUnchanged
		}
		full := c.MaximumVolumeSize != nil && c.MaximumVolumeSize.Cmp(*c.Capacity) >= 0
		left := c.Capacity.DeepCopy()
		left.Add(size)
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, resource.BinarySI)
		}
		c.Capacity = &left
		if c.MaximumVolumeSize != nil && (full || c.MaximumVolumeSize.Cmp(*c.Capacity) > 0) {
			c.MaximumVolumeSize = ptr.To(c.Capacity.DeepCopy())
		}
		return nil
	})
}

// copyCapacities gives a new node storage of its own, as much as another one has with the volumes that are on it.
func (s *Sim) copyCapacities(model, node *v1.Node) {
	for _, capacity := range list[*storagev1.CSIStorageCapacity](s.store) {
		if capacity.NodeTopology == nil ||
			!slices.Contains(slices.Collect(maps.Values(capacity.NodeTopology.MatchLabels)), model.Name) {
			continue
		}
		c := copyOf(capacity)
		c.ObjectMeta = metav1.ObjectMeta{Namespace: capacity.Namespace, Name: capacity.Name + "-" + node.Name}
		for key, value := range c.NodeTopology.MatchLabels {
			if value == model.Name {
				c.NodeTopology.MatchLabels[key] = node.Name
			}
		}
		for _, pv := range list[*v1.PersistentVolume](s.store) {
			if c.Capacity != nil && pv.Spec.StorageClassName == c.StorageClassName && isTiedTo(pv, model.Name) {
				c.Capacity.Add(pv.Spec.Capacity[v1.ResourceStorage])
			}
		}
		if c.MaximumVolumeSize != nil && c.Capacity != nil {
			c.MaximumVolumeSize = ptr.To(c.Capacity.DeepCopy())
		}
		_ = s.store.create(c) // a node that is new has none
	}
}

// isTiedTo reports whether a volume can be on one node only.
func isTiedTo(pv *v1.PersistentVolume, node string) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	return slices.ContainsFunc(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, func(term v1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(r v1.NodeSelectorRequirement) bool {
			return slices.Equal(r.Values, []string{node})
		})
	})
}
