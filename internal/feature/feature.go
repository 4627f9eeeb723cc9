// Package feature reads kube-scheduler's feature gates.
//
// The gates are known by name, since the package that declares them, k8s.io/kubernetes/pkg/features, is not imported by
// plugins.
package feature

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// Enabled returns the value of a gate in this process. A gate that the process does not have is one that has become
// unconditional or that the program does not register: otherwise is then the answer, the default of Kubernetes 1.37.
func Enabled(gate featuregate.Feature, otherwise bool) bool {
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !known {
		return otherwise
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}

// TolerationOperators reports whether tolerations may compare numbers (the operators Lt and Gt). The helpers of
// k8s.io/component-helpers take it as an argument.
func TolerationOperators() bool { return Enabled("TaintTolerationComparisonOperators", false) }
