// Package feature reads kube-scheduler's feature gates.
//
// The gates are read by name, since plugins do not import the package that declares them, k8s.io/kubernetes/pkg/features.
package feature

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// Enabled returns the value of a gate in this process. If the process does not have the gate, because it has been
// removed or is not registered, it returns otherwise, the default of Kubernetes 1.37.
func Enabled(gate featuregate.Feature, otherwise bool) bool {
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !known {
		return otherwise
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}

// TolerationOperators reports whether tolerations may compare numbers (the operators Lt and Gt). The helpers of
// k8s.io/component-helpers take it as an argument.
func TolerationOperators() bool { return Enabled("TaintTolerationComparisonOperators", false) }
