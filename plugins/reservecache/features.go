package reservecache

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/resource"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/reservations"
)

// ledgerOptions returns the rules by which kube-scheduler's NodeInfo reads pods under the feature gates of
// this process, so that ledger and snapshot agree. The gates are known by name, since k8s.io/kubernetes is
// not imported here; where a gate is unknown, it is one that has since become unconditional or that the
// program does not have, and the default of Kubernetes 1.37 applies.
func ledgerOptions() ledger.Options {
	return ledger.Options{Requests: resource.PodResourcesOptions{
		UseStatusResources: enabled("InPlacePodVerticalScaling", true),
		InPlacePodLevelResourcesVerticalScalingEnabled: enabled("InPlacePodLevelResourcesVerticalScaling", true),
		SkipPodLevelResources:                          !enabled("PodLevelResources", true),
		UseDRANodeAllocatableResourceClaimStatus:       enabled("DRANodeAllocatableResources", false),
	}}
}

// reservationOptions returns what the feature gates of this process say about slots.
func reservationOptions() []reservations.Option {
	return []reservations.Option{reservations.WithComparisonOperators(enabled("TaintTolerationComparisonOperators", false))}
}

func enabled(name featuregate.Feature, otherwise bool) bool {
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[name]; !known {
		return otherwise
	}
	return utilfeature.DefaultFeatureGate.Enabled(name)
}
