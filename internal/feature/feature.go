// Package feature reads kube-scheduler's feature gates.
//
// The gates are read by name, since plugins do not import the package that declares them,
// k8s.io/kubernetes/pkg/features.
package feature

import (
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// known are the gates that the process has, by name. A gate is never taken away, and to list them all is expensive.
var known sync.Map

// Enabled returns the value of a gate in this process. If the process does not have the gate, because it has been
// removed or is not registered, it returns otherwise, the default of Kubernetes 1.37.
func Enabled(gate featuregate.Feature, otherwise bool) bool {
	if _, cached := known.Load(gate); !cached {
		if _, registered := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !registered {
			return otherwise
		}
		known.Store(gate, true)
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}

// TolerationOperators reports whether tolerations may compare numbers (the operators Lt and Gt). The helpers of
// k8s.io/component-helpers take it as an argument.
func TolerationOperators() bool { return Enabled("TaintTolerationComparisonOperators", false) }
