package rebalance

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
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

// readyFor is how long a pod has to be ready before it is moved.
const readyFor = time.Minute

// stayers knows which pods are not moved.
type stayers struct {
	census  *census.Census
	copy    *sim.Sim // knows schedulers and controllers; nil where nothing is concluded from these
	options Options
	// roots are the owners of the controllers of pods, if these have one.
	roots map[types.UID]types.UID
	// rollouts are the controllers of pods whose workload replaces its pods now, with the workload in words.
	rollouts map[types.UID]string
	// live and unready count the pods of workloads, by root. An unready one may have no node.
	live, unready map[types.UID]int
	// missing is how many more pods controllers want than they have: a quota may be in the way, or another pod's end.
	missing map[types.UID]int32
	// zonal are the claims, by "namespace/name", with a volume that not all nodes can have.
	zonal map[string]bool
	// budgets are the PodDisruptionBudgets, by namespace.
	budgets map[string][]budget
}

func newStayers(c *census.Census, s *sim.Sim, options Options) *stayers {
	out := &stayers{
		census: c, copy: s, options: options, roots: map[types.UID]types.UID{}, rollouts: map[types.UID]string{},
		live: map[types.UID]int{}, unready: map[types.UID]int{}, missing: map[types.UID]int32{},
		zonal: map[string]bool{}, budgets: map[string][]budget{},
	}
	out.readControllers()
	for _, pod := range c.Pods {
		controller := pods.ControllerUID(pod.Pod)
		if controller == "" {
			continue
		}
		out.missing[controller]--
		root := out.rootOf(controller)
		out.live[root]++
		if !pods.Ready(pod.Pod) {
			out.unready[root]++
		}
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

// readControllers finds what controllers want, and rollouts: an owner of any kind with two ReplicaSets that want pods
// is in one, such as an Argo Rollout with a canary.
func (s *stayers) readControllers() {
	for _, controller := range snapshot.List[*v1.ReplicationController](s.census.Snapshot) {
		s.missing[controller.UID] += ptr.Deref(controller.Spec.Replicas, 1)
		if over := metav1.GetControllerOfNoCopy(controller); over != nil {
			s.roots[controller.UID] = over.UID
		}
	}
	sets := map[types.UID][]*appsv1.ReplicaSet{}
	unobserved := map[types.UID]bool{}
	for _, d := range snapshot.List[*appsv1.Deployment](s.census.Snapshot) {
		unobserved[d.UID] = d.Status.ObservedGeneration > 0 && d.Status.ObservedGeneration < d.Generation
	}
	for _, set := range snapshot.List[*appsv1.ReplicaSet](s.census.Snapshot) {
		s.missing[set.UID] += ptr.Deref(set.Spec.Replicas, 1)
		if over := metav1.GetControllerOfNoCopy(set); over != nil {
			s.roots[set.UID] = over.UID
			if ptr.Deref(set.Spec.Replicas, 1) > 0 {
				sets[over.UID] = append(sets[over.UID], set)
			}
		}
	}
	for root, in := range sets {
		if len(in) > 1 || unobserved[root] {
			over := metav1.GetControllerOfNoCopy(in[0])
			for _, set := range in {
				s.rollouts[set.UID] = "takes part in a rollout of " + over.Kind + " " + set.Namespace + "/" + over.Name
			}
		}
	}
	for _, set := range snapshot.List[*appsv1.StatefulSet](s.census.Snapshot) {
		s.missing[set.UID] += ptr.Deref(set.Spec.Replicas, 1)
		if over := metav1.GetControllerOfNoCopy(set); over != nil {
			s.roots[set.UID] = over.UID
		}
		name := "StatefulSet " + set.Namespace + "/" + set.Name
		switch {
		case set.Status.UpdateRevision != "" && set.Status.CurrentRevision != set.Status.UpdateRevision:
			s.rollouts[set.UID] = "is of " + name + ", whose pods are of two revisions"
		case set.Status.ObservedGeneration > 0 && set.Status.ObservedGeneration < set.Generation:
			s.rollouts[set.UID] = "takes part in a rollout of " + name
		}
	}
}

func (s *stayers) rootOf(controller types.UID) types.UID {
	return cmp.Or(s.roots[controller], controller)
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
	case !s.options.AnyAge && pods.Ready(pod) && s.census.Now.Sub(pods.Condition(pod, v1.PodReady).LastTransitionTime.Time) < readyFor:
		return "has been ready for less than a minute"
	}
	return ""
}

// asksNotToBeDisrupted reads the annotation as Karpenter does (pkg/utils/pod IsDoNotDisruptActive): true, or for how long
// after the start of the pod. A value that is neither is taken for true.
func (s *stayers) asksNotToBeDisrupted(pod *v1.Pod) bool {
	value := strings.TrimSpace(pod.Annotations[doNotDisrupt])
	if value == "" || value == "false" {
		return false
	}
	length, err := time.ParseDuration(value)
	if err != nil || pod.Status.StartTime == nil {
		return true
	}
	return s.census.Now.Before(pod.Status.StartTime.Add(length))
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

// whyByWorkload returns what of the other pods of its workload keeps a pod where it is. A workload that is not settled
// is left alone as a whole: with a second pod away, more would be missing than a move may cost.
func (s *stayers) whyByWorkload(pod *v1.Pod) string {
	controller := pods.ControllerUID(pod)
	if controller == "" {
		return ""
	}
	switch root := s.rootOf(controller); {
	case s.rollouts[controller] != "":
		return s.rollouts[controller]
	case s.unready[root] > 0:
		return "is of a workload with a pod that is not ready"
	case s.missing[controller] > 0:
		return "is of a workload with fewer pods than it wants"
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
	case covers == 0 && s.live[s.rootOf(controller)] == 1:
		return "is the only pod of its workload, and no PodDisruptionBudget covers it"
	}
	return ""
}

// goingTaints are on nodes that an autoscaler is about to remove.
var goingTaints = map[string]bool{
	"karpenter.sh/disrupted": true, "ToBeDeletedByClusterAutoscaler": true, "DeletionCandidateOfClusterAutoscaler": true,
}

// firstToMove orders pods of a zone: first those on a node that is going, which have to leave it anyway, then those that
// cost least to delete, by their own word, then the youngest.
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
