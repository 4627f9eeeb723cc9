package serve

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// gangIndex indexes pods by their gang.
const gangIndex = "gang"

// watchPods watches the labelled pods of all phases until ctx ends. The scheduler's own informer leaves out finished
// pods, which the status of PodGroups and the quorum of a gang with completed members need.
func (s *Server) watchPods(ctx context.Context, client clientset.Interface) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.PodGroupLabel }),
		informers.WithTransform(trimmed))
	pods := factory.Core().V1().Pods().Informer()
	err := pods.AddIndexers(toolscache.Indexers{gangIndex: func(obj any) ([]string, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return nil, nil
		}
		id, ok := podgroup.Of(pod)
		if !ok {
			return nil, nil
		}
		return []string{id.String()}, nil
	}})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Finished members cannot be watched")
		return
	}
	handler, err := pods.AddEventHandler(informer.Funcs[*v1.Pod]{
		Add: func(pod *v1.Pod, _ bool) { s.podChanged(pod) },
		Update: func(before, after *v1.Pod) {
			s.podChanged(before) // it may have been another gang's
			s.podChanged(after)
		},
		Delete: s.podChanged,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Finished members cannot be watched")
		return
	}
	s.mu.Lock()
	s.pods, s.podsRead = pods.GetIndexer(), handler.HasSynced
	s.mu.Unlock()
	factory.StartWithContext(ctx)
	go func() {
		if toolscache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
			for _, id := range s.Gangs.IDs() {
				s.agenda.Add(job{kind: jobEvents, gang: id}) // what waited for the first list
			}
		}
	}()
}

// finishedRead reports whether finished members are known.
func (s *Server) finishedRead() bool {
	s.mu.Lock()
	read := s.podsRead
	s.mu.Unlock()
	return read != nil && read()
}

// podsOf lists the pods of a gang, of all phases. They must not be modified.
func (s *Server) podsOf(id podgroup.ID) (pods []*v1.Pod) {
	s.mu.Lock()
	indexer := s.pods
	s.mu.Unlock()
	if indexer == nil {
		return nil
	}
	objects, _ := indexer.ByIndex(gangIndex, id.String()) // an index that is missing is the only error
	for _, obj := range objects {
		if pod, ok := obj.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// trimmed keeps the parts of a pod that this watch needs.
func trimmed(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

// podChanged has the pods of a gang counted again, at most twice a second.
func (s *Server) podChanged(pod *v1.Pod) {
	id, ok := podgroup.Of(pod)
	if !ok {
		return
	}
	s.agenda.AddAt(job{kind: jobSucceeded, gang: id}, s.Clock.Now().Add(statusPause))
	group := types.UID("")
	s.mu.Lock()
	if sent := s.sent[id]; sent != nil {
		group = sent.group
	}
	s.mu.Unlock()
	if group != "" && s.writer != nil {
		s.writer.Later(id.Namespace, group, statusPause)
	}
}

// succeeded returns the pods that have succeeded and count, if the quorum lacks members: those whose controller has
// live members in the gang. So a Job that loses a pod after another has completed can replace it. Pods of an earlier
// Job, which may stay for long, do not count.
func succeeded(members []*v1.Pod) sets.Set[types.UID] {
	controllers, counting := sets.New[types.UID](), sets.New[types.UID]()
	for _, pod := range members {
		if pods.Live(pod) {
			controllers.Insert(pods.ControllerUID(pod))
		}
	}
	for _, pod := range members {
		if owner := pods.ControllerUID(pod); pod.Status.Phase == v1.PodSucceeded && owner != "" && controllers.Has(owner) {
			counting.Insert(pod.UID)
		}
	}
	return counting
}

// podCounts counts the pods of a gang. A pod that is terminating and has not finished does not exist.
type podCounts struct {
	exist, live, bound, running, succeeded, failed int32
}

func countPods(members []*v1.Pod) (n podCounts) {
	for _, pod := range members {
		if !pods.Ended(pod) && !pods.Live(pod) {
			continue
		}
		n.exist++
		switch pod.Status.Phase {
		case v1.PodSucceeded:
			n.succeeded++
			n.bound++
		case v1.PodFailed:
			n.failed++
		default:
			n.live++
			if pod.Spec.NodeName != "" {
				n.bound++
			}
			if pod.Status.Phase == v1.PodRunning {
				n.running++
			}
		}
	}
	return n
}
