package permitgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
)

const (
	// evictionsAtOnce is how many victims of a gang are evicted at the same time.
	evictionsAtOnce = 8
	// An eviction that failed is repeated after evictionRetry, then after twice as long each time, evictionTries times.
	evictionRetry    = 250 * time.Millisecond
	evictionRetryMax = 10 * time.Second
	evictionTries    = 6

	reasonPreempts  = "GangPreempts"
	reasonPreempted = "Preempted"
)

func newEvictionQueue() workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](evictionRetry, evictionRetryMax))
}

// watchVictims listens for pods that leave their nodes.
func (s *Shared) watchVictims(factory informers.SharedInformerFactory) error {
	s.budgets = factory.Policy().V1().PodDisruptionBudgets().Lister()
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if pod, ok := object[*v1.Pod](obj); ok && pod.Spec.NodeName != "" {
				s.victimGone(pod.UID)
			}
		},
	})
	return err
}

// evictVictims evicts whom gangs preempt until its queue is shut down. Only the leader runs it.
func (s *Shared) evictVictims(ctx context.Context, client clientset.Interface) {
	logger := klog.FromContext(ctx)
	for {
		key, shutdown := s.evictions.Get()
		if shutdown {
			return
		}
		switch err := s.evictFor(ctx, client, key); {
		case err == nil:
			s.evictions.Forget(key)
		case ctx.Err() != nil:
		case isFinal(err) || s.evictions.NumRequeues(key) >= evictionTries:
			logger.Error(err, "A gang gives up the room that it has preempted: a victim could not be evicted", "podGroup", key)
			s.evictions.Forget(key)
			s.change(key, func(e *entry, now time.Time) {
				if e.preempting != nil {
					e.preemptAfter = now.Add(s.args.MaxBackoff.Duration)
					s.giveBackLocked(e)
				}
			})
		default:
			logger.Info("A victim could not be evicted; will try again", "podGroup", key, "err", err)
			s.evictions.AddRateLimited(key)
		}
		s.evictions.Done(key)
	}
}

// isFinal reports whether the API server refuses a request and will refuse it again.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code != http.StatusConflict
}

// preempts reports whether the gang still goes for this preemption: nothing has happened that makes it vain.
func (e *entry) preempts(pr *preemption) bool {
	if e.preempting != pr || pr.given || e.gang.MinMember() != pr.minMember {
		return false
	}
	return e.gang.Phase() == gang.Backoff || e.gang.Phase() == gang.Gathering
}

// evictFor evicts the victims of a gang that are left, and returns the first error.
func (s *Shared) evictFor(ctx context.Context, client clientset.Interface, key types.NamespacedName) error {
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	var (
		pr   *preemption
		todo []int
		note message
	)
	s.look(key, func(e *entry, _ time.Time) {
		if pr = e.preempting; pr == nil || !e.preempts(pr) {
			return
		}
		for i := range pr.victims {
			if !pr.victims[i].done {
				todo = append(todo, i)
			}
		}
		note = s.preemptionNoteLocked(e, pr)
	})
	if len(todo) == 0 {
		return nil
	}
	var (
		mu    sync.Mutex // guards first
		first error
		wg    sync.WaitGroup
	)
	next := make(chan int)
	for range min(evictionsAtOnce, len(todo)) {
		wg.Go(func() {
			for i := range next {
				err := s.evictVictim(ctx, client, key, pr, i)
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	for _, i := range todo {
		mu.Lock()
		failed := first != nil
		mu.Unlock()
		if failed {
			break // whoever is left may be spared
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if first == nil && note.recorder != nil {
		note.send(logger)
	}
	return first
}

// preemptionNoteLocked is the event that tells of a preemption on the PodGroup; its recorder is nil without one.
func (s *Shared) preemptionNoteLocked(e *entry, pr *preemption) message {
	profile := ""
	for name := range s.profiles {
		if profile == "" || name < profile {
			profile = name
		}
	}
	h := s.profiles[profile]
	if h == nil || h.EventRecorder() == nil || e.told.group == "" || len(pr.victims) == 0 {
		return message{}
	}
	return message{h.EventRecorder(), e.reference(), v1.EventTypeNormal, reasonPreempts, "PodGroup " + e.key.String() + ": " + pr.summary}
}

// evictVictim evicts one victim, if the gang still has use for that.
func (s *Shared) evictVictim(ctx context.Context, client clientset.Interface, key types.NamespacedName, pr *preemption, i int) error {
	wanted := false
	s.look(key, func(e *entry, _ time.Time) { wanted = e.preempts(pr) })
	if !wanted {
		return nil
	}
	v := pr.victims[i] // pod and node do not change
	logger := klog.FromContext(ctx).WithValues("podGroup", key, "victim", klog.KObj(v.pod), "node", v.node)
	switch err := s.endPod(ctx, client, v.pod, key); {
	case err == nil:
		preemptedPods.Inc()
		logger.V(2).Info("Preempted a pod for a gang")
		if recorder := s.anyHandle().EventRecorder(); recorder != nil {
			message{recorder, v.pod, v1.EventTypeNormal, reasonPreempted, fmt.Sprintf("Preempted by PodGroup %s on node %s", key, v.node)}.send(logger)
		}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		logger.V(2).Info("The victim is gone already, or another pod has its name", "err", err)
	default:
		return fmt.Errorf("pod %s/%s: %w", v.pod.Namespace, v.pod.Name, err)
	}
	s.change(key, func(*entry, time.Time) { pr.victims[i].done = true })
	return nil
}

// endPod ends a pod as upstream's preemption does: one that has not been bound yet loses its node in memory, another
// gets the condition DisruptionTarget and is deleted, with its grace period.
func (s *Shared) endPod(ctx context.Context, client clientset.Interface, pod *v1.Pod, key types.NamespacedName) error {
	h := s.anyHandle()
	if waiting := h.GetWaitingPod(pod.UID); waiting != nil {
		if waiting.Preempt(Name, "preempted by PodGroup "+key.String()) {
			return nil
		}
	} else if preparing := h.GetPodInPreBind(pod.UID); preparing != nil && preparing.CancelPod("preempted by PodGroup "+key.String()) {
		return nil
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason:             v1.PodReasonPreemptionByScheduler,
			Message:            pod.Spec.SchedulerName + ": preempting to accommodate the higher priority PodGroup " + key.String(),
			LastTransitionTime: now,
		}}},
	})
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
