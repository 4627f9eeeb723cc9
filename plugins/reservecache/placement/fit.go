package placement

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Unfit is why a node takes no slots of a demand, be there room or not; empty when it may.
type Unfit string

// The reasons, as they read after a number of nodes.
const (
	// NotSelected means that the node does not match the slots' node selector.
	NotSelected Unfit = "not selected"
	// Cordoned means that the node is unschedulable and the slots do not tolerate that.
	Cordoned Unfit = "cordoned"
	// NotReady means that the node's Ready condition is not True, or that the node is being deleted.
	NotReady Unfit = "not ready"
	// Tainted means that the node has a NoSchedule or NoExecute taint that the slots do not tolerate.
	Tainted Unfit = "tainted"
)

// Fit tells which nodes may take slots. Make one with NewFit; it does not change.
type Fit struct {
	selector    labels.Selector
	tolerations []v1.Toleration
	comparisons bool
	// key is equal for fits that judge alike, which then share one evaluation of each node.
	key string
}

// NewFit returns the fit of pods with that node selector and those tolerations. comparisonOperators tells
// whether tolerations may compare numbers, which is the scheduler's feature gate
// TaintTolerationComparisonOperators.
func NewFit(nodeSelector map[string]string, tolerations []v1.Toleration, comparisonOperators bool) *Fit {
	f := &Fit{selector: labels.SelectorFromSet(nodeSelector), tolerations: slices.Clone(tolerations), comparisons: comparisonOperators}
	var key strings.Builder
	fmt.Fprintf(&key, "%q %t", f.selector.String(), f.comparisons)
	for i := range f.tolerations {
		t := &f.tolerations[i]
		fmt.Fprintf(&key, " %q %q %q %q", t.Key, t.Operator, t.Value, t.Effect)
	}
	f.key = key.String()
	return f
}

// Of judges a node.
func (f *Fit) Of(n *v1.Node) Unfit {
	if !f.selector.Matches(labels.Set(n.Labels)) {
		return NotSelected
	}
	if n.DeletionTimestamp != nil {
		return NotReady
	}
	unschedulable := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if n.Spec.Unschedulable && !f.tolerates(&unschedulable) {
		return Cordoned
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			return NotReady
		}
	}
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == v1.TaintEffectPreferNoSchedule || f.tolerates(t) {
			continue
		}
		switch t.Key {
		case v1.TaintNodeUnschedulable:
			return Cordoned
		case v1.TaintNodeNotReady, v1.TaintNodeUnreachable:
			return NotReady
		}
		return Tainted
	}
	return ""
}

func (f *Fit) tolerates(taint *v1.Taint) bool {
	for i := range f.tolerations {
		if silently(f.tolerations[i].ToleratesTaint, taint, f.comparisons) {
			return true
		}
	}
	return false
}

// silently calls a method that wants a logger with one that writes nowhere: this package logs nothing, and a
// toleration whose number cannot be read tolerates nothing.
func silently[Logger any](tolerates func(Logger, *v1.Taint, bool) bool, taint *v1.Taint, comparisonOperators bool) bool {
	var nowhere Logger
	return tolerates(nowhere, taint, comparisonOperators)
}
