package permitgate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

	reasonPreempts         = "GangPreempts"
	reasonPreempted        = "Preempted"
	reasonPreemptionFailed = "GangPreemptionFailed"
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
		switch pr, err := s.evictFor(ctx, client, key); {
		case err == nil:
			s.evictions.Forget(key)
		case ctx.Err() != nil:
		case err.final || s.evictions.NumRequeues(key) >= evictionTries:
			logger.Error(err, "A gang gives up the room that it has preempted: a victim could not be evicted", "podGroup", key)
			s.evictions.Forget(key)
			s.evictionFailed(key, pr, err)
		default:
			logger.Info("A victim could not be evicted; will try again", "podGroup", key, "err", err)
			s.evictions.AddRateLimited(key)
		}
		s.evictions.Done(key)
	}
}

// evictionError says that victims could not be evicted.
type evictionError struct {
	pods  []*v1.Pod
	first error // about the first of them
	// final is true when the API server refuses it and will refuse it again, rehearsed when nobody was evicted to find that out.
	final, rehearsed bool
}

// Error implements error.
func (e *evictionError) Error() string {
	if others := len(e.pods) - 1; others > 0 {
		return fmt.Sprintf("pod %s and %s could not be evicted: %v", keyOf(e.pods[0]), count(others, "other"), e.first)
	}
	return fmt.Sprintf("pod %s could not be evicted: %v", keyOf(e.pods[0]), e.first)
}

// Unwrap returns what the API server said.
func (e *evictionError) Unwrap() error { return e.first }

// isFinal reports whether the API server refuses a request and will refuse it again.
func isFinal(err error) bool { return outcomeOf(err) == rehearsalRefused && !apierrors.IsConflict(err) }

// evictionFailed ends a preemption whose victims cannot all be evicted. When that was found out before anybody was evicted, the
// gang looks at once whether it can do without those that stay.
func (s *Shared) evictionFailed(key types.NamespacedName, pr *preemption, err *evictionError) {
	f := failedPreemption{why: err.Error()}
	for _, pod := range err.pods {
		f.pods = append(f.pods, pod.UID)
	}
	s.change(key, func(e *entry, now time.Time) {
		if e.preempting != pr || pr.given {
			return
		}
		s.failLocked(e, f, now)
		if err.rehearsed && err.final {
			e.gang.Room(now)
			return
		}
		e.preemptAfter = now.Add(s.args.MaxBackoff.Duration)
	})
}

// preempts reports whether the gang still goes for this preemption: nothing has happened that makes it vain.
func (e *entry) preempts(pr *preemption) bool {
	if e.preempting != pr || pr.given || e.gang.MinMember() != pr.minMember {
		return false
	}
	return e.gang.Phase() == gang.Backoff || e.gang.Phase() == gang.Gathering
}

// evictFor evicts the victims of a gang that are left, after it has asked the API server whether it would let all of them go.
func (s *Shared) evictFor(ctx context.Context, client clientset.Interface, key types.NamespacedName) (*preemption, *evictionError) {
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
		return pr, nil
	}
	if !pr.rehearsed {
		errs := forEach(todo, false, func(i int) error { return s.rehearseEviction(ctx, client, pr.victims[i].pod) })
		if failed := failedEvictions(pr, errs); failed != nil {
			failed.rehearsed = true
			return pr, failed
		}
		pr.rehearsed = true
	}
	// When one fails, whoever is left may be spared.
	errs := forEach(todo, true, func(i int) error { return s.evictVictim(ctx, client, key, pr, i) })
	if failed := failedEvictions(pr, errs); failed != nil {
		return pr, failed
	}
	if note.recorder != nil {
		note.send(logger)
	}
	return pr, nil
}

// forEach calls f with each number, a few at a time, and returns the errors by number. With brief it starts no more calls after the
// first error.
func forEach(numbers []int, brief bool, f func(i int) error) map[int]error {
	var (
		mu    sync.Mutex // guards errs
		errs  = map[int]error{}
		group errgroup.Group
	)
	group.SetLimit(evictionsAtOnce)
	for _, i := range numbers {
		mu.Lock()
		over := brief && len(errs) > 0
		mu.Unlock()
		if over {
			break
		}
		group.Go(func() error {
			if err := f(i); err != nil {
				mu.Lock()
				errs[i] = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}

// failedEvictions sums up the errors of victims: those that were refused for good if there are any, or else the others. It returns nil
// without errors.
func failedEvictions(pr *preemption, errs map[int]error) *evictionError {
	var refused, failed evictionError
	refused.final = true
	for _, i := range slices.Sorted(maps.Keys(errs)) {
		e := &failed
		if isFinal(errs[i]) {
			e = &refused
		}
		if e.pods = append(e.pods, pr.victims[i].pod); e.first == nil {
			e.first = errs[i]
		}
	}
	switch {
	case len(refused.pods) > 0:
		return &refused
	case len(failed.pods) > 0:
		return &failed
	}
	return nil
}

// rehearseEviction asks the API server, without effect, whether it would let a pod go, so that nobody is evicted for a gang that
// cannot have all of its victims.
func (s *Shared) rehearseEviction(ctx context.Context, client clientset.Interface, pod *v1.Pod) error {
	if h := s.anyHandle(); h.GetWaitingPod(pod.UID) != nil || h.GetPodInPreBind(pod.UID) != nil {
		return nil // it is not asked: see endPod
	}
	call, cancel := context.WithTimeout(ctx, rehearsalTimeout)
	defer cancel()
	err := client.CoreV1().Pods(pod.Namespace).Delete(call, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: []string{metav1.DryRunAll},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || outcomeOf(err) == rehearsalPassed {
		return nil
	}
	return err
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
	s.look(key, func(e *entry, _ time.Time) {
		if wanted = e.preempts(pr); wanted {
			pr.victims[i].asked = true
		}
	})
	if !wanted {
		return nil
	}
	pod, node := pr.victims[i].pod, pr.victims[i].node // they do not change
	logger := klog.FromContext(ctx).WithValues("podGroup", key, "victim", klog.KObj(pod), "node", node)
	switch err := s.endPod(ctx, client, pod, key); {
	case err == nil:
		preemptedPods.Inc()
		logger.V(2).Info("Preempted a pod for a gang")
		if recorder := s.anyHandle().EventRecorder(); recorder != nil {
			message{recorder, pod, v1.EventTypeNormal, reasonPreempted, fmt.Sprintf("Preempted by PodGroup %s on node %s", key, node)}.send(logger)
		}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		logger.V(2).Info("The victim is gone already, or another pod has its name", "err", err)
	default:
		s.look(key, func(e *entry, _ time.Time) {
			pr.victims[i].asked = false
			if pr.given {
				s.spareLocked(e, pr)
			}
		})
		return err
	}
	s.look(key, func(*entry, time.Time) { pr.victims[i].done = true })
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
