package simulate

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// keepsGroupPreemptionPolicy reports whether the API server gives a PodGroup the preemption policy of its
// PriorityClass.
func keepsGroupPreemptionPolicy() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.PodGroupPreemptionPolicy)
}
