package policies

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/policy"
)

// Query asks how the pods that count for an incoming pod are spread.
type Query struct {
	// Pod is the incoming pod. Pods of its namespace count that match Selector and do not terminate.
	Pod      *v1.Pod
	Selector labels.Selector
	// TopologyKey is the node label whose values are the zones; nodes without it are in none.
	TopologyKey string
	// HonorAffinity and HonorTaints say whether nodes that the incoming pod's node selector and required affinity
	// exclude, or its tolerations, are ineligible.
	HonorAffinity, HonorTaints bool
}

// Counter answers queries about the snapshot of a scheduling cycle.
type Counter interface {
	// Domains returns one domain per zone of the cluster, in any order.
	Domains(q Query) []policy.Domain
}

// Direct counts by looking at every pod of every node. Its cost is the number of pods in the cluster.
type Direct struct {
	// Nodes are all nodes of the snapshot.
	Nodes []fwk.NodeInfo
	// ComparisonOperators tells whether tolerations may compare numbers (the feature gate
	// TaintTolerationComparisonOperators).
	ComparisonOperators bool
}

// Domains implements Counter.
func (d Direct) Domains(q Query) []policy.Domain {
	in := newInclusion(&q, d.ComparisonOperators)
	index := map[string]int{}
	var domains []policy.Domain
	for _, info := range d.Nodes {
		node := info.Node()
		zone, ok := node.Labels[q.TopologyKey]
		if !ok {
			continue
		}
		i, seen := index[zone]
		if !seen {
			i = len(domains)
			index[zone] = i
			domains = append(domains, policy.Domain{Name: zone, Excluded: true})
		}
		domain := &domains[i]
		admitted := in.admits(node)
		eligible := admitted && in.tolerates(node)
		domain.Excluded = domain.Excluded && !admitted
		domain.Eligible = domain.Eligible || eligible
		pods := int64(0)
		for _, p := range info.GetPods() {
			pod := p.GetPod()
			if pod.DeletionTimestamp == nil && pod.Namespace == q.Pod.Namespace && q.Selector.Matches(labels.Set(pod.Labels)) {
				pods++
			}
		}
		domain.AllPods += pods
		if eligible {
			domain.Pods += pods
		}
	}
	return domains
}

// inclusion says which nodes are eligible for a pod, as far as a policy honors what excludes them.
type inclusion struct {
	affinity            *nodeaffinity.RequiredNodeAffinity // nil when it excludes nothing
	taints              bool
	tolerations         []v1.Toleration
	comparisonOperators bool
}

func newInclusion(q *Query, comparisonOperators bool) *inclusion {
	in := &inclusion{taints: q.HonorTaints, tolerations: q.Pod.Spec.Tolerations, comparisonOperators: comparisonOperators}
	if q.HonorAffinity {
		affinity := nodeaffinity.GetRequiredNodeAffinity(q.Pod)
		in.affinity = &affinity
	}
	return in
}

// admits tells whether node selector and required affinity let the pod onto the node. A selector that does not parse
// matches no node, as in the plugin NodeAffinity.
func (in *inclusion) admits(node *v1.Node) bool {
	if in.affinity == nil {
		return true
	}
	match, err := in.affinity.Match(node)
	return err == nil && match
}

// tolerates tells whether the pod tolerates the node's taints. The helper logs what it can not parse; the plugin
// TaintToleration says the same of the same pod.
func (in *inclusion) tolerates(node *v1.Node) bool {
	if !in.taints {
		return true
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, in.tolerations,
		func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, in.comparisonOperators)
	return !untolerated
}

func (in *inclusion) eligible(node *v1.Node) bool { return in.admits(node) && in.tolerates(node) }
