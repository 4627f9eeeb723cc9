package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// TestNativeGangs: with GenericWorkload on, pods of a native gang are upstream's, with our label or without,
// and a gang of ours beside them is ours.
func TestNativeGangs(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	inBubble(t, func(t *testing.T) {
		c := startGangCluster(t, slowBackoff, 6)
		require.NoError(t, createNativeGang(t.Context(), c.client, "native", 3))
		native := func(p *st.PodWrapper) *st.PodWrapper {
			name := "native"
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
			return p
		}
		c.create(native(member("", "n-0")), native(member("no-such-group", "n-1")))
		c.requireUnbound("n-0", "n-1")
		c.create(native(member("g", "n-2")))
		c.requireBound("n-0", "n-1", "n-2")
		c.requireBound(c.createGang("g", 3)...)
		require.Zero(t, c.recorder.count("Pod n-", "PodGroup default/"), "PermitGate has nothing to say about them")
	})
}
