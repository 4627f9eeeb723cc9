package rebalance

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/pods"
	"zonewise.dev/rebalance/act"
)

// readyWithin is how long a pod may take to be ready, unless its Deployment says otherwise: the default of
// progressDeadlineSeconds.
const readyWithin = 10 * time.Minute

// controllers knows what makes pods, and which of them there are.
type controllers struct {
	byUID map[types.UID]*controller
	// live and unready count the pods of workloads, by root. An unready one may have no node.
	live, unready map[types.UID]int64
}

// controller makes pods. One of another kind than those of Kubernetes is known by its pods alone.
type controller struct {
	act.Replicas
	// root is the UID of its owner, or its own.
	root types.UID
	// rollout says in words that its workload replaces its pods now; empty if it does not.
	rollout string
}

func readControllers(c *census.Census) *controllers {
	out := &controllers{byUID: map[types.UID]*controller{}, live: map[types.UID]int64{}, unready: map[types.UID]int64{}}
	for _, rc := range snapshot.List[*v1.ReplicationController](c.Snapshot) {
		out.add(rc, ptr.Deref(rc.Spec.Replicas, 1))
	}
	for _, job := range snapshot.List[*batchv1.Job](c.Snapshot) {
		wanted := ptr.Deref(job.Spec.Parallelism, 1)
		if all := job.Spec.Completions; all != nil {
			wanted = min(wanted, *all-job.Status.Succeeded)
		}
		out.add(job, wanted)
	}
	out.addReplicaSets(c)
	out.addStatefulSets(c)
	for _, pod := range c.Pods {
		uid := pods.ControllerUID(pod.Pod)
		if uid == "" {
			continue
		}
		if out.byUID[uid] == nil {
			out.byUID[uid] = &controller{root: uid, Replicas: act.Replicas{Wanted: -1, ReadyWithin: readyWithin}}
		}
		out.count(out.byUID[uid], pod)
	}
	return out
}

func (c *controllers) add(obj metav1.Object, wanted int32) *controller {
	out := &controller{root: obj.GetUID(), Replicas: act.Replicas{
		Gone: obj.GetDeletionTimestamp() != nil, Wanted: int64(wanted), ReadyWithin: readyWithin,
	}}
	if over := metav1.GetControllerOfNoCopy(obj); over != nil {
		out.root = over.UID
	}
	c.byUID[obj.GetUID()] = out
	return out
}

func (c *controllers) count(of *controller, pod *census.Pod) {
	c.live[of.root]++
	of.Live++
	ready := pods.Ready(pod.Pod)
	if !ready {
		c.unready[of.root]++
	}
	if pod.On != nil {
		of.Bound++
		if ready {
			of.Ready++
		}
	}
}

// addReplicaSets finds rollouts, too: an owner of any kind with two ReplicaSets that want pods is in one, such as an
// Argo Rollout with a canary.
func (c *controllers) addReplicaSets(all *census.Census) {
	deployments := map[types.UID]*appsv1.Deployment{}
	for _, d := range snapshot.List[*appsv1.Deployment](all.Snapshot) {
		deployments[d.UID] = d
	}
	sets := map[types.UID][]*appsv1.ReplicaSet{}
	for _, set := range snapshot.List[*appsv1.ReplicaSet](all.Snapshot) {
		added := c.add(set, ptr.Deref(set.Spec.Replicas, 1))
		if d := deployments[added.root]; d != nil && d.Spec.ProgressDeadlineSeconds != nil {
			added.ReadyWithin = time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second
		}
		if added.root != set.UID && added.Wanted > 0 {
			sets[added.root] = append(sets[added.root], set)
		}
	}
	for root, in := range sets {
		d := deployments[root]
		if len(in) == 1 && (d == nil || !unobserved(d.Status.ObservedGeneration, d)) {
			continue
		}
		over := metav1.GetControllerOfNoCopy(in[0])
		for _, set := range in {
			c.byUID[set.UID].rollout = "takes part in a rollout of " + over.Kind + " " + set.Namespace + "/" + over.Name
		}
	}
}

func (c *controllers) addStatefulSets(all *census.Census) {
	for _, set := range snapshot.List[*appsv1.StatefulSet](all.Snapshot) {
		added, name := c.add(set, ptr.Deref(set.Spec.Replicas, 1)), "StatefulSet "+set.Namespace+"/"+set.Name
		switch {
		case set.Status.UpdateRevision != "" && set.Status.CurrentRevision != set.Status.UpdateRevision:
			added.rollout = "is of " + name + ", whose pods are of two revisions"
		case unobserved(set.Status.ObservedGeneration, set):
			added.rollout = "takes part in a rollout of " + name
		}
	}
}

// unobserved reports whether the controller of a kind has not seen a spec yet.
func unobserved(generation int64, obj metav1.Object) bool {
	return generation > 0 && generation < obj.GetGeneration()
}

// whyStays returns what of the other pods of its workload keeps a pod where it is. A workload that is not settled is
// left alone as a whole: with a second pod away, more would be missing than a move may cost.
func (c *controllers) whyStays(of *controller) string {
	switch {
	case of.rollout != "":
		return of.rollout
	case c.unready[of.root] > 0:
		return "is of a workload with a pod that is not ready"
	case of.Wanted > of.Live: // a quota may be in the way, or another pod's end
		return "is of a workload with fewer pods than it wants"
	}
	return ""
}

// Replicas are the pods of a controller.
func (s *Standing) Replicas(uid types.UID) act.Replicas {
	if c := s.stayers.byUID[uid]; c != nil {
		return c.Replicas
	}
	return act.Replicas{Gone: true, Wanted: -1, ReadyWithin: readyWithin}
}
