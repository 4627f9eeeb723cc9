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
	require.False(t, anyNode.MetBy(gpuNode))
	require.True(t, floor.NewNodeRequirements(map[string]string{"pool": "gpu"}, gpu, false).MetBy(gpuNode))
	require.False(t, floor.NewNodeRequirements(map[string]string{"pool": "cpu"}, gpu, false).MetBy(gpuNode))
	require.False(t, floor.NewNodeRequirements(nil, more, false).MetBy(gpuNode))
	require.True(t, floor.NewNodeRequirements(nil, more, true).MetBy(gpuNode))

	cordoned := build.Node("n", "a", "4")
	cordoned.Spec.Unschedulable = true
	require.False(t, anyNode.MetBy(cordoned))
	require.True(t, floor.NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false).MetBy(cordoned))
	cordoned.Spec = v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}}
	require.False(t, anyNode.MetBy(cordoned))

	lost := build.Node("n", "a", "4")
	require.True(t, anyNode.MetBy(lost))
	lost.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	require.False(t, anyNode.MetBy(lost))
}
