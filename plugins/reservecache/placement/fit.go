package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Unfit says why a node may not take slots of a claim, whatever its room; empty if it may.
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

// Fit decides which nodes may take slots. Make one with NewFit; it does not change.
type Fit struct {
	selector    []label
	tolerations []v1.Toleration
	comparisons bool
	// key is the same for equal fits, which share one count of the nodes.
	key string
}

type label struct{ key, value string }

// NewFit returns the fit of pods with that node selector and those tolerations. comparisons tells whether tolerations
// may compare numbers, which is the scheduler's feature gate TaintTolerationComparisonOperators.
func NewFit(nodeSelector map[string]string, tolerations []v1.Toleration, comparisons bool) *Fit {
	f := &Fit{tolerations: slices.Clone(tolerations), comparisons: comparisons}
	for _, name := range slices.Sorted(maps.Keys(nodeSelector)) {
		f.selector = append(f.selector, label{name, nodeSelector[name]})
	}
	var key strings.Builder
	fmt.Fprintf(&key, "%q %t", f.selector, f.comparisons)
	for i := range f.tolerations {
		t := &f.tolerations[i]
		fmt.Fprintf(&key, " %q %q %q %q", t.Key, t.Operator, t.Value, t.Effect)
	}
	f.key = key.String()
	return f
}

// Takes reports whether a node may take slots, whatever its room.
func (f *Fit) Takes(n *v1.Node) bool { return f.Unfit(n) == "" }

// Unfit says why a node may not take slots, whatever its room; empty if it may.
func (f *Fit) Unfit(n *v1.Node) Unfit {
	for i := range f.selector {
		if value, has := n.Labels[f.selector[i].key]; !has || value != f.selector[i].value {
			return NotSelected
		}
	}
	if n.DeletionTimestamp != nil || unready(n) {
		return NotReady
	}
	if n.Spec.Unschedulable && !f.tolerates(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}) {
		return Cordoned
	}
	if len(n.Spec.Taints) == 0 {
		return ""
	}
	taint, found := schedulingv1.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, f.tolerations, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule
	}, f.comparisons)
	switch {
	case !found:
		return ""
	case taint.Key == v1.TaintNodeUnschedulable:
		return Cordoned
	case taint.Key == v1.TaintNodeNotReady || taint.Key == v1.TaintNodeUnreachable:
		return NotReady
	}
	return Tainted
}

func (f *Fit) tolerates(taint *v1.Taint) bool {
	return schedulingv1.TolerationsTolerateTaint(klog.Logger{}, f.tolerations, taint, f.comparisons)
}

// unready reports whether a node's Ready condition is False or Unknown.
func unready(n *v1.Node) bool {
	status := ledger.Ready(n)
	return status != "" && status != v1.ConditionTrue
}
