package permitgate

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// RecoveryPolicy says what becomes of a gang that stays bound in part.
type RecoveryPolicy string

// The values of recoveryPolicy and of RecoveryPolicyAnnotation.
const (
	// RecoveryKeep: it is reported, and the bound members run on.
	RecoveryKeep RecoveryPolicy = "Keep"
	// RecoveryEvict: its bound members are evicted, so that their controller makes a gang that can be bound
	// as a whole.
	RecoveryEvict RecoveryPolicy = "Evict"
)

// RecoveryPolicyAnnotation on a PodGroup says what becomes of that gang, whatever the profile says.
const RecoveryPolicyAnnotation = "zonewise.dev/recovery-policy"

const (
	// An eviction that was refused, by a PodDisruptionBudget for example, is repeated after recoveryRetry,
	// then after twice as long each time.
	recoveryRetry    = time.Second
	recoveryRetryMax = time.Minute
)

// PodGroupReader is what a [PodGroupWatch] implements besides when it can ask the API server itself.
type PodGroupReader interface {
	// ReadPodGroup returns a PodGroup as it is now.
	ReadPodGroup(ctx context.Context, namespace, name string) (*v1alpha1.PodGroup, error)
}

// ReadPodGroup implements PodGroupReader.
func (g servedGroups) ReadPodGroup(ctx context.Context, namespace, name string) (*v1alpha1.PodGroup, error) {
	group := &v1alpha1.PodGroup{}
	err := g.Get().Namespace(namespace).Resource("podgroups").Name(name).Do(ctx).Into(group)
	return group, err
}

func newRecoveryQueue() workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](recoveryRetry, recoveryRetryMax))
}

// recoveryPolicyOf returns the policy for a PodGroup, and what is wrong with its annotation.
func recoveryPolicyOf(group *v1alpha1.PodGroup, otherwise RecoveryPolicy) (policy RecoveryPolicy, complaint string) {
	text, ok := group.Annotations[RecoveryPolicyAnnotation]
	switch policy := RecoveryPolicy(text); {
	case !ok:
		return otherwise, ""
	case policy == RecoveryKeep || policy == RecoveryEvict:
		return policy, ""
	}
	return otherwise, fmt.Sprintf("annotation %s is %q, must be %s or %s: the scheduler's default %s is used",
		RecoveryPolicyAnnotation, text, RecoveryKeep, RecoveryEvict, otherwise)
}

// recover evicts the bound members of stranded gangs until its queue is shut down. Only the leader runs it.
func (s *Shared) recover(ctx context.Context, client clientset.Interface, groups PodGroupReader) {
	logger := klog.FromContext(ctx)
	for {
		key, shutdown := s.recoveries.Get()
		if shutdown {
			return
		}
		switch err := s.recoverOne(ctx, client, groups, key); {
		case err == nil:
			s.recoveries.Forget(key)
		case ctx.Err() != nil:
		default:
			logger.Info("The bound members of a gang could not be evicted; will try again", "podGroup", key, "err", err)
			s.recoveries.AddRateLimited(key)
		}
		s.recoveries.Done(key)
	}
}

// recoverOne evicts the bound members of a gang if it is stranded. What the plugin knows may be old, after a
// change of the leader above all, and an eviction cannot be undone: the API server is asked first.
func (s *Shared) recoverOne(ctx context.Context, client clientset.Interface, groups PodGroupReader, key types.NamespacedName) error {
	// Of a gang whose eviction has begun nobody is to stay.
	begun := s.recoveries.NumRequeues(key) > 0
	stranded := false
	s.look(key, func(e *entry, now time.Time) { stranded = e.gang.Stranded(now) })
	if !stranded && !begun {
		return nil
	}
	group, err := groups.ReadPodGroup(ctx, key.Namespace, key.Name)
	if err != nil {
		return ignoreNotFound(err)
	}
	if policy, _ := recoveryPolicyOf(group, s.recoveryPolicy()); policy != RecoveryEvict {
		return nil
	}
	pods, err := client.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.PodGroupLabel + "=" + key.Name,
	})
	if err != nil {
		return err
	}
	bound := membersToEvict(pods.Items, group.Spec.MinMember, begun)
	if len(bound) == 0 {
		return nil
	}
	if !begun {
		s.change(key, func(e *entry, now time.Time) { stranded = e.gang.Recover(now) })
		if !stranded {
			return nil // something has happened since
		}
	}
	return s.evict(ctx, client, key, bound)
}

// membersToEvict returns the bound members of a gang that is bound in part although enough members exist, or
// whose eviction has begun, and none of any other gang. Members that have succeeded have had their turn with
// the others.
func membersToEvict(pods []v1.Pod, minMember int32, begun bool) []*v1.Pod {
	var bound []*v1.Pod
	var succeeded, waiting int
	for i := range pods {
		pod := &pods[i]
		if _, ok := gangOf(pod); !ok {
			continue
		}
		switch {
		case pod.Status.Phase == v1.PodSucceeded:
			succeeded++
		case pod.Status.Phase == v1.PodFailed || pod.DeletionTimestamp != nil:
		case pod.Spec.NodeName != "":
			bound = append(bound, pod)
		default:
			waiting++
		}
	}
	if n := len(bound) + succeeded; n >= int(minMember) || n+waiting < int(minMember) && !begun {
		return nil
	}
	return bound
}

// evict asks for the eviction of pods, all of them, and returns the first refusal.
func (s *Shared) evict(ctx context.Context, client clientset.Interface, key types.NamespacedName, pods []*v1.Pod) error {
	logger := klog.FromContext(ctx)
	var first error
	for _, pod := range pods {
		err := client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
		})
		switch {
		case err == nil:
			recoveryEvictions.Inc()
			logger.Info("Evicted a member of a gang that stayed bound in part", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "podGroup", key)
			if recorder := s.anyHandle().EventRecorder(); recorder != nil {
				message{recorder, pod, v1.EventTypeWarning, reasonEvicted, "PodGroup " + key.String() + ": the gang stayed bound in part, and recoveryPolicy is Evict"}.send(logger)
			}
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// It is gone, or another pod has its name.
		case first == nil:
			first = fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return first
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// recoveryPolicy returns the profiles' policy.
func (s *Shared) recoveryPolicy() RecoveryPolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.args.RecoveryPolicy
}
