package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/reservecache"
)

// TestFeatureGatesApply: the ledger reads pods as the scheduler's NodeInfo does under the same gates.
func TestFeatureGatesApply(t *testing.T) {
	podLevel := st.MakePod().Namespace("default").Name("p").UID("p").Node("n1").Req(map[v1.ResourceName]string{"cpu": "1"}).Obj()
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
	for name, tc := range map[string]struct {
		gates    featuregatetesting.FeatureOverrides
		milliCPU int64
	}{
		"defaults":                    {milliCPU: 3000},
		"without pod-level resources": {gates: featuregatetesting.FeatureOverrides{features.PodLevelResources: false, features.InPlacePodLevelResourcesVerticalScaling: false}, milliCPU: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, tc.gates)
			shared := reservecache.NewShared(reservecache.WithComparisons())
			fw := newFramework(t, shared, []*v1.Node{st.MakeNode().Name("n1").UID("n1").Obj()}, []*v1.Pod{podLevel.DeepCopy()})
			_, status, _ := fw.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), st.MakePod().Namespace("default").Name("q").UID("q").Obj())
			require.True(t, status.IsSuccess(), status.AsError())
			got, known := shared.Ledger().GetPod("p")
			require.True(t, known)
			require.Equal(t, tc.milliCPU, got.Requests.MilliCPU)
			require.Equal(t, reservecache.Comparison{Count: 1, Differences: []string{}}, shared.Comparison())
		})
	}
}
