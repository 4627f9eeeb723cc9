package rebalance

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/sim"
)

// The annotations by which the owner of a pod asks that it is not disrupted. A move respects what an autoscaler does.
const (
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)

// leaderWorkerSetLabel is on the pods of a LeaderWorkerSet, which by its default restarts a group of them as a whole.
const leaderWorkerSetLabel = "leaderworkerset.sigs.k8s.io/name"

// systemCritical is the least priority of system-node-critical and system-cluster-critical.
const systemCritical = 2_000_000_000

// DefaultReadyFor is how long a pod has to be ready before the controller moves it.
const DefaultReadyFor = time.Minute

// stayers knows which pods are not moved.
type stayers struct {
	census *census.Census
	copy   *sim.Sim // knows schedulers and controllers; nil where nothing is concluded from these
	// readAt is when the cluster was read. A copy's time runs ahead of it, and its pods are no older by that.
	readAt  time.Time
	options Options
	*controllers
	// zonal are the claims, by "namespace/name", with a volume that not all nodes can have.
	zonal map[string]bool
	// budgets are the PodDisruptionBudgets, by namespace.
	budgets map[string][]budget
}

func newStayers(c *census.Census, s *sim.Sim, options Options) *stayers {
	out := &stayers{
		census: c, copy: s, readAt: c.Now, options: options, controllers: readControllers(c), zonal: map[string]bool{}, budgets: map[string][]budget{},
	}
	if s != nil {
		out.readAt = s.Options().Now
	}
	tied := map[string]bool{}
	for _, volume := range snapshot.List[*v1.PersistentVolume](c.Snapshot) {
		tied[volume.Name] = volume.Spec.NodeAffinity != nil && volume.Spec.NodeAffinity.Required != nil
	}
	for _, claim := range snapshot.List[*v1.PersistentVolumeClaim](c.Snapshot) {
		out.zonal[claim.Namespace+"/"+claim.Name] = tied[claim.Spec.VolumeName]
	}
	for _, b := range snapshot.List[*policyv1.PodDisruptionBudget](c.Snapshot) {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			out.budgets[b.Namespace] = append(out.budgets[b.Namespace], budget{
				selector: selector, exhausted: b.Status.ObservedGeneration < b.Generation || b.Status.DisruptionsAllowed <= 0,
			})
		}
	}
	return out
}

// budget is a PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	// exhausted: the Eviction API refuses to evict a ready pod by it now.
	exhausted bool
}

// why returns why a pod is not moved; empty if it may be.
func (s *stayers) why(pod *v1.Pod) string {
	if !s.options.selects(pod) {
		return "is not selected"
	}
	for _, reason := range []string{s.whyByItself(pod), s.whyByVolumes(pod), s.whyByWorkload(pod)} {
		if reason != "" {
			return reason
		}
	}
	if s.copy != nil {
		if s.copy.OfOtherScheduler(pod) {
			return "belongs to the scheduler " + pod.Spec.SchedulerName
		}
		if why := s.copy.WhyNotReplaced(pod); why != "" {
			return "is not replaced: " + why
		}
	}
	return s.options.stays(pod)
}

// whyByItself returns what of the pod itself keeps it where it is.
func (s *stayers) whyByItself(pod *v1.Pod) string {
	switch {
	case pod.Annotations[safeToEvict] == "false":
		return "has the annotation " + safeToEvict + ": false"
	case s.asksNotToBeDisrupted(pod):
		return "has the annotation " + doNotDisrupt
	case pod.Labels[schedulingv1alpha1.PodGroupLabel] != "" || pod.Spec.SchedulingGroup != nil:
		return "is a member of a gang"
	case pod.Labels[leaderWorkerSetLabel] != "":
		return "is of a LeaderWorkerSet, which restarts a group as a whole"
	case ptr.Deref(pod.Spec.Priority, 0) >= systemCritical:
		return "is system-critical"
	case pods.Ready(pod) && s.readAt.Sub(pods.Condition(pod, v1.PodReady).LastTransitionTime.Time) < s.options.ReadyFor:
		return "has been ready for less than " + duration.HumanDuration(s.options.ReadyFor)
	}
	return ""
}

// asksNotToBeDisrupted reads the annotation as Karpenter does (pkg/utils/pod IsDoNotDisruptActive): true, or for how
// long after the start of the pod. A value that is neither is taken for true.
func (s *stayers) asksNotToBeDisrupted(pod *v1.Pod) bool {
	value := strings.TrimSpace(pod.Annotations[doNotDisrupt])
	if value == "" || value == "false" {
		return false
	}
	length, err := time.ParseDuration(value)
	if err != nil || pod.Status.StartTime == nil {
		return true
	}
	return s.readAt.Before(pod.Status.StartTime.Add(length))
}

// whyByVolumes returns which of its volumes keeps a pod where it is.
func (s *stayers) whyByVolumes(pod *v1.Pod) string {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil && s.zonal[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]:
			return "has a volume that is tied to nodes"
		case v.HostPath != nil:
			return "has a hostPath volume"
		case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault && !s.options.EvictLocalStorage:
			return "has an emptyDir volume"
		}
	}
	return ""
}

// whyByWorkload returns what of its workload, or of its budgets, keeps a pod where it is.
func (s *stayers) whyByWorkload(pod *v1.Pod) string {
	controller := s.byUID[pods.ControllerUID(pod)]
	if controller == nil {
		return ""
	}
	if why := s.whyStays(controller); why != "" {
		return why
	}
	covers := 0
	for _, b := range s.budgets[pod.Namespace] {
		if !b.selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if covers++; b.exhausted {
			return "is covered by a PodDisruptionBudget that allows no eviction now"
		}
	}
	switch {
	case covers > 1:
		return "is covered by more than one PodDisruptionBudget, which the Eviction API does not support"
	case covers == 0 && s.live[controller.root] == 1:
		return "is the only pod of its workload, and no PodDisruptionBudget covers it"
	}
	return ""
}

// goingTaints are on nodes that an autoscaler is about to remove.
var goingTaints = map[string]bool{
	"karpenter.sh/disrupted": true, "ToBeDeletedByClusterAutoscaler": true, "DeletionCandidateOfClusterAutoscaler": true,
}

// firstToMove orders pods of a zone: first those on a node that is going, which have to leave it anyway, then those
// that cost least to delete, by their own word, then the youngest.
func (s *Standing) firstToMove(a, b *v1.Pod) int {
	return cmp.Or(
		cmp.Compare(s.staysOnNode(a), s.staysOnNode(b)), cmp.Compare(deletionCost(a), deletionCost(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name),
	)
}

// staysOnNode is 0 for a pod whose node is cordoned or about to be removed, and 1 otherwise.
func (s *Standing) staysOnNode(pod *v1.Pod) int {
	node := s.census.FindNode(pod.Spec.NodeName)
	if node == nil {
		return 1
	}
	if node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return 0
	}
	for i := range node.Spec.Taints {
		if goingTaints[node.Spec.Taints[i].Key] {
			return 0
		}
	}
	return 1
}

func deletionCost(pod *v1.Pod) int {
	cost, _ := strconv.Atoi(pod.Annotations[v1.PodDeletionCost]) // 0 without it
	return cost
}
