package rebalance

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

// readyWithin is how long a pod may take to be ready, unless its Deployment says otherwise: the default of
// progressDeadlineSeconds.
const readyWithin = 10 * time.Minute

// observe returns what of the cluster decides about moves.
func (l *look) observe(standing *rebalance.Standing, now time.Time) *act.Observed {
	return &act.Observed{
		Now: now, Excess: standing.ExcessOf, Replicas: l.replicas,
		Runs: func(m *v1alpha1.RebalanceMove) bool { return standing.Pod(m.Namespace, m.Name, m.UID) != nil },
	}
}

// replicas returns the pods of a controller. It reads all objects: few controllers are asked about in a look.
func (l *look) replicas(controller types.UID) act.Replicas {
	out := act.Replicas{Gone: true, Wanted: -1, ReadyWithin: readyWithin}
	for _, pod := range l.census.Pods {
		if pods.ControllerUID(pod.Pod) != controller {
			continue
		}
		out.Gone = false
		out.Live++
		if pod.On != nil {
			out.Bound++
			if pods.Ready(pod.Pod) {
				out.Ready++
			}
		}
	}
	for _, obj := range l.cluster.Objects() {
		if obj.GetUID() != controller {
			continue
		}
		out.Gone = obj.GetDeletionTimestamp() != nil
		switch o := obj.(type) {
		case *appsv1.ReplicaSet:
			out.Wanted = int64(ptr.Deref(o.Spec.Replicas, 1))
			if over := metav1.GetControllerOfNoCopy(o); over != nil {
				out.ReadyWithin = l.progressDeadline(over.UID)
			}
		case *appsv1.StatefulSet:
			out.Wanted = int64(ptr.Deref(o.Spec.Replicas, 1))
		case *v1.ReplicationController:
			out.Wanted = int64(ptr.Deref(o.Spec.Replicas, 1))
		case *batchv1.Job:
			out.Wanted = int64(ptr.Deref(o.Spec.Parallelism, 1))
			if all := o.Spec.Completions; all != nil {
				out.Wanted = min(out.Wanted, int64(*all-o.Status.Succeeded))
			}
		}
		break
	}
	return out
}

// progressDeadline is that of a Deployment.
func (l *look) progressDeadline(uid types.UID) time.Duration {
	for _, d := range snapshot.List[*appsv1.Deployment](l.cluster) {
		if seconds := d.Spec.ProgressDeadlineSeconds; d.UID == uid && seconds != nil {
			return time.Duration(*seconds) * time.Second
		}
	}
	return readyWithin
}
