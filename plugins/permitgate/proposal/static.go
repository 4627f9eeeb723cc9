package proposal

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// nodeVerdict says whether a node without its pods can take a class.
type nodeVerdict uint8

const (
	possible nodeVerdict = iota
	cordoned
	tainted
	mismatched
)

// words describes a verdict.
func (v nodeVerdict) words() string {
	return [...]string{"possible", "cordoned", "tainted", "outside of the node selector or affinity"}[v]
}

// staticFilters checks what a class asks of a node without its pods.
type staticFilters struct {
	operators       bool // tolerations may compare numbers
	tolerations     []v1.Toleration
	affinity        nodeaffinity.RequiredNodeAffinity
	selects         bool
	toleratesCordon bool
}

func newStaticFilters(pod *v1.Pod, operators bool) *staticFilters {
	f := &staticFilters{
		operators: operators, tolerations: pod.Spec.Tolerations, affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
		selects: len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil,
	}
	f.toleratesCordon = f.tolerates(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	return f
}

func (f *staticFilters) check(node *v1.Node) nodeVerdict {
	if node.Spec.Unschedulable && !f.toleratesCordon {
		return cordoned
	}
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; taint.Effect != v1.TaintEffectPreferNoSchedule && !f.tolerates(taint) {
			return tainted
		}
	}
	if f.selects {
		// A selector that does not parse matches no node, as in the plugin NodeAffinity.
		if match, err := f.affinity.Match(node); err != nil || !match {
			return mismatched
		}
	}
	return possible
}

func (f *staticFilters) tolerates(taint *v1.Taint) bool {
	for i := range f.tolerations {
		if silently(f.tolerations[i].ToleratesTaint, taint, f.operators) {
			return true
		}
	}
	return false
}

// silently calls a method that wants a logger with the zero value, which drops everything: a pure package does
// not log, and the scheduler's TaintToleration plugin logs the same errors.
func silently[Logger any](tolerates func(Logger, *v1.Taint, bool) bool, taint *v1.Taint, comparisonOperators bool) bool {
	var nowhere Logger
	return tolerates(nowhere, taint, comparisonOperators)
}
