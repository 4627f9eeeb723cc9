package proposal

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// verdict says whether a node without its pods can take a class.
type verdict uint8

const (
	possible verdict = iota
	cordoned
	tainted
	mismatched
)

// words describes a verdict.
func (v verdict) words() string {
	return [...]string{"possible", "cordoned", "tainted", "outside of the node selector or affinity"}[v]
}

// judge checks what a class asks of a node without its pods.
type judge struct {
	filters         Filters
	tolerations     []v1.Toleration
	affinity        nodeaffinity.RequiredNodeAffinity
	selects         bool
	toleratesCordon bool
}

func newJudge(pod *v1.Pod, filters Filters) *judge {
	j := &judge{filters: filters, tolerations: pod.Spec.Tolerations}
	if filters.Selectors {
		j.selects = len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil
		j.affinity = nodeaffinity.GetRequiredNodeAffinity(pod)
	}
	j.toleratesCordon = j.tolerates(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	return j
}

func (j *judge) node(node *v1.Node) verdict {
	if j.filters.Cordons && node.Spec.Unschedulable && !j.toleratesCordon {
		return cordoned
	}
	if j.filters.Taints {
		for i := range node.Spec.Taints {
			if taint := &node.Spec.Taints[i]; taint.Effect != v1.TaintEffectPreferNoSchedule && !j.tolerates(taint) {
				return tainted
			}
		}
	}
	if j.selects {
		// A selector that does not parse matches no node, as in the plugin NodeAffinity.
		if match, err := j.affinity.Match(node); err != nil || !match {
			return mismatched
		}
	}
	return possible
}

func (j *judge) tolerates(taint *v1.Taint) bool {
	for i := range j.tolerations {
		if silently(j.tolerations[i].ToleratesTaint, taint, j.filters.TolerationOperators) {
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
