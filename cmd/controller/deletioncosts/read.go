package deletioncosts

import (
	"cmp"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/feature"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/counted"
	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// reader reads a cluster for the policies with KeepSpread.
type reader struct {
	cluster  *snapshot.Snapshot
	now      time.Time
	policies []*activePolicy // by namespace and name
	nodes    map[string]*nodeInfo
	// live are the live pods of the policies' namespaces.
	live  []*v1.Pod
	index *counts.Index
}

// nodeInfo implements counts.NodeInfo.
type nodeInfo struct {
	node *v1.Node
	pods []podInfo
}

func (n *nodeInfo) Node() *v1.Node { return n.node }

func (n *nodeInfo) GetPods() []podInfo { return n.pods }

// podInfo implements counts.PodInfo.
type podInfo struct{ *v1.Pod }

func (p podInfo) GetPod() *v1.Pod { return p.Pod }

func newReader(cluster *snapshot.Snapshot, now time.Time) *reader {
	r := &reader{cluster: cluster, now: now, nodes: map[string]*nodeInfo{}}
	namespaces := map[string][]*activePolicy{}
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](cluster, "") {
		p, errs := policy.Compile(object)
		if len(errs) > 0 || !p.KeepsSpread() || object.DeletionTimestamp != nil {
			continue
		}
		a := &activePolicy{Policy: p, object: object, zones: policy.NewZones(p, object.Status.Zones)}
		r.policies = append(r.policies, a)
		namespaces[object.Namespace] = append(namespaces[object.Namespace], a)
	}
	if len(r.policies) == 0 {
		return r
	}
	var all []*nodeInfo
	nodes := snapshot.List[*v1.Node](cluster)
	for _, node := range nodes {
		n := &nodeInfo{node: node}
		r.nodes[node.Name] = n
		all = append(all, n)
	}
	for _, pod := range snapshot.List[*v1.Pod](cluster) {
		if namespaces[pod.Namespace] == nil || !pods.Live(pod) {
			continue
		}
		r.live = append(r.live, pod)
		if node := r.nodes[pod.Spec.NodeName]; node != nil {
			node.pods = append(node.pods, podInfo{pod})
		}
		for _, p := range namespaces[pod.Namespace] {
			if p.Matching() && p.Selects(pod.Labels) {
				p.live++
			}
		}
	}
	r.index = counts.NewIndex(counts.DefaultLimits())
	counts.Update(r.index, all, make([]int64, len(all)))
	byKey := map[string]map[string]policy.ZoneNodes{}
	for _, p := range r.policies {
		key := p.TopologyKey()
		if byKey[key] == nil {
			byKey[key] = policy.NodesByZone(nodes, key)
		}
		p.zones.ObserveNodes(now, byKey[key])
	}
	return r
}

// sets returns the live pods of ReplicaSets and ReplicationControllers in the policies' namespaces, by their names.
func (r *reader) sets() []*podSet {
	byOwner := map[types.UID]*podSet{}
	if len(r.policies) == 0 {
		return nil
	}
	deployments := map[types.UID]int{} // how many ReplicaSets of theirs want pods
	replicaSets := snapshot.List[*appsv1.ReplicaSet](r.cluster)
	for _, set := range replicaSets {
		if over := metav1.GetControllerOfNoCopy(set); over != nil && ptr.Deref(set.Spec.Replicas, 1) > 0 {
			deployments[over.UID]++
		}
	}
	for _, set := range replicaSets {
		out := &podSet{name: nameOf("ReplicaSet", set), owner: set.UID}
		over := metav1.GetControllerOfNoCopy(set)
		out.workload = policy.WorkloadOf(set)
		if over != nil && over.Kind == "Deployment" && deployments[over.UID] > 1 {
			out.rollout = "Deployment " + set.Namespace + "/" + over.Name
		}
		byOwner[set.UID] = out
	}
	for _, controller := range snapshot.List[*v1.ReplicationController](r.cluster) {
		out := &podSet{name: nameOf("ReplicationController", controller), owner: controller.UID}
		if metav1.GetControllerOfNoCopy(controller) == nil {
			out.workload = policy.WorkloadOf(controller)
		}
		byOwner[controller.UID] = out
	}
	for _, pod := range r.live {
		over := metav1.GetControllerOfNoCopy(pod)
		if over == nil || byOwner[over.UID] == nil {
			continue
		}
		set := byOwner[over.UID]
		set.pods = append(set.pods, pod)
	}
	maps.DeleteFunc(byOwner, func(_ types.UID, set *podSet) bool { return len(set.pods) == 0 })
	for _, set := range byOwner {
		slices.SortFunc(set.pods, func(a, b *v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		for _, pod := range set.pods {
			set.foreign = cmp.Or(set.foreign, foreignCost(pod))
		}
	}
	return slices.SortedFunc(maps.Values(byOwner), func(a, b *podSet) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.owner, b.owner))
	})
}

// parts returns the pods of a set, those together for which one policy decides alike: labels may have been edited by
// hand. Pods that no policy selects are left out.
func (r *reader) parts(set *podSet) (out []*podSet) {
	byKey := map[string]*podSet{}
	var chosen *activePolicy
	for i, pod := range set.pods {
		if i == 0 || !maps.Equal(pod.Labels, set.pods[i-1].Labels) {
			chosen = r.policyOf(pod)
		}
		if chosen == nil {
			continue
		}
		eligible := counts.EligibilityOf(
			pod, chosen.HonorsAffinity(), chosen.HonorsTaints(), feature.TolerationOperators(),
		)
		key := chosen.Key() + "\x00" + chosen.Revision(pod.Labels) + "\x00" + counts.KeyOf(eligible)
		if byKey[key] == nil {
			part := *set
			part.pods, part.policy, part.eligible = nil, chosen, eligible
			byKey[key] = &part
			out = append(out, &part)
		}
		byKey[key].pods = append(byKey[key].pods, pod)
	}
	return out
}

// policyOf returns the policy that decides for a pod, the first by name of those that select it; nil if none does.
func (r *reader) policyOf(pod *v1.Pod) *activePolicy {
	var chosen *activePolicy
	for _, p := range r.policies {
		switch {
		case p.Namespace() != pod.Namespace || !p.Selects(pod.Labels):
		case chosen == nil:
			chosen = p
		default:
			p.overruled = chosen.Key()
		}
	}
	return chosen
}

// costs returns the costs of the pods of a part that have a place. Its table counts what the scheduler counts for a pod
// like these, but nodes that are cordoned, or that the node lifecycle has tainted, count like others: their pods are
// there, and costs are not to come and go with each node's maintenance.
func (r *reader) costs(part *podSet) map[*v1.Pod]int32 {
	p := part.policy
	eligible := counts.IgnoringLifecycle(part.eligible)
	table := r.table(part, eligible)
	change := func(zone string, pods int64) {
		c := policy.Change{Pods: pods}
		if p.Caps() {
			c.Held = -1 // otherwise it is not counted
		}
		table.Add(zone, c)
	}
	placed, own, elsewhere := map[string][]*v1.Pod{}, map[string]int{}, []*v1.Pod(nil)
	for _, pod := range part.pods {
		zone, counted, hasZone := "", false, false
		if node := r.nodes[pod.Spec.NodeName]; node != nil {
			zone, hasZone = node.node.Labels[p.TopologyKey()]
			counted = hasZone && counts.Admits(eligible, node.node)
		}
		has := pods.Ready(pod) || keepsPlace(pod, r.now)
		switch {
		case has && counted:
			placed[zone] = append(placed[zone], pod)
			own[zone]++
			continue
		case has:
			elsewhere = append(elsewhere, pod)
		}
		if counted {
			change(zone, -1)
		} else if hasZone {
			change(zone, 0)
		}
	}
	out, lowest := map[*v1.Pod]int32{}, int32(0)
	for zone, costs := range table.DeletionCosts(own) {
		assign(placed[zone], costs, out)
		lowest = min(lowest, slices.Min(costs))
	}
	for _, pod := range elsewhere { // where the policy would not have them, they leave first
		if current, ok := costOf(pod); ok && current < lowest {
			out[pod] = current
		} else if len(placed) > 0 {
			out[pod] = lowest - 1
		}
	}
	return out
}

// table returns that of the policy of a part for a pod like its pods.
func (r *reader) table(part *podSet, eligible counts.Eligibility) *policy.Table {
	p, like := part.policy, part.pods[0]
	pods := counted.For(p.Policy, &part.workload, like.Labels, eligible)
	in := policy.Input{
		Domains:      pods.Answered(p.Policy, like, nil, r.index.Count(pods.Queries(p.Policy, like, nil), nil)).Domains(nil),
		Replicas:     p.Replicas(&part.workload, p.live),
		Availability: p.zones.For(r.now, cmp.Or(part.workload.UID, part.owner)),
	}
	// A zone that has come back is to have its share, however long its recovery still takes.
	maps.DeleteFunc(in.Availability, func(_ string, a policy.Availability) bool { return a == policy.Recovering })
	return p.Evaluate(in)
}
