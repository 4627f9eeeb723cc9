package rebalance

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
)

// The annotations by which the owner of a pod asks that it is not disrupted. Who moves pods asks for no less than an
// autoscaler does.
const (
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)

// stayers knows which pods of a copy are not moved.
type stayers struct {
	sim     *sim.Sim
	options Options
	// rollouts are the controllers of pods whose workload replaces its pods now, with the workload in words.
	rollouts map[types.UID]string
	// unready are the controllers with a pod that is not ready, which may have no node.
	unready map[types.UID]bool
	// missing is how many more pods controllers want than they have: a quota may be in the way, or another pod's end.
	missing map[types.UID]int32
	// zonal are the claims, by "namespace/name", with a volume that not all nodes can have.
	zonal map[string]bool
}

func newStayers(s *sim.Sim, options Options) *stayers {
	out := &stayers{
		sim: s, options: options, rollouts: map[types.UID]string{}, unready: map[types.UID]bool{},
		missing: map[types.UID]int32{}, zonal: map[string]bool{},
	}
	for _, pod := range sim.List[*v1.Pod](s) {
		if over := metav1.GetControllerOfNoCopy(pod); over != nil && pods.Live(pod) {
			out.unready[over.UID] = out.unready[over.UID] || !pods.Ready(pod)
			out.missing[over.UID]--
		}
	}
	for _, controller := range sim.List[*v1.ReplicationController](s) {
		out.missing[controller.UID] += ptr.Deref(controller.Spec.Replicas, 1)
	}
	sets := map[types.UID][]*appsv1.ReplicaSet{}
	for _, set := range sim.List[*appsv1.ReplicaSet](s) {
		out.missing[set.UID] += ptr.Deref(set.Spec.Replicas, 1)
		if over := metav1.GetControllerOfNoCopy(set); over != nil && ptr.Deref(set.Spec.Replicas, 1) > 0 {
			sets[over.UID] = append(sets[over.UID], set)
		}
	}
	for _, d := range sim.List[*appsv1.Deployment](s) {
		if len(sets[d.UID]) > 1 || d.Status.ObservedGeneration > 0 && d.Status.ObservedGeneration < d.Generation {
			for _, set := range sets[d.UID] {
				out.rollouts[set.UID] = "a rollout of Deployment " + d.Namespace + "/" + d.Name
			}
		}
	}
	for _, set := range sim.List[*appsv1.StatefulSet](s) {
		out.missing[set.UID] += ptr.Deref(set.Spec.Replicas, 1)
		updating := set.Status.UpdateRevision != "" && set.Status.CurrentRevision != set.Status.UpdateRevision
		if updating || set.Status.ObservedGeneration > 0 && set.Status.ObservedGeneration < set.Generation {
			out.rollouts[set.UID] = "a rollout of StatefulSet " + set.Namespace + "/" + set.Name
		}
	}
	tied := map[string]bool{}
	for _, volume := range sim.List[*v1.PersistentVolume](s) {
		tied[volume.Name] = volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil
	}
	for _, claim := range sim.List[*v1.PersistentVolumeClaim](s) {
		out.zonal[claim.Namespace+"/"+claim.Name] = tied[claim.Spec.VolumeName]
	}
	return out
}

// why returns why a pod is not moved; empty if it may be.
func (s *stayers) why(pod *v1.Pod) string {
	switch {
	case !s.options.selects(pod):
		return "is not selected"
	case AsksToStay(pod) != "":
		return AsksToStay(pod)
	case pod.Labels[schedulingv1alpha1.PodGroupLabel] != "" || pod.Spec.SchedulingGroup != nil:
		return "is a member of a gang"
	case s.sim.OfOtherScheduler(pod):
		return "belongs to the scheduler " + pod.Spec.SchedulerName
	}
	if over := metav1.GetControllerOfNoCopy(pod); over != nil && s.rollouts[over.UID] != "" {
		return "takes part in " + s.rollouts[over.UID]
	} else if over != nil && s.unready[over.UID] && pods.Ready(pod) {
		return "has a sibling that is not ready"
	} else if over != nil && s.missing[over.UID] > 0 && pods.Ready(pod) {
		return "lacks a sibling"
	}
	for _, v := range pod.Spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim != nil && s.zonal[pod.Namespace+"/"+claim.ClaimName] {
			return "has a volume that is tied to nodes"
		}
	}
	if why := s.sim.WhyNotReplaced(pod); why != "" {
		return "is not replaced: " + why
	}
	if s.options.Stays != nil {
		return s.options.Stays(pod)
	}
	return ""
}

// AsksToStay returns by what a pod asks not to be disrupted; empty if it does not.
func AsksToStay(pod *v1.Pod) string {
	switch {
	case pod.Annotations[doNotDisrupt] == "true":
		return "has the annotation " + doNotDisrupt
	case pod.Annotations[safeToEvict] == "false":
		return "has the annotation " + safeToEvict + ": false"
	}
	return ""
}

func (o *Options) selects(pod *v1.Pod) bool { return o.Selects == nil || o.Selects(pod) }

func usable(node *v1.Node) bool { return nodes.Usable(node) }

func deletionCost(pod *v1.Pod) int {
	cost, _ := strconv.Atoi(pod.Annotations[v1.PodDeletionCost]) // 0 without it
	return cost
}

// readiness is 0 for a pod that is not ready, whose move costs nothing.
func readiness(pod *v1.Pod) int {
	if pods.Ready(pod) {
		return 1
	}
	return 0
}
