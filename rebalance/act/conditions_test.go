package act

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestMovesInTheSecondOfTheirPlan: moves that begin in the second in which they were planned are followed by another
// plan, and until that is made, which may wait for CPU, it is not said that no move would help.
func TestMovesInTheSecondOfTheirPlan(t *testing.T) {
	s := newScene(t)
	s.Status.Before.Excess = 4
	s.Spec.MaxPerHour = ptr.To[int32](10)
	for batch := range 2 {
		s.evicted(s.next())
		for _, workload := range []string{"web", "api"} {
			s.made(workload, fmt.Sprint(workload, "-new-", batch), "node-b", "b", true)
			s.excess[workload] -= 2
		}
	}
	require.True(t, s.next().Replan)
	reason := func() string {
		Conclude(s.ZoneRebalance, "", s.seen.Now)
		return meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionBalanced).Reason
	}
	require.Equal(t, v1alpha1.ReasonMoving, reason())
	Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
	s.Status.Before.Excess = 0
	require.Equal(t, v1alpha1.ReasonBalanced, reason())
}
