package permitgate

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// gateComparisonOperators is kube-scheduler's gate for tolerations that compare numbers. It is looked up by
// name, since the package that declares it is not importable from a plugin.
const gateComparisonOperators featuregate.Feature = "TaintTolerationComparisonOperators"

// comparisonOperators reads the gate; a binary that does not know it does not compare.
func comparisonOperators() bool {
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gateComparisonOperators]
	return known && utilfeature.DefaultFeatureGate.Enabled(gateComparisonOperators)
}
