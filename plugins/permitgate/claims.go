package permitgate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/informer"
)

// An unallocated ResourceClaim is allocated, and a volume that waits for its first consumer is provisioned, just before
// the first pod that uses it is bound. Until then the scheduler refuses every other pod that uses it, so members that
// share one would wait for each other for ever.

// The kinds of claims.
const (
	volumeClaim = "PersistentVolumeClaim"
	deviceClaim = "ResourceClaim"
)

// noProvisioner is the provisioner of storage classes whose volumes exist already.
const noProvisioner = "kubernetes.io/no-provisioner"

// sharedClaims finds claims and volumes for which members of a gang would wait for each other. Its methods may be
// called from several goroutines.
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

// among describes a claim or volume that pods share and that only one of them can have before it is bound, or returns
// an empty string. Objects that cannot be read are left to the scheduler's filters.
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

// claims knows which claims of members do not exist. A scheduling cycle of such a member ends before it reaches this
// plugin, or another plugin keeps it out of the queue.
type claims struct {
	volumes corelisters.PersistentVolumeClaimLister
	devices resourcelisters.ResourceClaimLister // nil without dynamic resource allocation
}

// claimRef names a PersistentVolumeClaim or a ResourceClaim. One that is to be made for a pod, and has not been, has no
// name; the pod changes when it has been.
type claimRef struct{ kind, namespace, name string }

// String describes the claim of a pod.
func (r claimRef) String() string {
	if r.name == "" {
		return r.kind + " that is made for it"
	}
	return r.kind + " " + r.name
}

func newClaims(h fwk.Handle) *claims {
	factory := h.SharedInformerFactory()
	c := &claims{volumes: factory.Core().V1().PersistentVolumeClaims().Lister()}
	if h.SharedDRAManager() != nil { // otherwise kube-scheduler does not watch them
		c.devices = factory.Resource().V1().ResourceClaims().Lister()
	}
	return c
}

// watch calls created with each claim that comes to exist. It returns functions that report whether the first lists have
// been seen.
func (c *claims) watch(factory informers.SharedInformerFactory, created func(claimRef)) ([]toolscache.InformerSynced, error) {
	volumes, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(informer.Funcs[*v1.PersistentVolumeClaim]{
		Add: func(pvc *v1.PersistentVolumeClaim, _ bool) { created(claimRef{volumeClaim, pvc.Namespace, pvc.Name}) },
	})
	if err != nil || c.devices == nil {
		return []toolscache.InformerSynced{volumes.HasSynced}, err
	}
	devices, err := factory.Resource().V1().ResourceClaims().Informer().AddEventHandler(informer.Funcs[*resourcev1.ResourceClaim]{
		Add: func(rc *resourcev1.ResourceClaim, _ bool) { created(claimRef{deviceClaim, rc.Namespace, rc.Name}) },
	})
	return []toolscache.InformerSynced{volumes.HasSynced, devices.HasSynced}, err
}

// absentOf returns a claim of a member without a node that does not exist; zero if all do.
func (c *claims) absentOf(pod *v1.Pod) claimRef {
	if pod.Spec.NodeName != "" {
		return claimRef{}
	}
	for _, ref := range claimsOf(pod) {
		if ref.name == "" || !c.exists(ref) {
			return ref
		}
	}
	return claimRef{}
}

func (c *claims) exists(ref claimRef) bool {
	var err error
	if ref.kind == volumeClaim {
		_, err = c.volumes.PersistentVolumeClaims(ref.namespace).Get(ref.name)
	} else if c.devices != nil {
		_, err = c.devices.ResourceClaims(ref.namespace).Get(ref.name)
	}
	return err == nil
}

// claimsOf lists the claims of a pod.
func claimsOf(pod *v1.Pod) (all []claimRef) {
	for i := range pod.Spec.Volumes {
		source := &pod.Spec.Volumes[i]
		switch {
		case source.PersistentVolumeClaim != nil:
			all = append(all, claimRef{volumeClaim, pod.Namespace, source.PersistentVolumeClaim.ClaimName})
		case source.Ephemeral != nil:
			all = append(all, claimRef{volumeClaim, pod.Namespace, pod.Name + "-" + source.Name})
		}
	}
	for i := range pod.Spec.ResourceClaims {
		asked := &pod.Spec.ResourceClaims[i]
		if asked.ResourceClaimName != nil {
			all = append(all, claimRef{deviceClaim, pod.Namespace, *asked.ResourceClaimName})
			continue
		}
		made := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s v1.PodResourceClaimStatus) bool { return s.Name == asked.Name })
		switch {
		case made < 0:
			all = append(all, claimRef{kind: deviceClaim})
		case pod.Status.ResourceClaimStatuses[made].ResourceClaimName != nil: // nil means that none is needed
			all = append(all, claimRef{deviceClaim, pod.Namespace, *pod.Status.ResourceClaimStatuses[made].ResourceClaimName})
		}
	}
	return all
}
