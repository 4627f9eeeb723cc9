package permitgate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Since Kubernetes 1.35 a pod that is going to wait in Permit gets its node as status.nominatedNodeName,
// and the room is kept for it on that node. When the pod is rejected kube-scheduler takes the
// nomination back, but only if its informer has shown it by then: a member that is rejected sooner keeps
// it, and a gang that waits would hold room on the nodes of its last attempt until its next one.

const (
	// nominationGrace is how long kube-scheduler is given to take a nomination back itself.
	nominationGrace = 250 * time.Millisecond
	// A write that failed is repeated after nominationRetry, then after twice as long each time.
	nominationRetry    = 250 * time.Millisecond
	nominationRetryMax = time.Minute
)

// member names a pod of a gang.
type member struct {
	gang types.NamespacedName
	uid  types.UID
}

func newNominationQueue() workqueue.TypedRateLimitingInterface[member] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[member](nominationRetry, nominationRetryMax))
}

// checkNominationLocked has a member looked at if its nomination is not as it should be.
func (s *Shared) checkNominationLocked(e *entry, uid types.UID) {
	if pod, _ := wrongNomination(e, uid); pod != nil {
		s.nominations.AddAfter(member{e.key, uid}, nominationGrace)
	}
}

// inheritNominations takes back what an earlier scheduler has promised to members that this one has not tried
// yet: nothing is planned for them, and their nominations would keep room that the plan may need.
func (s *Shared) inheritNominations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.gangs {
		for uid := range e.pods {
			e.gang.Inherit(uid)
			s.checkNominationLocked(e, uid)
		}
	}
}

// wrongNomination returns a pod whose nomination is not as it should be, with the node that it is to be
// nominated to: none when an earlier attempt has left the nomination behind, and the node of the attempt when
// its bind has failed, whatever kube-scheduler makes of that. It returns nil for other pods.
func wrongNomination(e *entry, uid types.UID) (pod *v1.Pod, node string) {
	if pod := staleNomination(e, uid); pod != nil {
		return pod, ""
	}
	pod, node = e.pods[uid], e.nodes[uid]
	if pod == nil || node == "" || pod.Spec.NodeName != "" || pod.Status.NominatedNodeName == node || !e.gang.KeepsNode(uid) {
		return nil, ""
	}
	return pod, node
}

// staleNomination returns the pod if it is nominated to a node that it was given in an earlier attempt, and
// nil otherwise.
func staleNomination(e *entry, uid types.UID) *v1.Pod {
	pod := e.pods[uid]
	if pod == nil || pod.Spec.NodeName != "" || pod.Status.NominatedNodeName == "" || !e.gang.SentBack(uid) {
		return nil
	}
	return pod
}

// takeNominationsBack corrects nominations until its queue is shut down. Only the leader runs it.
func (s *Shared) takeNominationsBack(ctx context.Context, client kubernetes.Interface) {
	logger := klog.FromContext(ctx)
	for {
		m, shutdown := s.nominations.Get()
		if shutdown {
			return
		}
		switch err := s.takeNominationBack(ctx, client, m); {
		case err == nil:
			s.nominations.Forget(m)
		case ctx.Err() != nil:
		case apierrors.IsConflict(err):
			// The informer is about to show what has changed; it may have been the nomination.
			s.nominations.AddRateLimited(m)
		default:
			logger.Error(err, "Could not correct the nomination of a pod; will try again", "podGroup", m.gang, "podUID", m.uid)
			s.nominations.AddRateLimited(m)
		}
		s.nominations.Done(m)
	}
}

// takeNominationBack corrects one nomination if it is still wrong. The patch names the version of the pod
// that was looked at, so that a nomination of a later attempt is not lost.
func (s *Shared) takeNominationBack(ctx context.Context, client kubernetes.Interface, m member) error {
	var (
		pod  *v1.Pod
		node string
	)
	s.look(m.gang, func(e *entry, _ time.Time) { pod, node = wrongNomination(e, m.uid) })
	if pod == nil {
		return nil
	}
	var nomination any // nil removes it
	if node != "" {
		nomination = node
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"nominatedNodeName": nomination},
	})
	if err != nil {
		return fmt.Errorf("nomination of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		klog.FromContext(ctx).V(3).Info("Corrected a nomination", "pod", klog.KObj(pod), "from", pod.Status.NominatedNodeName, "to", node, "podGroup", m.gang)
	}
	return err
}
