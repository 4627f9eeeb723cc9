package permitgate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/plugins/permitgate/gang"
)

// watchCluster feeds pods and nodes to the gangs. The handlers run beside the scheduler's own, before
// or after them: whatever depends on the scheduler's view is tried again by its hints.
func (s *Shared) watchCluster(factory informers.SharedInformerFactory) error {
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(toolscache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			pod, ok := object[*v1.Pod](obj)
			if !ok {
				return false
			}
			_, ok = gangOf(pod)
			return ok
		},
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    s.podAdded,
			UpdateFunc: updates(s.podSeen, s.podGone),
			DeleteFunc: s.podGone,
		},
	})
	if err != nil {
		return err
	}
	// Any pod that leaves a node, and any change of a node, may make the room that a gang waits for.
	_, err = pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if pod, ok := object[*v1.Pod](obj); ok && pod.Spec.NodeName != "" {
				s.roomMade()
			}
		},
	})
	if err != nil {
		return err
	}
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.roomMade() },
		UpdateFunc: func(before, after any) {
			was, ok1 := object[*v1.Node](before)
			is, ok2 := object[*v1.Node](after)
			if ok1 && ok2 && nodeMayFitMore(was, is) {
				s.roomMade()
			}
		},
	})
	return err
}

// object returns the object of an event, also of a deletion whose last state is not known for sure.
func object[T any](obj any) (T, bool) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	t, ok := obj.(T)
	return t, ok
}

// nodeMayFitMore reports whether the change of a node may let a pod fit that did not before.
func nodeMayFitMore(was, is *v1.Node) bool {
	return !apiequality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable) ||
		!apiequality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!apiequality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) ||
		was.Spec.Unschedulable != is.Spec.Unschedulable
}

// roomMade tells the gangs that back off.
func (s *Shared) roomMade() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for key, e := range s.gangs {
		e.exclusions.roomMade(now)
		switch e.gang.Phase() {
		case gang.Gathering, gang.Waiting, gang.Backoff:
			e.gang.Room(now)
			s.settledLocked(e)
			s.queue.Add(key)
		case gang.Pending, gang.Releasing, gang.Whole:
		}
	}
}

// podAdded takes a pod that is new, or that was there before this process: its nomination is then the work of
// another.
func (s *Shared) podAdded(obj any, isInInitialList bool) {
	s.podSeen(obj)
	pod, ok := object[*v1.Pod](obj)
	if !ok || !isInInitialList || pod.Status.NominatedNodeName == "" {
		return
	}
	if key, ok := gangOf(pod); ok {
		s.look(key, func(e *entry, _ time.Time) {
			e.gang.Inherit(pod.UID)
			s.checkNominationLocked(e, pod.UID)
		})
	}
}

// podSeen takes a pod as the API server shows it. The informer leaves out finished pods.
func (s *Shared) podSeen(obj any) {
	pod, ok := object[*v1.Pod](obj)
	if !ok {
		return
	}
	key, ok := gangOf(pod)
	if !ok {
		return
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		s.podGone(pod)
		return
	}
	s.change(key, func(e *entry, now time.Time) {
		_, ours := s.profiles[pod.Spec.SchedulerName]
		e.pods[pod.UID] = pod
		e.mixed.stale, e.needs = true, nil
		e.gang.SetPod(pod.UID, gang.Pod{
			Bound: pod.Spec.NodeName != "",
			Held:  len(pod.Spec.SchedulingGates) > 0 || !ours,
		}, now)
		s.checkNominationLocked(e, pod.UID)
	})
}

// updates returns a handler of updates that are seen, or hide a deletion (another pod of the name) or a move to
// another gang: gone comes first then.
func updates(seen, gone func(obj any)) func(before, after any) {
	return func(before, after any) {
		was, ok1 := object[*v1.Pod](before)
		is, ok2 := object[*v1.Pod](after)
		if !ok1 || !ok2 {
			return
		}
		oldKey, _ := gangOf(was)
		newKey, _ := gangOf(is)
		if oldKey != newKey || was.UID != is.UID {
			gone(was)
		}
		seen(is)
	}
}

func (s *Shared) podGone(obj any) {
	pod, ok := object[*v1.Pod](obj)
	if !ok {
		return
	}
	key, ok := gangOf(pod)
	if !ok {
		return
	}
	if known := s.look(key, func(*entry, time.Time) {}); !known {
		return // a pod that was terminating when it was first seen
	}
	s.change(key, func(e *entry, now time.Time) {
		delete(e.pods, pod.UID)
		delete(e.signatures, pod.UID)
		e.mixed.stale, e.needs = true, nil
		delete(e.nodes, pod.UID)
		delete(e.told.pods, pod.UID)
		e.gang.DeletePod(pod.UID, now)
	})
}

// keyOf returns the key of a namespaced object.
func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
