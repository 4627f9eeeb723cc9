package counts

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	required := requiredAffinity(pod)
	honorAffinity = honorAffinity && (len(pod.Spec.NodeSelector) > 0 || required != nil)
	if !honorAffinity && !honorTaints {
		return nil
	}
	e := &nodeEligibility{key: "n", honorTaints: honorTaints, comparisonOperators: comparisonOperators}
	var decisive v1.PodSpec
	if honorAffinity {
		affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
		e.affinity, e.node = &affinity, nodeNamedBy(required)
		decisive.NodeSelector = pod.Spec.NodeSelector
		if required != nil {
			nodes := &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
			decisive.Affinity = &v1.Affinity{NodeAffinity: nodes}
		}
	}
	if honorTaints {
		e.key = "t"
		e.tolerations = pod.Spec.Tolerations
		decisive.Tolerations = pod.Spec.Tolerations
	}
	encoded, err := decisive.Marshal() // equal for equal specs
	if err != nil {
		panic(err) // there is room for all of it
	}
	e.key += string(encoded)
	return e
}

// KeyOf is the key of an eligibility, empty of nil, for which all nodes are eligible.
func KeyOf(e Eligibility) string {
	if e == nil {
		return ""
	}
	return e.Key()
}

// IgnoringLifecycle returns an eligibility to which the taints that the node lifecycle sets (node.kubernetes.io/...)
// make no difference.
func IgnoringLifecycle(e Eligibility) Eligibility {
	n, ok := e.(*nodeEligibility)
	if !ok || !n.honorTaints {
		return e
	}
	ignoring := *n
	ignoring.ignoreLifecycle = true
	ignoring.key = "l" + n.key
	return &ignoring
}

// lifecycleTaint begins the keys of the taints that the node lifecycle sets.
const lifecycleTaint = "node.kubernetes.io/"

func requiredAffinity(pod *v1.Pod) *v1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// Admits reports whether a node is eligible; with a nil eligibility every node is.
func Admits(e Eligibility, node *v1.Node) bool { return e == nil || e.Eligible(node) }

// singleNode returns the name of the only node that may be eligible, as for the pods of a DaemonSet; false if there may
// be more.
func singleNode(e Eligibility) (string, bool) {
	n, ok := e.(*nodeEligibility)
	if !ok || n.node == "" {
		return "", false
	}
	return n.node, true
}

// nodeNamedBy returns the name that a selector demands of a node by its fields; empty if more than one node may match.
func nodeNamedBy(required *v1.NodeSelector) string {
	if required == nil || len(required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, r := range required.NodeSelectorTerms[0].MatchFields {
		if r.Key == metav1.ObjectNameField && r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}

// nodeEligibility implements Eligibility for a pod's node affinity and tolerations.
type nodeEligibility struct {
	key string
	// the only node that may be eligible; empty if there may be more
	node                string
	affinity            *nodeaffinity.RequiredNodeAffinity // nil when ignored
	honorTaints         bool
	ignoreLifecycle     bool // see IgnoringLifecycle
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
	counts := KeepsPodsAway
	if e.ignoreLifecycle {
		counts = func(taint *v1.Taint) bool {
			return KeepsPodsAway(taint) && !strings.HasPrefix(taint.Key, lifecycleTaint)
		}
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, e.tolerations, counts,
		e.comparisonOperators)
	return !untolerated
}

// KeepsPodsAway picks the taints that matter for spreading; PreferNoSchedule is a preference.
func KeepsPodsAway(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
