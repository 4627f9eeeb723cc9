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

// The kinds of claims.
const (
	volumeClaim = "PersistentVolumeClaim"
	deviceClaim = "ResourceClaim"
)

// noProvisioner is the provisioner of storage classes whose volumes exist already.
const noProvisioner = "kubernetes.io/no-provisioner"

// claims finds claims that members of a gang wait for: those that do not exist, and those for which members would wait
// for each other. A scheduling cycle of a member whose claim does not exist ends before it reaches this plugin, or
// another plugin keeps it out of the queue. Its methods may be called from several goroutines.
type claims struct {
	volumes corelisters.PersistentVolumeClaimLister
	classes storagelisters.StorageClassLister
	// devices and allocated are nil without dynamic resource allocation.
	devices   resourcelisters.ResourceClaimLister
	allocated fwk.SharedDRAManager
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
	c := &claims{volumes: factory.Core().V1().PersistentVolumeClaims().Lister(), classes: factory.Storage().V1().StorageClasses().Lister(), allocated: h.SharedDRAManager()}
	if c.allocated != nil { // otherwise kube-scheduler does not watch them
		c.devices = factory.Resource().V1().ResourceClaims().Lister()
	}
	return c
}

// sharedBy describes a claim that pods share and that only one of them can have before it is bound, or returns an empty
// string: a claim that is allocated, or a volume that is provisioned, just before the first pod that uses it is bound.
// Until then the scheduler refuses every other pod that uses it, so members would wait for each other for ever. Objects
// that cannot be read are left to the scheduler's filters.
func (c *claims) sharedBy(pods []*v1.Pod) string {
	users := map[claimRef]int{}
	for _, pod := range pods {
		for _, ref := range claimsOf(pod) {
			users[ref]++
			if ref.name == "" || users[ref] != 2 {
				continue
			}
			if done := c.doneForFirstUser(ref); done != "" {
				return fmt.Sprintf("members share %s, %s only when the first of them is bound; until then no other member can be scheduled", ref, done)
			}
		}
	}
	return ""
}

// doneForFirstUser says what happens to a claim when the first pod that uses it is about to be bound; empty if nothing.
func (c *claims) doneForFirstUser(ref claimRef) string {
	if ref.kind == deviceClaim {
		if c.allocated == nil {
			return ""
		}
		if claim, err := c.allocated.ResourceClaims().Get(ref.namespace, ref.name); err == nil && claim.Status.Allocation == nil {
			return "which is allocated"
		}
		return ""
	}
	claim, err := c.volumes.PersistentVolumeClaims(ref.namespace).Get(ref.name)
	if err != nil || claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil {
		return ""
	}
	class, err := c.classes.Get(*claim.Spec.StorageClassName)
	if err == nil && class.Provisioner != noProvisioner &&
		class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		return "whose volume is provisioned"
	}
	return ""
}

// watch calls created with each claim that comes to exist. It returns functions that report whether the first lists
// have been seen.
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
