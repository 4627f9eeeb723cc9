package permitgate

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// An unallocated ResourceClaim is allocated, and a volume that waits for its first consumer is provisioned, just before the
// first pod that uses it is bound. Until then the scheduler refuses every other pod that uses it, so members that share one
// would wait for each other for ever.

// noProvisioner is the provisioner of storage classes whose volumes exist already.
const noProvisioner = "kubernetes.io/no-provisioner"

// sharedClaims finds claims and volumes for which members of a gang would wait for each other. Its methods may be called from several goroutines.
type sharedClaims struct {
	volumes corelisters.PersistentVolumeClaimLister
	classes storagelisters.StorageClassLister
	devices fwk.SharedDRAManager // nil without dynamic resource allocation
}

func newSharedClaims(h fwk.Handle) *sharedClaims {
	factory := h.SharedInformerFactory()
	return &sharedClaims{
		volumes: factory.Core().V1().PersistentVolumeClaims().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		devices: h.SharedDRAManager(),
	}
}

// among describes a claim or volume that pods share and that only one of them can have before it is bound, or returns an
// empty string. Objects that cannot be read are left to the scheduler's filters.
func (c *sharedClaims) among(pods []*v1.Pod) string {
	users := map[string]int{}
	shared := func(kind, name string) bool {
		users[kind+name]++
		return users[kind+name] == 2
	}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			name := pod.Spec.ResourceClaims[i].ResourceClaimName
			if name != nil && c.devices != nil && shared("ResourceClaim ", *name) && c.unallocated(pod.Namespace, *name) {
				return fmt.Sprintf("members share ResourceClaim %s, which is allocated only when the first of them is bound; until then no other member can be scheduled", *name)
			}
		}
		for i := range pod.Spec.Volumes {
			source := pod.Spec.Volumes[i].PersistentVolumeClaim
			if source != nil && shared("PersistentVolumeClaim ", source.ClaimName) && c.unprovisioned(pod.Namespace, source.ClaimName) {
				return fmt.Sprintf("members share PersistentVolumeClaim %s, whose volume is provisioned only when the first of them is bound; until then no other member can be scheduled", source.ClaimName)
			}
		}
	}
	return ""
}

func (c *sharedClaims) unallocated(namespace, name string) bool {
	claim, err := c.devices.ResourceClaims().Get(namespace, name)
	return err == nil && claim.Status.Allocation == nil
}

func (c *sharedClaims) unprovisioned(namespace, name string) bool {
	claim, err := c.volumes.PersistentVolumeClaims(namespace).Get(name)
	if err != nil || claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil {
		return false
	}
	class, err := c.classes.Get(*claim.Spec.StorageClassName)
	return err == nil && class.Provisioner != noProvisioner &&
		class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
