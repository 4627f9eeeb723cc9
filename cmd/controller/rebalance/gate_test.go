package rebalance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// TestSteps: no pod is evicted until the zones have settled and all is known, nor by a status that is not written.
func TestSteps(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	require.Equal(t, v1alpha1.ReasonSettling, w.reason(v1alpha1.ConditionReady))
	require.Equal(t, v1alpha1.ReasonNotPlannedYet, w.reason(v1alpha1.ConditionBalanced))
	w.turn(6*time.Minute, snapshot.Missing{Resource: "persistentvolumes", Reason: snapshot.Forbidden})
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, w.reason(v1alpha1.ConditionReady))
	require.Empty(t, w.stored.Status.Moves)

	w.conflict = true
	require.Equal(t, retryInterval, w.turn(time.Minute))
	require.Empty(t, w.evicted, "the intention is not in the status")
	w.conflict = false
	w.turn(time.Minute)
	require.Equal(t, v1alpha1.ReasonPlanning, w.reason(v1alpha1.ConditionReady))
	require.Equal(t, v1alpha1.ReasonMoving, w.reason(v1alpha1.ConditionBalanced))
	require.Len(t, w.evicted, 1, "one batch")
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveEvicted}, w.states())
	require.Equal(t, []string{"MoveEvicting", "MoveEvicted"}, w.events)
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1, "and then it looks again")
}

// TestABadSpecMovesNothing: a wrong selector is said, and what is known stays.
func TestABadSpecMovesNothing(t *testing.T) {
	w := newWorld(t)
	w.stored.Spec.Mode = v1alpha1.RebalancePlan
	w.turn(0)
	w.plan(6 * time.Minute)
	require.Len(t, w.stored.Status.Plan, 2)
	w.stored.Generation++
	w.stored.Spec.Mode = v1alpha1.RebalanceEvict
	w.stored.Spec.Workloads[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
	w.turn(time.Minute)
	require.Equal(t, v1alpha1.ReasonInvalid, w.reason(v1alpha1.ConditionReady))
	require.Len(t, w.stored.Status.Plan, 2)
	require.Equal(t, w.stored.Generation, w.stored.Status.ObservedGeneration)
	require.Empty(t, w.evicted)
}

// TestOldReading: by a reading that has become old while moves were searched no pod is evicted. What the trial of the
// moves themselves takes is no reason, or in a large cluster none would ever be.
func TestOldReading(t *testing.T) {
	for _, tc := range []struct {
		name    string
		took    time.Duration // each look at the clock
		stalls  time.Duration // between the reading and the search
		evicted int
	}{
		{name: "at once", evicted: 1},
		{name: "a trial that takes a minute", took: 10 * time.Second, evicted: 1},
		{name: "the controller stands still before it", stalls: 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.turn(0)
			w.now = w.now.Add(6 * time.Minute)
			looks := -1                                        // at the clock, since the search has begun
			w.controller.searches.CPU = func() time.Duration { // the search begins
				if looks < 0 {
					w.now, looks = w.now.Add(tc.stalls), 0
				}
				return 0
			}
			w.controller.now = func() time.Time {
				if looks >= 0 && len(w.stored.Status.Moves) == 0 {
					if looks++; looks > 1 && looks < 6 {
						w.now = w.now.Add(tc.took)
					}
				}
				return w.now
			}
			w.turn(0)
			require.Len(t, w.evicted, tc.evicted, "%+v", w.stored.Status)
		})
	}
}

// TestGate: what changes between the search and the eviction is seen, whatever it is: the cluster is read once more
// after the status is written. No workload rests for that.
func TestGate(t *testing.T) {
	first := func(w *running) *v1.Pod {
		pod, ok := sim.Get[*v1.Pod](w.sim, clitest.Namespace, w.stored.Status.Moves[0].Name)
		require.True(w.t, ok)
		return pod
	}
	for _, tc := range []struct {
		name   string
		change func(w *running)
		why    string
	}{
		{"nothing", func(*running) {}, ""},
		{"the zone it was to go to is lost", func(w *running) { w.loseNode("c") }, "zones or policies have changed"},
		{"it asks to stay", func(w *running) {
			w.change(first(w).Name, func(pod *v1.Pod) {
				pod.Annotations = map[string]string{clitest.DoNotDisrupt: "true"}
			})
		}, "has the annotation karpenter.sh/do-not-disrupt"},
		{"a sibling is not ready", func(w *running) {
			for _, pod := range sim.List[*v1.Pod](w.sim) {
				if pod.Name != first(w).Name {
					w.change(pod.Name, unready)
					return
				}
			}
		}, "is of a workload with a pod that is not ready"},
		{"zone c has pods by now", func(w *running) {
			for i := range 2 {
				more := first(w).DeepCopy()
				more.Name, more.UID, more.Spec.NodeName = fmt.Sprint("scaled-", i), types.UID(fmt.Sprint("scaled-", i)), "c"
				w.put(more)
			}
		}, "is not one too many in zone"},
		{"it is gone", func(w *running) { w.sim.Remove(first(w)) }, "is gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
			w.server.onWrite = func() {
				if len(w.stored.Status.Moves) > 0 {
					w.server.onWrite = nil
					tc.change(w)
				}
			}
			w.turns("a move", func() bool { return len(w.stored.Status.Moves) > 0 })
			m := w.stored.Status.Moves[0]
			if tc.why == "" {
				require.Equal(t, v1alpha1.MoveEvicted, m.State)
				require.Len(t, w.evicted, 1)
				return
			}
			require.Empty(t, w.evicted)
			require.Equal(t, v1alpha1.MoveNotEvicted, m.State)
			require.Contains(t, m.Why, tc.why)
			require.Zero(t, m.Failures)
		})
	}
}

// TestEvictionsAreAskedForAtOnce: a controller that has stood still after it has written that pods are to be evicted
// evicts none of them: another one may have concluded that they run.
func TestEvictionsAreAskedForAtOnce(t *testing.T) {
	w := newWorld(t)
	w.cluster.Running("api", "1", clitest.Spread("api"), "a", "a", "b")
	w.cluster.Node("b2", "b", "8", "32Gi") // no replacement is on a node that the other move leaves
	w.stored = newRebalance("web", "api")
	w.stored.Spec.MaxAtOnce = new(int32(2))
	w.server.evict = func(*v1.Pod) error {
		w.now = w.now.Add(act.AskWithin + time.Second)
		return nil
	}
	w.turn(0)
	w.turn(6 * time.Minute)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveEvicted, v1alpha1.MoveNotEvicted}, w.states())
	require.Len(t, w.evicted, 1)
}

// TestTheEndOfTheProcessCutsOffNoEviction: the API server takes an eviction from the budget before it deletes the pod,
// so a request that is cut off in between uses up the budget for two minutes without an eviction.
func TestTheEndOfTheProcessCutsOffNoEviction(t *testing.T) {
	w := newWorld(t)
	ctx, end := context.WithCancel(t.Context())
	w.asked = func(asks context.Context) {
		end()
		require.NoError(t, asks.Err(), "the request goes on")
		_, limited := asks.Deadline()
		require.True(t, limited)
	}
	w.turn(0)
	w.now = w.now.Add(6 * time.Minute)
	_, err := w.controller.Reconcile(ctx, parts.Look)
	require.NoError(t, err)
	require.Len(t, w.evicted, 1)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveEvicting}, w.states(), "the next process sees what has become of it")
}

// TestAnswers: what an answer of the Eviction API says. Only Accepted says that the pod is evicted; what is none of the
// workload's makes it rest for no longer than the cooldown, and what is not known is seen by the pod.
func TestAnswers(t *testing.T) {
	budgets := schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	evictions := schema.GroupResource{Resource: "pods"}
	exhausted := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	exhausted.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget"}}
	for _, tc := range []struct {
		name     string
		err      error
		want     v1alpha1.RebalanceMoveState
		failures int64
	}{
		{"accepted", nil, v1alpha1.MoveEvicted, 0},
		{"the budget is exhausted", exhausted, v1alpha1.MoveBudgetExhausted, 0},
		{"the API server is busy", apierrors.NewTooManyRequests("later", 1), v1alpha1.MoveNotEvicted, 0},
		{"others write the budget all the time", apierrors.NewConflict(budgets, "web", errors.New("modified")), v1alpha1.MoveNotEvicted, 0},
		{"the pod is another one", apierrors.NewConflict(evictions, "web", errors.New("precondition")), v1alpha1.MoveNotEvicted, 0},
		{"the budget has been deleted", apierrors.NewNotFound(budgets, "web"), v1alpha1.MoveNotEvicted, 0},
		{"a webhook refuses", apierrors.NewForbidden(evictions, "web", errors.New("denied")), v1alpha1.MoveRefused, 1},
		{"a policy refuses", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), v1alpha1.MoveRefused, 1},
		{"the API server has failed", apierrors.NewInternalError(errors.New("etcd")), v1alpha1.MoveEvicting, 0},
		{"the answer is lost", errors.New("connection reset"), v1alpha1.MoveEvicting, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.refused = tc.err
			w.turn(0)
			w.turn(6 * time.Minute)
			require.Len(t, w.evicted, 1)
			m := w.stored.Status.Moves[0]
			require.Equal(t, tc.want, m.State, m.Why)
			require.Equal(t, tc.failures, m.Failures)
			if tc.want == v1alpha1.MoveEvicting { // the pod runs on
				w.turn(time.Second)
				require.Equal(t, tc.want, w.stored.Status.Moves[0].State, "it may be evicted yet")
				w.refused = nil
				w.turn(time.Minute)
				require.Equal(t, v1alpha1.MoveEvicted, w.stored.Status.Moves[0].State, "it was not, and is searched and evicted again")
				require.Len(t, w.stored.Status.Moves, 1)
			}
		})
	}
}

// TestNothingFollowsFromAnUnknownCluster: while not all of the cluster is known, nothing is said of what has become of
// a move.
func TestNothingFollowsFromAnUnknownCluster(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	w.turn(6 * time.Minute)
	before := w.stored.Status.Moves
	w.turn(30*time.Minute, snapshot.Missing{Resource: "pods", Reason: snapshot.Outdated})
	require.Equal(t, before, w.stored.Status.Moves)
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, w.reason(v1alpha1.ConditionReady))
}

// TestNodeIsSeenLate: a pod in place of an evicted one is seen on a node that is not: pods and nodes are watched apart.
// It is in no other zone for that, and no failure.
func TestNodeIsSeenLate(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	w.turn(6 * time.Minute)
	for _, pod := range w.cluster.Pods() {
		if pod.Name == w.evicted[0] {
			pod.Name, pod.UID, pod.Spec.NodeName, pod.CreationTimestamp = "made", "made", "late", metav1.NewTime(w.now)
		}
	}
	w.turn(time.Second)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveEvicted}, w.states())
	w.stored.Spec.Mode = v1alpha1.RebalancePlan // no other move
	w.cluster.Node("late", "c", "8", "32Gi")
	w.turn(time.Second)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveMoved}, w.states())
}

// TestRoomThatIsFreeLater: zone c is full by a pod that is being deleted. A move that needs its room is made only if it
// ends soon.
func TestRoomThatIsFreeLater(t *testing.T) {
	for _, tc := range []struct {
		ends  time.Duration
		moves bool
	}{{time.Minute, true}, {time.Hour, false}} {
		w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
		w.turn()
		w.pass(10 * time.Minute)
		ending := occupant(w, "batch", "c", "8", nil)
		ending.DeletionTimestamp = &metav1.Time{Time: w.sim.Now().Add(tc.ends)}
		w.put(ending)
		w.turn()
		require.Equal(t, tc.moves, len(w.evicted) > 0, tc.ends)
		if !tc.moves {
			require.Contains(t, w.stored.Status.Stays[0].Why, "its replacement would wait")
		}
	}
}

// TestJustReady: pods that have become ready a moment ago stay, and are moved as soon as they have been for a minute.
func TestJustReady(t *testing.T) {
	w := newWorld(t)
	for _, pod := range w.cluster.Pods() {
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clitest.Now.Add(6*time.Minute - time.Second))
	}
	w.turn(0)
	require.LessOrEqual(t, w.turn(6*time.Minute), refreshInterval)
	require.Empty(t, w.evicted)
	require.Equal(t, "each has been ready for less than 60s", w.stored.Status.Stays[0].Why)
	require.Equal(t, stayInterval, w.turn(time.Second))
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
}
