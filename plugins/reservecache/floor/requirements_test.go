package floor_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/test/build"
)

func TestWhichNodesMeetRequirements(t *testing.T) {
	seconds := int64(5)
	gpuNode := build.Node("n", "a", "4")
	gpuNode.Labels["pool"] = "gpu"
	gpuNode.Spec.Taints = []v1.Taint{{Key: "gpu", Value: "8", Effect: v1.TaintEffectNoSchedule}, {Key: "soft", Effect: v1.TaintEffectPreferNoSchedule}}
	gpu := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpEqual, Value: "8", TolerationSeconds: &seconds}}
	more := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpGt, Value: "4"}}
	require.Equal(t, floor.Tainted, anyNode.Unmet(gpuNode))
	require.Equal(t, floor.Unmet(""), floor.NewNodeRequirements(map[string]string{"pool": "gpu"}, gpu, false).Unmet(gpuNode))
	require.Equal(t, floor.NotSelected, floor.NewNodeRequirements(map[string]string{"pool": "cpu"}, gpu, false).Unmet(gpuNode))
	require.Equal(t, floor.Tainted, floor.NewNodeRequirements(nil, more, false).Unmet(gpuNode))
	require.Equal(t, floor.Unmet(""), floor.NewNodeRequirements(nil, more, true).Unmet(gpuNode))

	cordoned := build.Node("n", "a", "4")
	cordoned.Spec.Unschedulable = true
	require.Equal(t, floor.Cordoned, anyNode.Unmet(cordoned))
	require.Equal(t, floor.Unmet(""), floor.NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false).Unmet(cordoned))
	cordoned.Spec = v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}}
	require.Equal(t, floor.Cordoned, anyNode.Unmet(cordoned))
	cordoned.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	require.Equal(t, floor.NotReady, anyNode.Unmet(cordoned))
}
