package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// watchHistory watches the labelled pods of all phases until ctx ends. The scheduler's own informer
// leaves out finished pods, which the status of PodGroups and the quorum of a gang with completed
// members need. Only the leader runs it.
func (s *Shared) watchHistory(ctx context.Context, client clientset.Interface) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.PodGroupLabel }),
		informers.WithTransform(trimmed))
	handler, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.factSeen,
		UpdateFunc: updates(s.factSeen, s.factGone),
		DeleteFunc: s.factGone,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Finished members cannot be watched")
		return
	}
	s.mu.Lock()
	s.historySynced = handler.HasSynced
	s.mu.Unlock()
	factory.StartWithContext(ctx)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			s.enqueueAll() // what could not be said before
		}
	}()
}

// trimmed keeps of a pod what this watch needs.
func trimmed(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func (s *Shared) factSeen(obj any) {
	pod, ok := object[*v1.Pod](obj)
	if !ok {
		return
	}
	key, ok := gangOf(pod)
	if !ok {
		return
	}
	s.change(key, func(e *entry, now time.Time) {
		if f := factOf(pod); e.facts[pod.UID] != f {
			e.facts[pod.UID] = f
			e.countDone(now)
		}
	})
	s.statusQueue.AddAfter(key, statusPause)
}

func (s *Shared) factGone(obj any) {
	pod, ok := object[*v1.Pod](obj)
	if !ok {
		return
	}
	key, ok := gangOf(pod)
	if !ok {
		return
	}
	s.change(key, func(e *entry, now time.Time) {
		delete(e.facts, pod.UID)
		e.countDone(now)
	})
	s.statusQueue.AddAfter(key, statusPause)
}

// countDone brings the gang's finished members in line with the facts.
func (e *entry) countDone(now time.Time) {
	done := map[types.UID]bool{}
	for _, uid := range doneMembers(e.facts) {
		done[uid] = true
		e.done[uid] = true
		e.gang.SetDone(uid, now)
	}
	for uid := range e.done {
		if !done[uid] {
			delete(e.done, uid)
			e.gang.DeleteDone(uid, now)
		}
	}
}
