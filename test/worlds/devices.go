package worlds

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Device is how the pods of a workload ask for a device.
type Device string

// Ways of asking for a device.
const (
	OwnClaim      Device = "own"      // each pod names a ResourceClaim of its own
	TemplateClaim Device = "template" // a ResourceClaim is made for each pod
	SharedClaim   Device = "shared"   // all pods name the same ResourceClaim
	AbsentClaim   Device = "absent"   // the pods name a ResourceClaim that does not exist
)

// deviceDriver is the name of the driver of all devices, and of their class.
const deviceDriver = "worlds.zonewise.dev"

var (
	sliceResource = resourcev1.SchemeGroupVersion.WithResource("resourceslices")
	claimResource = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
)

// addDeviceClass makes the class of all devices.
func (p *player) addDeviceClass() {
	p.put(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: deviceDriver, UID: "class"}}, false)
}

// addDevices publishes the devices of a node that comes, as its driver does.
func (p *player) addDevices(n *Node) {
	if n.Devices == 0 {
		return
	}
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID("slice-" + n.Name)},
		Spec: resourcev1.ResourceSliceSpec{
			NodeName: &n.Name, Driver: deviceDriver, Pool: resourcev1.ResourcePool{Name: n.Name, ResourceSliceCount: 1},
		},
	}
	for i := range n.Devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	p.put(slice, false)
}

// removeDevices takes the devices of a node away with it.
func (p *player) removeDevices(n *Node) {
	if n.Devices == 0 {
		return
	}
	if err := p.server.Client.Tracker().Delete(sliceResource, "", n.Name); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// askForDevice adds a claim to a pod of the workload.
func (w *workload) askForDevice(pod *v1.Pod) {
	if w.Device == "" {
		return
	}
	asked := v1.PodResourceClaim{Name: "device"}
	switch w.Device {
	case OwnClaim:
		asked.ResourceClaimName = &pod.Name
	case TemplateClaim:
		asked.ResourceClaimTemplateName = &w.Name
	default:
		asked.ResourceClaimName = &w.Name
	}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{asked}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "device"}}
}

// addClaim makes a ResourceClaim for one device, unless there is one of this name. One that is made for a pod belongs
// to it.
func (p *player) addClaim(name string, owner *v1.Pod) {
	p.created++
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID(fmt.Sprintf("%s-claim%d", name, p.created))},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name:    "device",
			Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: deviceDriver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	}
	if owner != nil {
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}}
	}
	_, err := p.server.Client.ResourceV1().ResourceClaims(claim.Namespace).Create(context.Background(), claim, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// addClaimsFor makes the claims that a user of the workload makes before a pod.
func (p *player) addClaimsFor(w *workload, pod string) {
	switch w.Device {
	case OwnClaim:
		p.addClaim(pod, nil)
	case SharedClaim:
		p.addClaim(w.Name, nil)
	}
}

// listClaims returns all ResourceClaims.
func (p *player) listClaims() []resourcev1.ResourceClaim {
	o, err := p.server.Client.Tracker().List(claimResource, resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), metav1.NamespaceAll)
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
	return o.(*resourcev1.ResourceClaimList).Items
}

// claimName returns the name of a pod's ResourceClaim, "" if it has none or none yet.
func claimName(pod *v1.Pod) string {
	for _, asked := range pod.Spec.ResourceClaims {
		if asked.ResourceClaimName != nil {
			return *asked.ResourceClaimName
		}
	}
	for _, made := range pod.Status.ResourceClaimStatuses {
		return *made.ResourceClaimName
	}
	return ""
}

// deviceOf returns the node and the name of the device that a claim has been allocated, "" without one.
func deviceOf(claim *resourcev1.ResourceClaim) (node, device string) {
	if claim.Status.Allocation == nil {
		return "", ""
	}
	result := claim.Status.Allocation.Devices.Results[0]
	return result.Pool, result.Device
}

// keepClaims is the controller of ResourceClaims: it makes those of templates, releases devices whose pods are gone,
// and deletes claims whose owner is gone. It reports whether it has done anything.
func (p *player) keepClaims() (acted bool) {
	claims, pods := map[string]*resourcev1.ResourceClaim{}, map[types.UID]*v1.Pod{}
	for _, claim := range p.listClaims() {
		claims[claim.Name] = &claim
	}
	for _, pod := range p.listPods() {
		pods[pod.UID] = &pod
		if w := p.workloads[pod.Labels[workloadLabel]]; w != nil && w.Device == TemplateClaim && pod.DeletionTimestamp == nil && !finished(&pod) && claims[claimName(&pod)] == nil {
			p.makeClaim(&pod)
			acted = true
		}
	}
	for _, claim := range claims {
		inUse := slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(user resourcev1.ResourceClaimConsumerReference) bool {
			return pods[user.UID] == nil || finished(pods[user.UID])
		})
		orphan := len(claim.OwnerReferences) > 0 && pods[claim.OwnerReferences[0].UID] == nil
		switch {
		case len(inUse) < len(claim.Status.ReservedFor):
			claim.Status.ReservedFor = inUse
			if len(inUse) == 0 {
				claim.Status.Allocation = nil
			}
			_, err := p.server.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(context.Background(), claim, metav1.UpdateOptions{})
			if err != nil && !apierrors.IsConflict(err) { // then it is looked at once more
				panic(fmt.Sprintf("worlds: %v", err))
			}
			acted = true
		case orphan:
			p.deleteClaim(claim.Name)
			acted = true
		}
	}
	return acted
}

// makeClaim makes the claim of a pod's template, and tells the pod its name.
func (p *player) makeClaim(pod *v1.Pod) {
	p.created++
	name := fmt.Sprintf("%s-device-%d", pod.Name, p.created)
	p.addClaim(name, pod)
	err := p.server.EditPod(pod.Namespace, pod.Name, func(pod *v1.Pod) {
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "device", ResourceClaimName: &name}}
	})
	if err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

func (p *player) deleteClaim(name string) {
	if err := p.server.Client.Tracker().Delete(claimResource, metav1.NamespaceDefault, name); err != nil {
		panic(fmt.Sprintf("worlds: %v", err))
	}
}

// dropClaim deletes the claim of a pod that waits, unless the claim has a device: the API server keeps it then.
func (p *player) dropClaim(pod *v1.Pod) {
	if pod == nil || pod.Spec.NodeName != "" {
		return
	}
	for _, claim := range p.listClaims() {
		if claim.Name == claimName(pod) && claim.Status.Allocation == nil {
			p.changed()
			p.deleteClaim(claim.Name)
			return
		}
	}
}

// givenBackAfter is how long a gang that waits may leave devices allocated that no pod is to use.
const givenBackAfter = time.Minute

// move is that a claim has been allocated on another node than before.
type move struct{ from, to string }

func (p *player) noteMove(claim, node string) {
	if m := p.devicesMoved[claim]; m.to != node {
		p.devicesMoved[claim] = move{m.to, node}
	}
}

// checkDevices: no device is allocated twice, each pod that is bound has its device on its node, and a gang that waits
// keeps none from others.
//
// kube-scheduler binds a pod elsewhere whose shared claim is given up by its last users, and allocated for another pod,
// while it is being prepared: when its update of the claim has met a conflict, it reserves what it then reads
// (bindClaim).
func (p *player) checkDevices(c *view) {
	users := map[string]string{}
	for _, claim := range c.claims {
		node, device := deviceOf(claim)
		if device == "" {
			continue
		}
		p.noteMove(claim.Name, node)
		key := node + "/" + device
		if other, used := users[key]; used {
			p.fail(DevicesAreUsedOnce, "device %s of node %s is allocated to ResourceClaims %s and %s", device, node, other, claim.Name)
		}
		users[key] = claim.Name
	}
	left := map[string]time.Time{}
	for i := range c.pods {
		pod := &c.pods[i]
		w, claim := p.workloads[pod.Labels[workloadLabel]], c.claims[claimName(pod)]
		if w == nil || w.Device == "" || pod.DeletionTimestamp != nil || finished(pod) {
			continue
		}
		if pod.Spec.NodeName != "" {
			node := ""
			if claim != nil {
				node, _ = deviceOf(claim)
			}
			switch {
			case claim == nil || !slices.ContainsFunc(claim.Status.ReservedFor, func(user resourcev1.ResourceClaimConsumerReference) bool { return user.UID == pod.UID }):
				p.fail(DevicesAreUsedOnce, "pod %s is bound, and its device is not reserved for it", pod.Name)
			case node == pod.Spec.NodeName:
			case w.Device == SharedClaim && p.devicesMoved[claim.Name].from == pod.Spec.NodeName:
				p.reservesElsewhere = true
			default:
				p.fail(DevicesAreUsedOnce, "pod %s is bound to %s, and its device is of node %q", pod.Name, pod.Spec.NodeName, node)
			}
			continue
		}
		_, given := c.given[pod.UID]
		if !w.gang() || w.disturbed || w.Device == SharedClaim || given || claim == nil || claim.Status.Allocation == nil || len(claim.Status.ReservedFor) > 0 || c.boundOf(w) > 0 {
			continue
		}
		left[claim.Name] = p.leftDevices[claim.Name]
		if left[claim.Name].IsZero() {
			left[claim.Name] = time.Now()
		}
		if lasts := time.Since(left[claim.Name]); lasts > givenBackAfter {
			p.fail(DevicesAreGivenBack, "gang %s waits, and the device of %s has been allocated for %v", w.Name, pod.Name, lasts)
		}
	}
	p.leftDevices = left
}
