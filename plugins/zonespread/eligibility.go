package zonespread

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/zonespread/counts"
)

// inclusion makes the eligibility of nodes for one pod (KEP-3094, node inclusion policies).
type inclusion struct {
	pod                 *v1.Pod
	comparisonOperators bool
	affinity            *nodeaffinity.RequiredNodeAffinity // made at first need
}

func newInclusion(pod *v1.Pod, comparisonOperators bool) *inclusion {
	return &inclusion{pod: pod, comparisonOperators: comparisonOperators}
}

// eligibility returns which nodes count under the given policies, or nil when all do.
func (in *inclusion) eligibility(honorAffinity, honorTaints bool) counts.Eligibility {
	honorAffinity = honorAffinity && hasRequiredAffinity(in.pod)
	if !honorAffinity && !honorTaints {
		return nil
	}
	e := &nodeEligibility{honorTaints: honorTaints, comparisonOperators: in.comparisonOperators}
	var key keyWriter
	if honorAffinity {
		if in.affinity == nil {
			affinity := nodeaffinity.GetRequiredNodeAffinity(in.pod)
			in.affinity = &affinity
		}
		e.affinity = in.affinity
		key.affinity(in.pod)
	}
	if honorTaints {
		e.tolerations = in.pod.Spec.Tolerations
		key.tolerations(in.pod.Spec.Tolerations)
	}
	e.key = key.String()
	return e
}

func hasRequiredAffinity(pod *v1.Pod) bool {
	if len(pod.Spec.NodeSelector) > 0 {
		return true
	}
	a := pod.Spec.Affinity
	return a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// nodeEligibility implements counts.Eligibility for a pod's node affinity and tolerations.
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
	// The helper logs what it cannot parse, once per node and pod; the zero Logger drops that here, since
	// the TaintToleration plugin says the same of the same pod.
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, e.tolerations,
		keepsPodsAway, e.comparisonOperators)
	return !untolerated
}

// keepsPodsAway picks the taints that matter for spreading; PreferNoSchedule is a preference.
func keepsPodsAway(taint *v1.Taint) bool {
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
	for _, key := range sortedKeys(pod.Spec.NodeSelector) {
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
