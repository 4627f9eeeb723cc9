// Package podstatus writes conditions and nominations of pods.
package podstatus

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
)

// Patcher writes the status of pods and of their claims. Its methods may be called from several goroutines.
type Patcher struct {
	Client clientset.Interface
	claims resourcelisters.ResourceClaimLister // nil without dynamic resource allocation
}

// New returns a patcher with its own rate limit of the same size as the scheduler's, so that neither waits for the
// other.
func New(h fwk.Handle) *Patcher {
	p := &Patcher{Client: h.ClientSet()}
	if h.SharedDRAManager() != nil { // otherwise kube-scheduler does not watch them
		p.claims = h.SharedInformerFactory().Resource().V1().ResourceClaims().Lister()
	}
	if config := h.KubeConfig(); config != nil {
		config = rest.CopyConfig(config)
		config.RateLimiter = nil
		if own, err := clientset.NewForConfig(config); err == nil {
			p.Client = own
		}
	}
	return p
}

// Condition gives a pod a condition.
func (p *Patcher) Condition(ctx context.Context, pod *v1.Pod, c *v1.PodCondition) error {
	return p.patch(ctx, pod, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []*v1.PodCondition{c}},
	})
}

// Nomination sets the nominated node of a pod, or clears it if node is empty. The patch names the pod's version, so
// that a nomination of a later attempt is not lost.
func (p *Patcher) Nomination(ctx context.Context, pod *v1.Pod, node string) error {
	var nomination any // nil removes it
	if node != "" {
		nomination = node
	}
	return p.patch(ctx, pod, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"nominatedNodeName": nomination},
	})
}

// Allocated returns the ResourceClaims of a pod that have devices, as the scheduler's informer shows them.
func (p *Patcher) Allocated(pod *v1.Pod) (claims []*resourcev1.ResourceClaim) {
	if p.claims == nil {
		return nil
	}
	for _, name := range claimNames(pod) {
		claim, err := p.claims.ResourceClaims(pod.Namespace).Get(name)
		if err == nil && claim.Status.Allocation != nil { // a lister over memory has no error but that it is not there
			claims = append(claims, claim)
		}
	}
	return claims
}

// Deallocate takes back the devices of a claim, also if it is reserved for pods. An error is a conflict if it has changed
// since it was read. kube-scheduler does the same in DynamicResources' PostFilter when a cycle of the pod finds no node,
// but a pod that is kept out of the queue has none.
func (p *Patcher) Deallocate(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	claim = claim.DeepCopy()
	claim.Status.Allocation, claim.Status.Devices, claim.Status.ReservedFor = nil, nil, nil
	_, err := p.Client.ResourceV1().ResourceClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of ResourceClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// claimNames lists the ResourceClaims of a pod that exist.
func claimNames(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	return names
}

// patch patches a pod's status. It is not an error if the pod is gone.
func (p *Patcher) patch(ctx context.Context, pod *v1.Pod, kind types.PatchType, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = p.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, data, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
