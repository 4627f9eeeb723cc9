package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

func TestWhichNodesMeetRequirements(t *testing.T) {
	seconds := int64(5)
	gpuNode := makeNode("n", "a", "4")
	gpuNode.Labels["pool"] = "gpu"
	gpuNode.Spec.Taints = []v1.Taint{{Key: "gpu", Value: "8", Effect: v1.TaintEffectNoSchedule}, {Key: "soft", Effect: v1.TaintEffectPreferNoSchedule}}
	gpu := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpEqual, Value: "8", TolerationSeconds: &seconds}}
	more := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpGt, Value: "4"}}
	require.Equal(t, Tainted, everywhere.Unmet(gpuNode))
	require.Equal(t, Unmet(""), NewNodeRequirements(map[string]string{"pool": "gpu"}, gpu, false).Unmet(gpuNode))
	require.Equal(t, NotSelected, NewNodeRequirements(map[string]string{"pool": "cpu"}, gpu, false).Unmet(gpuNode))
	require.Equal(t, Tainted, NewNodeRequirements(nil, more, false).Unmet(gpuNode))
	require.Equal(t, Unmet(""), NewNodeRequirements(nil, more, true).Unmet(gpuNode))

	cordoned := makeNode("n", "a", "4")
	cordoned.Spec.Unschedulable = true
	require.Equal(t, Cordoned, everywhere.Unmet(cordoned))
	require.Equal(t, Unmet(""), NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false).Unmet(cordoned))
	cordoned.Spec = v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}}
	require.Equal(t, Cordoned, everywhere.Unmet(cordoned))
	require.Equal(t, NotReady, everywhere.Unmet(notReady(cordoned)))
}
