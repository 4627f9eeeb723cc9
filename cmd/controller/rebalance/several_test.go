package rebalance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/test/clitest"
)

// two is a world in which two ZoneRebalances would make the same moves, with zones that have settled.
func two(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.second = newRebalance("web")
	w.second.Name, w.second.UID = "zz", "zz"
	w.turn(0)
	return w
}

// costs makes each use of the meter cost so much CPU, at its start and at its end.
func (c *Controller) costs(each time.Duration) {
	cpu := time.Duration(0)
	c.searches.Fraction = 0.1
	c.searches.CPU = func() time.Duration { cpu += each; return cpu }
}

// TestOneAtATime: the second one sees what the first has begun a moment before, in the same look and while the status
// of the first has not come back yet.
func TestOneAtATime(t *testing.T) {
	w := two(t)
	w.lags = w.stored.DeepCopy()
	w.turn(6 * time.Minute)
	require.Len(t, w.evicted, 1)
	require.Len(t, act.UnderWay(w.stored), 1)
	w.turn(time.Second)
	w.lags = nil
	w.turn(time.Second)
	require.Empty(t, act.UnderWay(w.second))
	require.Len(t, w.evicted, 1)
}

// TestTheOldestSearchIsNext: two ZoneRebalances in a cluster in which a pod comes or goes every half a minute, and a
// search costs a minute of the budget: both are searched.
func TestTheOldestSearchIsNext(t *testing.T) {
	w := two(t)
	w.stored.Spec.Mode = v1alpha1.RebalancePlan
	w.controller.costs(6 * time.Second)
	batch := w.cluster.Pod("batch", "a", clitest.Plain("1m", "1Mi"), nil)
	for n := range 240 {
		batch.UID = types.UID(fmt.Sprint("batch-", n))
		w.plan(30 * time.Second)
	}
	require.False(t, w.stored.Status.SearchedAt.IsZero())
	require.False(t, w.second.Status.SearchedAt.IsZero(), "the second one was never searched")
	require.NotEmpty(t, w.evicted)
}

// TestWorkloadRestsForOthers: what one ZoneRebalance has moved without success another one does not move again within
// its cooldown.
func TestWorkloadRestsForOthers(t *testing.T) {
	w := two(t)
	w.stored.Spec.Mode = v1alpha1.RebalancePlan
	w.stored.Status.Moves = []v1alpha1.RebalanceMove{{
		MovedPod: v1alpha1.MovedPod{Workload: "Deployment shop/web"}, UID: "gone", State: v1alpha1.MoveNotReady, Failures: 1,
		At: metav1.NewTime(w.now), Begun: metav1.NewTime(w.now),
	}}
	w.plan(6 * time.Minute)
	w.plan(6 * time.Minute)
	require.Empty(t, w.evicted)
	require.Contains(t, w.second.Status.Stays[0].Why, "is of a workload that rests until")
	w.plan(25 * time.Minute)
	w.plan(time.Second)
	require.Len(t, w.evicted, 1)
}

// TestDeletedHoldsNothingUp: no look follows the moves of a ZoneRebalance that is being deleted, however long that
// takes.
func TestDeletedHoldsNothingUp(t *testing.T) {
	w := two(t)
	w.second.Status.Moves = []v1alpha1.RebalanceMove{{UID: "x", State: v1alpha1.MoveEvicted}}
	w.second.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.turn(time.Hour)
	require.Len(t, w.evicted, 1)
}

// TestNothingIsEvictedByAnOldStatus: another replica of the controller has moved something meanwhile.
func TestNothingIsEvictedByAnOldStatus(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	w.lags = w.stored.DeepCopy()
	w.stored.ResourceVersion = "100"
	w.turn(6 * time.Minute)
	require.Empty(t, w.evicted)
}

// TestAPlanIsMadeInSteps: a whole plan is made between the turns of the parts, not in one of them.
func TestAPlanIsMadeInSteps(t *testing.T) {
	w := newWorld(t)
	w.stored.Spec.Mode = v1alpha1.RebalancePlan
	w.turn(0)
	w.turn(6 * time.Minute)
	require.Empty(t, w.stored.Status.Plan, "the turn has only begun it")
	steps := 0
	for more := true; more; steps++ {
		var err error
		more, err = w.controller.step(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 3, steps, "two moves, and that there is no other")
	w.turn(time.Second)
	require.EqualValues(t, 2, w.stored.Status.Planned)
	require.Equal(t, v1alpha1.ReasonMovesPlanned, w.reason(v1alpha1.ConditionBalanced))
	for _, m := range w.stored.Status.Plan {
		require.Equal(t, []string{"c"}, m.To)
	}
	require.Empty(t, w.evicted)
	before := w.stored.ResourceVersion
	w.plan(time.Minute)
	require.Equal(t, before, w.stored.ResourceVersion, "nothing is new")
}
