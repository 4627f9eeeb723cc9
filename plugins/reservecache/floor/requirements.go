package floor

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

// NodeRequirements say which nodes may have slots, whatever their room: by the slots' node selector and tolerations,
// and by the node being ready. Make them with NewNodeRequirements; they do not change.
type NodeRequirements struct {
	selector    []label
	tolerations []v1.Toleration
	comparisons bool
	// key is the same for equal requirements.
	key string
}

// anyReady are met by every node that is ready.
var anyReady = NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false)

type label struct{ key, value string }

// NewNodeRequirements returns those of slots with that node selector and those tolerations. comparisons tells whether
// tolerations may compare numbers, which is the scheduler's feature gate TaintTolerationComparisonOperators.
func NewNodeRequirements(nodeSelector map[string]string, tolerations []v1.Toleration, comparisons bool) *NodeRequirements {
	r := &NodeRequirements{tolerations: slices.Clone(tolerations), comparisons: comparisons}
	for _, name := range slices.Sorted(maps.Keys(nodeSelector)) {
		r.selector = append(r.selector, label{name, nodeSelector[name]})
	}
	var key strings.Builder
	fmt.Fprintf(&key, "%q %t", r.selector, r.comparisons)
	for i := range r.tolerations {
		t := &r.tolerations[i]
		fmt.Fprintf(&key, " %q %q %q %q", t.Key, t.Operator, t.Value, t.Effect)
	}
	r.key = key.String()
	return r
}

// MetBy reports whether a node may have slots: it matches the selector, is ready and not being deleted, and the slots
// tolerate that it is cordoned, and its NoSchedule and NoExecute taints; of those for nodes that are not ready or
// unreachable the NoSchedule ones alone.
func (r *NodeRequirements) MetBy(n *v1.Node) bool {
	for i := range r.selector {
		if value, has := n.Labels[r.selector[i].key]; !has || value != r.selector[i].value {
			return false
		}
	}
	if n.DeletionTimestamp != nil || ledger.Unready(n) {
		return false
	}
	if n.Spec.Unschedulable && !r.tolerates(&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}) {
		return false
	}
	if len(n.Spec.Taints) == 0 {
		return true
	}
	_, untolerated := schedulingv1.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, r.tolerations, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule && !outlastsReady(t)
	}, r.comparisons)
	return !untolerated
}

// outlastsReady reports whether a taint says for a moment longer than the condition Ready that a node is not ready. All
// pods tolerate it by default (DefaultTolerationSeconds), and would take the room of a node that is back before it is
// held.
func outlastsReady(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoExecute && (t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable)
}

func (r *NodeRequirements) tolerates(taint *v1.Taint) bool {
	return schedulingv1.TolerationsTolerateTaint(klog.Logger{}, r.tolerations, taint, r.comparisons)
}
