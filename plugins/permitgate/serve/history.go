package serve

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// watchHistory watches the labelled pods of all phases until ctx ends. The scheduler's own informer
// leaves out finished pods, which the status of PodGroups and the quorum of a gang with completed
// members need.
func (s *Server) watchHistory(ctx context.Context, client clientset.Interface) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.PodGroupLabel }),
		informers.WithTransform(trimmed))
	handler, err := factory.Core().V1().Pods().Informer().AddEventHandler(informer.Funcs[*v1.Pod]{
		Add: func(pod *v1.Pod, _ bool) { s.factSeen(pod) },
		Update: func(was, is *v1.Pod) {
			before, _ := podgroup.Of(was)
			if after, _ := podgroup.Of(is); before != after {
				s.factGone(was)
			}
			s.factSeen(is)
		},
		Delete: s.factGone,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Finished members cannot be watched")
		return
	}
	s.mu.Lock()
	s.read = handler.HasSynced
	s.mu.Unlock()
	factory.StartWithContext(ctx)
	go func() {
		if toolscache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			for _, key := range s.Gangs.Keys() {
				s.agenda.Add(job{jobEvents, key}) // what waited for the first list
			}
		}
	}()
}

// historyRead reports whether finished members are known.
func (s *Server) historyRead() bool {
	s.mu.Lock()
	read := s.read
	s.mu.Unlock()
	return read != nil && read()
}

// trimmed keeps the parts of a pod that this watch needs.
func trimmed(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	status := v1.PodStatus{Phase: pod.Status.Phase}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled {
			status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil {
			status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: ended.FinishedAt}},
			})
		}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: status,
	}, nil
}

func (s *Server) factSeen(pod *v1.Pod) {
	if key, ok := podgroup.Of(pod); ok {
		s.factChanged(key, func(fs *facts) (begin, end []types.UID) { return fs.set(pod.UID, factOf(pod)) })
	}
}

func (s *Server) factGone(pod *v1.Pod) {
	if key, ok := podgroup.Of(pod); ok {
		s.factChanged(key, func(fs *facts) (begin, end []types.UID) { return nil, fs.delete(pod.UID) })
	}
}

// factChanged updates the facts of a gang's pods; the informer calls it for one pod at a time.
func (s *Server) factChanged(key types.NamespacedName, change func(fs *facts) (begin, end []types.UID)) {
	s.mu.Lock()
	fs := s.facts[key]
	if fs == nil {
		fs = newFacts()
		s.facts[key] = fs
	}
	begin, end := change(fs)
	if len(fs.of) == 0 {
		delete(s.facts, key)
	}
	group := types.UID("")
	if t := s.sent[key]; t != nil {
		group = t.group
	}
	s.mu.Unlock()
	if len(begin)+len(end) > 0 {
		s.Gangs.Done(key, begin, end)
	}
	if group != "" && s.writer != nil {
		s.writer.Later(key.Namespace, group, statusPause)
	}
}
