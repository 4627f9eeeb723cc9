package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
