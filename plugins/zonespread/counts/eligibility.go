package counts

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Eligibility is the part of a pod's spec that decides whether a node takes part in its spreading.
type Eligibility interface {
	// Key identifies the decision: equal keys mean equal answers for every node. It is not empty.
	Key() string
	// Eligible looks at the name, labels and taints of the node, and at nothing else of it.
	Eligible(node *v1.Node) bool
}

// EligibilityOf returns which nodes count for the spreading of a pod, by its node selector, required node affinity and
// tolerations, as far as the node inclusion policies (KEP-3094) honor them; nil if all nodes count.
// comparisonOperators reports whether tolerations may compare numbers.
func EligibilityOf(pod *v1.Pod, honorAffinity, honorTaints, comparisonOperators bool) Eligibility {
	honorAffinity = honorAffinity && hasRequiredAffinity(pod)
	if !honorAffinity && !honorTaints {
		return nil
	}
	e := &nodeEligibility{honorTaints: honorTaints, comparisonOperators: comparisonOperators}
	var key keyWriter
	if honorAffinity {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		e.affinity = &affinity
		key.affinity(pod)
	}
	if honorTaints {
		e.tolerations = pod.Spec.Tolerations
		key.tolerations(pod.Spec.Tolerations)
	}
	e.key = key.String()
	return e
}

// KeyOf is the key of an eligibility that may be nil; empty then.
func KeyOf(e Eligibility) string {
	if e == nil {
		return ""
	}
	return e.Key()
}

// Admits reports whether a node is eligible; with a nil eligibility every node is.
func Admits(e Eligibility, node *v1.Node) bool { return e == nil || e.Eligible(node) }

func hasRequiredAffinity(pod *v1.Pod) bool {
	if len(pod.Spec.NodeSelector) > 0 {
		return true
	}
	a := pod.Spec.Affinity
	return a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// nodeEligibility implements Eligibility for a pod's node affinity and tolerations.
type nodeEligibility struct {
	key                 string
	affinity            *nodeaffinity.RequiredNodeAffinity // nil when ignored
	honorTaints         bool
	tolerations         []v1.Toleration
	comparisonOperators bool
}

func (e *nodeEligibility) Key() string { return e.key }

func (e *nodeEligibility) Eligible(node *v1.Node) bool {
	if e.affinity != nil {
		// A selector that does not parse matches no node, as in NodeAffinity and PodTopologySpread.
		if match, err := e.affinity.Match(node); err != nil || !match {
			return false
		}
	}
	if !e.honorTaints {
		return true
	}
	// The helper logs what it cannot parse, once per node and pod. The zero Logger drops that, since
	// the TaintToleration plugin says the same of the same pod.
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, e.tolerations,
		KeepsPodsAway, e.comparisonOperators)
	return !untolerated
}

// KeepsPodsAway picks the taints that matter for spreading; PreferNoSchedule is a preference.
func KeepsPodsAway(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}

// keyWriter writes parts of a pod's spec so that different specs read differently. Strings are written
// with their length, so that no value can imitate what separates values.
type keyWriter struct{ strings.Builder }

func (w *keyWriter) text(s string) {
	w.WriteString(strconv.Itoa(len(s)))
	w.WriteByte(':')
	w.WriteString(s)
}

func (w *keyWriter) affinity(pod *v1.Pod) {
	w.WriteByte('s')
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		w.text(key)
		w.text(pod.Spec.NodeSelector[key])
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	w.WriteByte('a')
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		w.WriteByte('|')
		w.requirements('e', term.MatchExpressions)
		w.requirements('f', term.MatchFields)
	}
}

func (w *keyWriter) requirements(kind byte, requirements []v1.NodeSelectorRequirement) {
	for _, r := range requirements {
		w.WriteByte(kind)
		w.text(r.Key)
		w.text(string(r.Operator))
		for _, value := range r.Values {
			w.text(value)
		}
	}
}

func (w *keyWriter) tolerations(tolerations []v1.Toleration) {
	w.WriteByte('t')
	for _, t := range tolerations {
		w.WriteByte('|')
		w.text(t.Key)
		w.text(string(t.Operator))
		w.text(t.Value)
		w.text(string(t.Effect))
	}
}
