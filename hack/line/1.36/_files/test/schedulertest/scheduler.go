package schedulertest

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// NewInformerFactory makes the informers of a scheduler.
func NewInformerFactory(client clientset.Interface) informers.SharedInformerFactory {
	return scheduler.NewInformerFactory(client, 0)
}

// NewCache makes a scheduler's cache, without groups of pods.
func NewCache(ctx context.Context) cache.Cache { return cache.New(ctx, nil, false) }

// RemoveAssumedPod removes a pod from a cache that was deleted while it was assumed.
func RemoveAssumedPod(c cache.Cache, logger klog.Logger, pod *v1.Pod) error {
	return c.ForgetPod(logger, pod)
}
