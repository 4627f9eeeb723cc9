package counts

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// PodInfo is the part of fwk.PodInfo that is used here.
type PodInfo interface {
	GetPod() *v1.Pod
}

// NodeInfo is a node of a snapshot with its pods; fwk.NodeInfo is one.
type NodeInfo[P PodInfo] interface {
	Node() *v1.Node
	GetPods() []P
}

// PerNode is the topology key that makes each node a domain of its own, named like the node. No label
// can have this key.
const PerNode = "(node)"

// Query asks for the matching pods per domain.
type Query struct {
	// Namespace and Selector say which pods match. A selector without requirements matches all.
	Namespace string
	Selector  labels.Selector
	// GroupBy, when it is not empty, is a pod label: the pods that have one value of it count as one in each domain
	// that has one of them. Pods without a value count one by one. The pods of the value ExceptGroup do not count.
	GroupBy, ExceptGroup string
	// TopologyKey is the node label whose values are the domains, or PerNode.
	TopologyKey string
	// RequiredKeys are node labels that a node must have to be eligible, whatever their values.
	RequiredKeys []string
	// MissingIsEmpty lets nodes without the topology key form the domain of the empty value; otherwise
	// they belong to no domain.
	MissingIsEmpty bool
	// Eligibility says which nodes count; nil means all that have the required keys.
	Eligibility Eligibility
}

// matches reports whether a pod counts for the query.
func (q *Query) matches(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Namespace == q.Namespace && q.Selector.Matches(labels.Set(pod.Labels))
}

// groupOf returns the group that a matching pod belongs to; false if it counts by itself.
func (q *Query) groupOf(pod *v1.Pod) (string, bool) {
	if q.GroupBy == "" {
		return "", false
	}
	value := pod.Labels[q.GroupBy]
	return value, value != ""
}

// eligible reports whether a node takes part, apart from its having a domain.
func (q *Query) eligible(node *v1.Node) bool {
	for _, key := range q.RequiredKeys {
		if _, ok := node.Labels[key]; !ok {
			return false
		}
	}
	return Admits(q.Eligibility, node)
}

// domainOf returns the node's value of the query's topology, and whether it has one.
func (q *Query) domainOf(node *v1.Node) (string, bool) {
	value, ok := valueOf(q.TopologyKey, node)
	return value, ok || q.MissingIsEmpty
}
