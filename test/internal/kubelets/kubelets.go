// Package kubelets does for bound pods what the kubelets of a cluster do.
package kubelets

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

type kubelets struct {
	kube  kubernetes.Interface
	pods  cache.Indexer
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run reports bound pods running and ready, and finishes their deletion, until ctx ends. It returns once the pods are
// listed.
func Run(ctx context.Context, kube kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(kube, 0)
	informer := factory.Core().V1().Pods().Informer()
	k := &kubelets{
		kube: kube,
		pods: informer.GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, time.Second)),
	}
	enqueue := func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			k.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the pods were not listed in time")
	}
	context.AfterFunc(ctx, k.queue.ShutDown)
	for range 4 {
		go k.work(ctx)
	}
	return nil
}

func (k *kubelets) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.sync(ctx, name); err != nil && ctx.Err() == nil {
			k.queue.AddRateLimited(name)
		} else {
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

func (k *kubelets) sync(ctx context.Context, name cache.ObjectName) error {
	obj, ok, err := k.pods.GetByKey(name.String())
	if err != nil || !ok {
		return err
	}
	pod := obj.(*v1.Pod)
	switch {
	case pod.DeletionTimestamp != nil:
		err = k.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0),
			Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase == v1.PodPending:
		running := pod.DeepCopy()
		running.Status.Phase = v1.PodRunning
		running.Status.Conditions = append(running.Status.Conditions,
			v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()})
		_, err = k.kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, running, metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the informer brings what has changed
	}
	return err
}
