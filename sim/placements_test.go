package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
)

// TestCopiesTryAllPlacements: where a pod group goes that is to stay in one zone is the same in each copy, the best of
// all. From Kubernetes 1.38 on the scheduler tries one of two, picked at random, as soon as there are 56 nodes.
func TestCopiesTryAllPlacements(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.TopologyAwareWorkloadScheduling, true)
	var objects []client.Object
	for i := range 30 {
		objects = append(objects, node(fmt.Sprintf("a-%d", i), "a", "1"), node(fmt.Sprintf("b-%d", i), "b", "1"))
	}
	objects = append(objects, node("a", "a", "2"), node("b-30", "b", "2"), node("b-31", "b", "2"))
	gang := nativeGang("gang", 2)
	spec := &gang[0].(*kinds.NativePodGroup).Spec
	spec.SchedulingPolicy.Gang.MinCount = 1
	spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: v1.LabelTopologyZone}}}
	objects = append(objects, gang...)
	for range 6 {
		require.Equal(t, map[string]int{"b": 2}, zonesOf(run(t, objects, sim.Options{}), "gang"), "zone a has room for one of them")
	}
}
