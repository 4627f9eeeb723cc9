package rebalance

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/test/clitest"
)

// twoPlans is a world in which two ZoneRebalances plan the same moves.
func twoPlans(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.second = newRebalance("web")
	w.second.Name, w.second.UID = "zz", "zz"
	w.stored.Spec.Mode, w.second.Spec.Mode = v1alpha1.RebalancePlan, v1alpha1.RebalancePlan
	w.turn(0)
	w.turn(6 * time.Minute)
	w.turn(time.Minute)
	require.EqualValues(t, 2, w.stored.Status.Planned)
	require.EqualValues(t, 2, w.second.Status.Planned)
	return w
}

// TestTwoInOneTurn: the second one sees what the first has begun a moment before.
func TestTwoInOneTurn(t *testing.T) {
	w := twoPlans(t)
	w.stored.Spec.Mode, w.second.Spec.Mode = v1alpha1.RebalanceEvict, v1alpha1.RebalanceEvict
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
	require.Equal(t, 1, act.UnderWay(w.stored))
	require.Zero(t, act.UnderWay(w.second))
}

// TestSecondWaitsForTheStatusOfTheFirst: what the first has begun is not read yet.
func TestSecondWaitsForTheStatusOfTheFirst(t *testing.T) {
	w := twoPlans(t)
	w.stored.Spec.Mode = v1alpha1.RebalanceEvict
	w.lags = w.stored.DeepCopy()
	w.turn(time.Minute)
	require.Equal(t, 1, act.UnderWay(w.stored))
	w.second.Spec.Mode = v1alpha1.RebalanceEvict
	w.turn(time.Minute)
	require.Zero(t, act.UnderWay(w.second))
	require.Len(t, w.evicted, 1)
	w.lags = nil
	w.turn(time.Minute)
	require.Zero(t, act.UnderWay(w.second))
	require.Len(t, w.evicted, 1)
}

// TestWorkloadRestsForOthers: what one ZoneRebalance has moved another one does not move again within its cooldown.
func TestWorkloadRestsForOthers(t *testing.T) {
	w := twoPlans(t)
	w.stored.Status.Moves = []v1alpha1.RebalanceMove{
		{UID: "gone", Workload: "Deployment shop/web", State: v1alpha1.MoveMoved, At: metav1.NewTime(w.now)},
	}
	w.second.Spec.Mode = v1alpha1.RebalanceEvict
	w.turn(time.Minute)
	w.turn(refreshInterval)
	w.turn(time.Second) // the first one has had the budget of the turn
	require.Empty(t, w.evicted)
	require.Zero(t, w.second.Status.Planned)
	require.Contains(t, w.second.Status.Stays[0].Why, "ZoneRebalance services moved pods within the cooldown")
	w.turn(20 * time.Minute) // the cooldown is over
	w.turn(time.Second)
	w.turn(time.Second)
	require.Len(t, w.evicted, 1)
}

// TestDeletedHoldsNobodyUp: nobody follows the moves of a ZoneRebalance that is being deleted, however long that takes.
func TestDeletedHoldsNobodyUp(t *testing.T) {
	w := twoPlans(t)
	w.second.Status.Moves[0].State = v1alpha1.MoveEvicted
	w.second.DeletionTimestamp = &metav1.Time{Time: w.now}
	w.stored.Spec.Mode = v1alpha1.RebalanceEvict
	w.turn(time.Hour)
	w.turn(time.Second)
	require.Len(t, w.evicted, 1)
}

// TestTwoOfOneGang: its members are evicted and booked once.
func TestTwoOfOneGang(t *testing.T) {
	w := newWorld(t)
	w.cluster, w.stored, w.second = halfBound(), newRebalance("train"), newRebalance("train")
	w.second.Name, w.second.UID = "zz", "zz"
	snapshot.List[*schedulingv1alpha1.PodGroup](w.cluster.Snapshot)[0].Status.Phase = schedulingv1alpha1.PodGroupUnknown
	w.controller.plans.Fraction = 1e12 // the second one may try it in the same turn
	w.turn(0)
	for range 4 {
		w.turn(4 * time.Minute)
	}
	require.Equal(t, []string{"train-0", "train-1"}, w.evicted)
	require.Len(t, w.stored.Status.Moves, 2)
	require.Empty(t, w.second.Status.Moves)
}

// TestNothingIsEvictedByAnOldStatus: another replica of the controller has given up a move that this one still reads
// as begun.
func TestNothingIsEvictedByAnOldStatus(t *testing.T) {
	w := newWorld(t)
	w.refused = errors.New("a budget is in the way")
	w.turn(0)
	w.turn(6 * time.Minute)
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
	w.lags = w.stored.DeepCopy()
	require.Equal(t, v1alpha1.MoveEvicting, w.lags.Status.Moves[0].State)
	w.stored.Status.Moves[0].State, w.stored.ResourceVersion = v1alpha1.MoveRefused, "100"
	w.refused = nil
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
}

// TestEvictionsAreAskedForAtOnce: a controller that has stood still after it has written that pods are to be evicted
// leaves them to whoever reads that then.
func TestEvictionsAreAskedForAtOnce(t *testing.T) {
	w := newWorld(t)
	add := w.cluster.Deployment("api", 3, "1", "1Gi", func(p *v1.PodTemplateSpec) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{clitest.ZoneSpread("api", 1)}
	})
	for _, node := range []string{"a", "a", "b"} {
		add(node)
	}
	w.stored = newRebalance("web", "api")
	w.stored.Spec.MaxAtOnce = new(int32(2))
	w.server.evict = func(*v1.Pod) error {
		w.now = w.now.Add(act.AskWithin + time.Second)
		return nil
	}
	w.turn(0)
	w.turn(6 * time.Minute)
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
	require.Equal(t, 2, act.UnderWay(w.stored))
	w.turn(time.Second)
	require.Len(t, w.evicted, 2)
}
