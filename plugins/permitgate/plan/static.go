package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// verdict is what a node by itself is to a class, whatever else the plan does.
type verdict uint8

const (
	possible verdict = iota
	cordoned
	tainted
	mismatched
	portTaken
	noTopologyKey
	excluded
)

// words says in words what a verdict is; excluded has the caller's.
func (v verdict) words() string {
	return [...]string{
		"possible", "cordoned", "tainted", "outside of the node selector or affinity",
		"with its host port taken", "without the topology key", "excluded",
	}[v]
}

// judgeNodes computes the static verdicts of a class.
func (p *planner) judgeNodes(c *class) {
	pod := c.pods[0]
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	toleratesCordon := tolerated(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}, pod.Spec.Tolerations, p.ComparisonOperators)
	hard := hardKeys(pod)
	c.static = make([]verdict, p.n)
	p.each(func(i int) {
		node := p.Cluster.Node(i)
		c.static[i] = p.judge(c, i, node, pod, &affinity, toleratesCordon, hard)
	})
}

func (p *planner) judge(c *class, i int, node *v1.Node, pod *v1.Pod, affinity *nodeaffinity.RequiredNodeAffinity, toleratesCordon bool, hard []string) verdict {
	if node.Spec.Unschedulable && !toleratesCordon {
		return cordoned
	}
	if !toleratesNode(node, pod.Spec.Tolerations, p.ComparisonOperators) {
		return tainted
	}
	// A selector that does not parse matches no node, as in the plugin NodeAffinity.
	if match, err := affinity.Match(node); err != nil || !match {
		return mismatched
	}
	for _, key := range hard {
		if _, ok := node.Labels[key]; !ok {
			return noTopologyKey
		}
	}
	for k := range c.ports {
		if p.Cluster.PortTaken(i, &c.ports[k]) {
			return portTaken
		}
	}
	if c.excluded != nil {
		if _, ok := c.excluded.Nodes[node.Name]; ok && !p.lifted(c.excluded.Unless[node.Name], i) {
			return excluded
		}
	}
	return possible
}

// lifted reports whether an exclusion that pods cause is over: there are such pods, and none of them is on the node.
func (p *planner) lifted(unless []types.UID, node int) bool {
	if len(unless) == 0 {
		return false
	}
	for pod := range p.Cluster.Pods(node) {
		if slices.Contains(unless, pod.UID) {
			return false
		}
	}
	return true
}

// hardKeys lists the topology keys of a pod's hard spread constraints: a node needs all of them.
func hardKeys(pod *v1.Pod) []string {
	var keys []string
	for i := range pod.Spec.TopologySpreadConstraints {
		if c := &pod.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == v1.DoNotSchedule {
			keys = append(keys, c.TopologyKey)
		}
	}
	return keys
}

// toleratesNode reports whether the tolerations let a pod onto a node.
func toleratesNode(node *v1.Node, tolerations []v1.Toleration, comparisonOperators bool) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != v1.TaintEffectNoSchedule && taint.Effect != v1.TaintEffectNoExecute {
			continue
		}
		if !tolerated(taint, tolerations, comparisonOperators) {
			return false
		}
	}
	return true
}

func tolerated(taint *v1.Taint, tolerations []v1.Toleration, comparisonOperators bool) bool {
	for i := range tolerations {
		if silently(tolerations[i].ToleratesTaint, taint, comparisonOperators) {
			return true
		}
	}
	return false
}

// silently calls a method that wants a logger with one that drops everything, its zero value: a pure
// package logs nothing, and the scheduler's TaintToleration plugin complains about the same toleration.
func silently[Logger any](tolerates func(Logger, *v1.Taint, bool) bool, taint *v1.Taint, comparisonOperators bool) bool {
	var nowhere Logger
	return tolerates(nowhere, taint, comparisonOperators)
}
