// Package podstatus writes conditions and nominations of pods.
package podstatus

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"
)

// Patcher writes the status of pods. Its methods may be called from several goroutines.
type Patcher struct {
	Client clientset.Interface
}

// New returns a patcher with its own rate limit of the same size as the scheduler's, so that neither waits for the
// other.
func New(h fwk.Handle) *Patcher {
	p := &Patcher{Client: h.ClientSet()}
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
