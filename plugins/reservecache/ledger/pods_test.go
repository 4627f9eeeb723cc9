package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAssumePodRefusesWhatItCannotAccount(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	require.ErrorIs(t, l.AssumePod(makePod("", "", "1", "1Gi"), "n1", t0), ErrNoUID)
	require.ErrorIs(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "", t0), ErrNoNode)

	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))
	err := l.AssumePod(makePod("p", "", "1", "1Gi"), "n2", t0)
	require.ErrorIs(t, err, ErrAssumed)
	require.ErrorContains(t, err, `"n1"`)

	mustAdd(t, l, makePod("q", "n1", "1", "1Gi"), PodAdded)
	require.ErrorIs(t, l.AssumePod(makePod("q", "", "1", "1Gi"), "n1", t0), ErrAdded)

	require.Equal(t, Stats{Pods: 2, AssumedPods: 1, Nodes: 1, OldestAssumed: t0}, l.Stats(), "a refusal changes nothing")
}

func TestForgetUndoesAssumeExactly(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	mustAdd(t, l, withScalar(makePod("q", "n1", "1", "1Gi"), "example.com/gpu", "1"), PodAdded)
	before := content(l)

	require.NoError(t, l.AssumePod(withScalar(makePod("p", "", "250m", "1Gi"), "example.com/nic", "2"), "n1", t0))
	require.NotEqual(t, before, content(l))
	require.False(t, l.ForgetPod("p", "n2"), "assumed on another node")
	require.False(t, l.ForgetPod("q", "n1"), "not assumed")
	require.False(t, l.ForgetPod("nobody", "n1"))
	require.True(t, l.ForgetPod("p", "n1"))
	require.Equal(t, before, content(l))
	require.False(t, l.ForgetPod("p", "n1"), "Unreserve may be called twice")
	require.Equal(t, before, content(l))
}

func TestAddConfirmsWhereverThePodIs(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	l.AddNode(makeNode("n2", "b"))
	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))
	require.NoError(t, l.AssumePod(makePod("q", "", "1", "1Gi"), "n1", t0))

	mustAdd(t, l, makePod("p", "n1", "1", "1Gi"), PodConfirmed)
	mustAdd(t, l, makePod("q", "n2", "2", "1Gi"), PodMoved)
	require.False(t, l.IsAssumedPod("p"))
	require.False(t, l.IsAssumedPod("q"))
	require.Equal(t, map[string]int64{"n1": 1000, "n2": 2000}, milliCPU(l))

	mustAdd(t, l, makePod("q", "n1", "2", "1Gi"), PodMoved)
	require.Equal(t, map[string]int64{"n1": 3000, "n2": 0}, milliCPU(l))
}

func TestRepeatedAddIsAnUpdate(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	mustAdd(t, l, makePod("p", "n1", "1", "1Gi"), PodAdded)
	mustAdd(t, l, makePod("p", "n1", "3", "1Gi"), PodUpdated)
	require.Equal(t, map[string]int64{"n1": 3000}, milliCPU(l))
}

func TestAPodWithoutANodeIsLeftAlone(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))
	mustAdd(t, l, makePod("p", "", "1", "1Gi"), Unchanged)
	require.True(t, l.IsAssumedPod("p"), "a status update before the binding confirms nothing")
}

func TestChangedUIDIsDeleteThenAdd(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	mustAdd(t, l, makePod("old", "n1", "1", "1Gi"), PodAdded)
	change, err := l.UpdatePod(makePod("old", "n1", "1", "1Gi"), makePod("new", "n1", "2", "1Gi"))
	require.NoError(t, err)
	require.Equal(t, PodAdded, change)
	_, known := l.GetPod("old")
	require.False(t, known)
	require.Equal(t, map[string]int64{"n1": 2000}, milliCPU(l))

	// The replacement may not be bound yet.
	change, err = l.UpdatePod(makePod("new", "n1", "2", "1Gi"), makePod("newer", "", "2", "1Gi"))
	require.NoError(t, err)
	require.Equal(t, Unchanged, change)
	require.Equal(t, map[string]int64{"n1": 0}, milliCPU(l))
}

func TestFinishedPodTakesNothing(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		l := New(DefaultOptions())
		l.AddNode(makeNode("n1", "a"))
		mustAdd(t, l, makePod("p", "n1", "1", "1Gi"), PodAdded)
		require.NoError(t, l.AssumePod(makePod("q", "", "1", "1Gi"), "n1", t0))
		for _, name := range []string{"p", "q"} {
			done := makePod(name, "n1", "1", "1Gi")
			done.Status.Phase = phase
			mustAdd(t, l, done, PodRemoved)
			mustAdd(t, l, done, Unchanged)
		}
		require.Equal(t, map[string]int64{"n1": 0}, milliCPU(l))
	}
}

func TestGetPodTellsTheStory(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	_, known := l.GetPod("p")
	require.False(t, known)

	assumed := makePod("p", "", "1", "1Gi")
	require.NoError(t, l.AssumePod(assumed, "n1", t0))
	got, known := l.GetPod("p")
	require.True(t, known)
	want := PodStatus{Pod: assumed, State: Assumed, Node: "n1", Requests: Resources{MilliCPU: 1000, Memory: 1 << 30, Pods: 1}, AssumedAt: t0}
	require.Equal(t, want, got)

	bound := makePod("p", "n1", "1", "1Gi")
	mustAdd(t, l, bound, PodConfirmed)
	got, _ = l.GetPod("p")
	require.Equal(t, PodStatus{Pod: bound, State: Added, Node: "n1", Requests: want.Requests}, got)
}

func TestOldestAssumed(t *testing.T) {
	l := New(DefaultOptions())
	require.NoError(t, l.AssumePod(makePod("late", "", "1", "1Gi"), "n1", t0.Add(time.Minute)))
	require.NoError(t, l.AssumePod(makePod("early", "", "1", "1Gi"), "n1", t0))
	require.Equal(t, t0, l.Stats().OldestAssumed)
}

func TestDeletionOfAnUnboundPodFreesItAtOnce(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))
	deleting := makePod("p", "", "1", "1Gi")
	deleting.DeletionTimestamp = &metav1.Time{Time: t0}
	mustAdd(t, l, deleting, PodRemoved)
	mustAdd(t, l, deleting, Unchanged)
	require.Equal(t, map[string]int64{"n1": 0}, milliCPU(l))
}

func TestDeletionOfABoundPodFreesNothingYet(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	p := makePod("p", "n1", "1", "1Gi")
	p.DeletionTimestamp = &metav1.Time{Time: t0}
	mustAdd(t, l, p, PodAdded)
	require.Equal(t, map[string]int64{"n1": 1000}, milliCPU(l), "a terminating pod runs until it is gone")
}
