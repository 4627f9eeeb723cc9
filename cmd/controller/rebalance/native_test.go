package rebalance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/clitest"
)

// TestNativeGangBoundInPart: the condition of PermitGate says since when it is.
func TestNativeGangBoundInPart(t *testing.T) {
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	group := c.NativeGang("train", 3, "4", "a", "a", "")
	group.Annotations = map[string]string{podgroup.RecoveryPolicyAnnotation: podgroup.RecoveryEvict}
	w := newWorld(t)
	gang := func() (only struct {
		since    time.Time
		reported bool
		bound    []types.UID
	},
	) {
		l := w.controller.newLook(c.Snapshot, nil)
		defer l.close()
		for _, g := range l.gangs(newRebalance("train"), func(*v1.Pod) bool { return true }) {
			only.since, only.reported, only.bound = g.Since, g.PartlyBound, g.Bound
		}
		return only
	}
	require.False(t, gang().reported)
	since := w.now.Add(-time.Hour)
	group.Status.Conditions = []metav1.Condition{
		{Type: native.ConditionPartlyBound, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
	}
	seen := gang()
	require.True(t, seen.reported)
	require.True(t, since.Equal(seen.since))
	require.Len(t, seen.bound, 2)
	group.Status.Conditions[0].Status = metav1.ConditionFalse
	require.False(t, gang().reported)
}
