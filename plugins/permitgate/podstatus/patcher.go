package serve

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
)

// patchers is how many pods of a gang are written at a time.
const patchers = 8

// patcher writes the status of pods, with its own rate limit of the same size as the scheduler's, so that neither waits for
// the other. Its methods may be called from several goroutines.
type patcher struct {
	client clientset.Interface
	cacher fwk.APICacher // nil unless kube-scheduler makes its calls by it
}

func newPatcher(h fwk.Handle) *patcher {
	p := &patcher{client: h.ClientSet(), cacher: h.APICacher()}
	if config := h.KubeConfig(); config != nil {
		config = rest.CopyConfig(config)
		config.RateLimiter = nil
		if own, err := clientset.NewForConfig(config); err == nil {
			p.client = own
		}
	}
	return p
}

// condition gives a pod a condition.
func (p *patcher) condition(ctx context.Context, pod *v1.Pod, c *v1.PodCondition) error {
	if p.cacher != nil {
		done, err := upstream.PatchPodCondition(p.cacher, pod, c)
		if err != nil {
			return err
		}
		return p.cacher.WaitOnFinish(ctx, done)
	}
	return p.patch(ctx, pod, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []*v1.PodCondition{c}},
	})
}

// nomination sets the nominated node of a pod, or clears it if node is empty. The patch names the pod's version, so that a
// nomination of a later attempt is not lost.
func (p *patcher) nomination(ctx context.Context, pod *v1.Pod, node string) error {
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
func (p *patcher) patch(ctx context.Context, pod *v1.Pod, kind types.PatchType, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = p.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, data, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// forAll calls f for each item, several at a time, and returns the first error.
func forAll[T any](list []T, f func(T) error) error {
	var group errgroup.Group
	group.SetLimit(patchers)
	for _, one := range list {
		group.Go(func() error { return f(one) })
	}
	return group.Wait()
}
