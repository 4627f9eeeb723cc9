package zonespread

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// The gates of kube-scheduler that change what PodTopologySpread decides. They are looked up by name,
// since the package that declares them is not importable from a plugin. NodeInclusionPolicyInPodTopologySpread
// is not among them: it is locked on.
const (
	gateMatchLabelKeys       featuregate.Feature = "MatchLabelKeysInPodTopologySpread"
	gateComparisonOperators  featuregate.Feature = "TaintTolerationComparisonOperators"
	gateDeferredResizeFilter featuregate.Feature = "InPlacePodVerticalScalingSchedulerPreemption"
)

// features are the gates' values at the time the plugin was made.
type features struct {
	matchLabelKeys       bool
	comparisonOperators  bool
	skipDeferredResizing bool
}

// currentFeatures reads the process's feature gates. A gate that this binary does not know has the
// value that it has by default in Kubernetes 1.37.
func currentFeatures() features {
	return features{
		matchLabelKeys:       enabled(gateMatchLabelKeys, true),
		comparisonOperators:  enabled(gateComparisonOperators, false),
		skipDeferredResizing: enabled(gateDeferredResizeFilter, false),
	}
}

func enabled(gate featuregate.Feature, otherwise bool) bool {
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !known {
		return otherwise
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}
