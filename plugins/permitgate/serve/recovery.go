package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

const (
	// An eviction that was refused, by a PodDisruptionBudget for example, is repeated after recoveryRetry,
	// then after twice as long each time.
	recoveryRetry      = time.Second
	recoveryRetryLimit = time.Minute
)

var recoveryEvictions = metrics.NewCounter(&compbasemetrics.CounterOpts{
	Namespace: metrics.Namespace, Subsystem: "permitgate", Name: "recovery_evictions_total",
	Help:           "Members evicted because their gang stayed bound in part.",
	StabilityLevel: compbasemetrics.ALPHA,
})

// errReleasing says that a gang is being bound, and may become whole.
var errReleasing = errors.New("the gang is being released")

// recovery is the eviction of a gang's bound members.
type recovery struct {
	begun   bool // the gang is kept out of the queue
	evicted bool // a member has been evicted, so the others must follow
}

// recover evicts the bound members of a stranded gang.
func (s *Server) recover(ctx context.Context, j job) {
	s.mu.Lock()
	t := s.toldLocked(j.gang)
	if t.recovery == nil {
		t.recovery = &recovery{}
	}
	r := t.recovery
	s.mu.Unlock()
	err := s.evictAll(ctx, j.gang, r) // one worker at a time has the job
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The bound members of a gang could not be evicted; will try again", "podGroup", j.gang, "err", err)
		s.agenda.Retry(j, recoveryRetry, recoveryRetryLimit)
		return
	}
	s.agenda.Forget(j)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.recovery = nil
}

// evictAll evicts one member after the other until none is left. Before each it reads from the API server that the gang is
// still bound in part: the plugin's data may be stale, above all after a change of the leader, and an eviction cannot be
// undone.
func (s *Server) evictAll(ctx context.Context, key types.NamespacedName, r *recovery) error {
	tried := map[types.UID]bool{}
	var refused error
	for {
		switch g, known := s.Gangs.Look(key); {
		case !known, !r.begun && !g.Stranded:
			return nil
		case g.Phase == gang.Releasing:
			return errReleasing
		case r.begun && !r.evicted && g.Phase != gang.Backoff && g.Phase != gang.Pending:
			return nil // the gang tries again, and is stranded again if it fails
		}
		bound, err := s.toEvict(ctx, key, r.evicted)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(bound, func(pod *v1.Pod) bool { return !tried[pod.UID] })
		if i < 0 {
			return refused
		}
		next := bound[i]
		if !r.begun {
			if r.begun = s.Gangs.Recover(key); !r.begun {
				return nil // something has happened since
			}
		}
		tried[next.UID] = true
		evicted, err := s.evict(ctx, key, next)
		r.evicted = r.evicted || evicted
		if err != nil && refused == nil {
			refused = err
		}
	}
}

// toEvict reads from the API server which members of a gang to evict: the bound ones, if it is bound in part.
func (s *Server) toEvict(ctx context.Context, key types.NamespacedName, evicting bool) ([]*v1.Pod, error) {
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := s.Source.Read(ctx, group); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	if policy, _ := podgroup.RecoveryPolicyOf(group, s.RecoveryPolicy); policy != podgroup.RecoveryEvict {
		return nil, nil
	}
	pods, err := s.client.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.PodGroupLabel + "=" + key.Name})
	if err != nil {
		return nil, err
	}
	return partOf(pods.Items, int(group.Spec.MinMember), evicting), nil
}

// partOf returns the bound members of a gang that is bound in part although enough members exist, or whose
// eviction has begun. For other gangs it returns none. Members that have succeeded are not evicted.
func partOf(pods []v1.Pod, minMember int, evicting bool) []*v1.Pod {
	var bound []*v1.Pod
	var waiting int
	facts := newFacts()
	for i := range pods {
		pod := &pods[i]
		if _, ok := podgroup.Of(pod); !ok {
			continue
		}
		facts.set(pod.UID, factOf(pod))
		switch {
		case !podgroup.Live(pod):
		case pod.Spec.NodeName != "":
			bound = append(bound, pod)
		default:
			waiting++
		}
	}
	if n := len(bound) + facts.succeeded(); n >= minMember || n+waiting < minMember && !evicting {
		return nil
	}
	return bound
}

// evict asks for the eviction of a pod. It is not an error if the pod is gone.
func (s *Server) evict(ctx context.Context, key types.NamespacedName, pod *v1.Pod) (evicted bool, err error) {
	err = s.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil // or another pod has its name
	case err != nil:
		return false, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	recoveryEvictions.Inc()
	klog.FromContext(ctx).Info("Evicted a member of a gang that stayed bound in part", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "podGroup", key)
	s.send(ctx, key, message{pod, reasonEvicted, "the gang stayed bound in part, and recoveryPolicy is Evict"})
	return true, nil
}
