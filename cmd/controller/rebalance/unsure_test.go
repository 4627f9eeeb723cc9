package rebalance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// evicting is a world in which the eviction of the first pod has been asked for, and answered like this.
func evicting(t *testing.T, answer error) *world {
	t.Helper()
	w := newWorld(t)
	w.refused = answer
	w.turn(0)
	w.turn(6 * time.Minute)
	w.turn(time.Minute)
	require.Len(t, w.evicted, 1)
	return w
}

// TestAnAnswerIsNotTheEndOfAPod: an API server that could not write a PodDisruptionBudget says that of the budget, in the words in which it says
// that a pod is another one, or is not there. Only the pods tell whether the pod is gone.
func TestAnAnswerIsNotTheEndOfAPod(t *testing.T) {
	budgets := schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	for name, answer := range map[string]error{
		"others write the budget all the time": apierrors.NewConflict(budgets, "web", errors.New("the object has been modified")),
		"the budget has been deleted":          apierrors.NewNotFound(budgets, "web"),
	} {
		t.Run(name, func(t *testing.T) {
			w := evicting(t, answer)
			require.Equal(t, v1alpha1.MoveEvicting, w.stored.Status.Moves[0].State, "the pod runs")
			w.refused = nil
			w.turn(10 * time.Second)
			require.Len(t, w.evicted, 2)
			require.Equal(t, v1alpha1.MoveEvicted, w.stored.Status.Moves[0].State)
		})
	}
}

// hurriedServer notes until when evictions are asked for.
type hurriedServer struct {
	*server
	until []time.Time
}

func (s *hurriedServer) SubResource(name string) client.SubResourceClient {
	return &hurriedEvictions{s.server.SubResource(name), s}
}

type hurriedEvictions struct {
	client.SubResourceClient
	server *hurriedServer
}

func (e *hurriedEvictions) Create(ctx context.Context, pod, body client.Object, options ...client.SubResourceCreateOption) error {
	until, _ := ctx.Deadline()
	e.server.until = append(e.server.until, until)
	return e.SubResourceClient.Create(ctx, pod, body, options...)
}

// TestEvictionsAreNotAskedForLater: an API server may tell to ask again in ten seconds, and then the client does that by itself, up to ten times. Another
// replica may have given the move up and begun another one meanwhile.
func TestEvictionsAreNotAskedForLater(t *testing.T) {
	w := newWorld(t)
	s := &hurriedServer{server: w.server}
	w.controller.shared.Client = s
	w.turn(0)
	w.turn(6 * time.Minute)
	began := time.Now()
	w.turn(time.Minute)
	require.Len(t, s.until, 1)
	require.False(t, s.until[0].IsZero(), "it is asked for as long as that takes")
	require.LessOrEqual(t, s.until[0].Sub(began), time.Since(began)+act.AskWithin)
}

// TestNothingFollowsFromAnUnknownCluster: while not all of the cluster is known, nothing is said of what has become of a move, and no pod is
// asked for again.
func TestNothingFollowsFromAnUnknownCluster(t *testing.T) {
	lack := snapshot.Missing{Resource: "pods", Reason: snapshot.Outdated}

	w := evicting(t, nil)
	w.turn(10*time.Minute, lack)
	require.Nil(t, w.stored.Status.Stop, "the pod in its place may run for long")
	require.Equal(t, v1alpha1.ReasonSnapshotIncomplete, w.reason(v1alpha1.ConditionReady))
	w.turn(time.Minute)
	require.Equal(t, v1alpha1.ReasonNotBound, w.stored.Status.Stop.Reason)

	w = evicting(t, errors.New("a budget is in the way"))
	w.turn(10*time.Second, lack)
	require.Len(t, w.evicted, 1)
}

// TestNodeIsSeenLate: a pod in place of an evicted one is seen on a node that is not: pods and nodes are watched apart. It is in no other zone for that.
func TestNodeIsSeenLate(t *testing.T) {
	w := evicting(t, nil)
	var made *v1.Pod
	for _, pod := range w.cluster.Pods() {
		if pod.Name == w.evicted[0] {
			made = pod
		}
	}
	made.Name, made.UID, made.Spec.NodeName, made.CreationTimestamp = "made", "made", "late", metav1.NewTime(w.now)
	w.turn(time.Second)
	require.Nil(t, w.stored.Status.Stop)
	require.Equal(t, v1alpha1.MoveEvicted, w.stored.Status.Moves[0].State)
	w.cluster.Node("late", "c", "8", "32Gi")
	w.turn(time.Second)
	require.Nil(t, w.stored.Status.Stop)
	require.Equal(t, v1alpha1.MoveMoved, w.stored.Status.Moves[0].State)
}

// TestPlanThatCouldNotBeWritten: another pod has taken the room, so there is another plan. It could not be written, and the one before still is in
// the status: it is not carried out for that.
func TestPlanThatCouldNotBeWritten(t *testing.T) {
	w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
	w.turns("a plan", func() bool { return w.stored.Status.Planned == 2 })
	w.put(occupant(w, "batch", "c", "8", nil))
	w.conflict = true
	w.turn()
	w.conflict = false
	w.turn()
	require.Empty(t, w.evicted)
	require.Zero(t, w.stored.Status.Planned, "the other plan is written as soon as it can be")
}

// TestWhatIsTriedAgainMayStillBeMoved: while the API server refuses an eviction, its reason may go. Then it is asked for no more.
func TestWhatIsTriedAgainMayStillBeMoved(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *running, pod *v1.Pod)
		why    string
	}{
		{"nothing", func(*running, *v1.Pod) {}, ""},
		{"it asks to stay", func(w *running, pod *v1.Pod) {
			pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			w.put(pod)
		}, "has the annotation karpenter.sh/do-not-disrupt"},
		{"a sibling is not ready", func(w *running, pod *v1.Pod) {
			for _, other := range sim.List[*v1.Pod](w.sim) {
				if other.Name != pod.Name {
					other = other.DeepCopy()
					other.Status.Conditions = nil
					w.put(other)
					return
				}
			}
		}, "has a sibling that is not ready"},
		{"it is not selected", func(w *running, _ *v1.Pod) {
			w.stored.Spec.Workloads[0].PodSelector.MatchLabels["app"] = "other"
			w.stored.Generation++
		}, "is not selected"},
		{"zone c has pods by now", func(w *running, pod *v1.Pod) {
			for _, name := range []string{"scaled-1", "scaled-2"} {
				more := pod.DeepCopy()
				more.Name, more.UID, more.Spec.NodeName = name, types.UID(name), "c"
				w.put(more)
			}
		}, "is not too many any more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
			w.server.evict = func(*v1.Pod) error { return errors.New("a budget is in the way") }
			w.turns("a plan", func() bool { return w.stored.Status.Planned == 2 })
			w.turn()
			require.Len(t, w.evicted, 1)
			pod, ok := sim.Get[*v1.Pod](w.sim, clitest.Namespace, w.evicted[0])
			require.True(t, ok)
			tc.change(w, pod.DeepCopy())
			w.pass(10 * time.Second)
			w.turn()
			if tc.why == "" {
				require.Len(t, w.evicted, 2)
				return
			}
			require.Len(t, w.evicted, 1)
			require.Equal(t, v1alpha1.MoveRefused, w.stored.Status.Moves[0].State)
			require.Contains(t, w.stored.Status.Moves[0].Why, tc.why)
			require.Nil(t, w.stored.Status.Stop)
		})
	}
}

// TestRoomThatIsFreeLater: zone c is full by a pod that is being deleted. A move that needs its room is made only if it ends soon.
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
		w.turn()
		require.Equal(t, tc.moves, len(w.evicted) > 0, tc.ends)
		if !tc.moves {
			require.Contains(t, w.stored.Status.Stays[0].Why, "its replacement would wait")
		}
	}
}
