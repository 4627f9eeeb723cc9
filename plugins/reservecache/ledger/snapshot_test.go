package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSnapshotRefreshesOnlyWhatChanged(t *testing.T) {
	l := New(DefaultOptions())
	for _, name := range []string{"n1", "n2", "n3"} {
		l.AddNode(makeNode(name, "a"))
	}
	s := NewSnapshot()
	require.Equal(t, 3, l.UpdateSnapshot(s))
	require.Equal(t, 0, l.UpdateSnapshot(s))

	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n2", t0))
	require.EqualValues(t, 0, s.Node("n2").Requested.MilliCPU, "a snapshot does not move by itself")
	n1, n2 := s.Node("n1").Generation, s.Node("n2").Generation
	require.Equal(t, 1, l.UpdateSnapshot(s))
	require.EqualValues(t, 1000, s.Node("n2").Requested.MilliCPU)
	require.EqualValues(t, 1, s.Node("n2").Requested.Pods)
	require.Len(t, s.Node("n2").Pods, 1)
	require.Equal(t, n1, s.Node("n1").Generation)
	require.Greater(t, s.Node("n2").Generation, n2)

	require.True(t, l.ForgetPod("p", "n2"))
	require.Equal(t, 1, l.UpdateSnapshot(s))
	require.EqualValues(t, 0, s.Node("n2").Requested.MilliCPU)
	require.Empty(t, s.Node("n2").Pods)
}

func TestSnapshotsOfOneLedgerAreIndependent(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	early, late := NewSnapshot(), NewSnapshot()
	l.UpdateSnapshot(early)
	mustAdd(t, l, withScalar(makePod("p", "n1", "1", "1Gi"), "example.com/gpu", "3"), PodAdded)
	require.Equal(t, 1, l.UpdateSnapshot(late))
	require.EqualValues(t, 3, late.Node("n1").Requested.Scalar["example.com/gpu"])
	require.Empty(t, early.Node("n1").Requested.Scalar)
	require.Equal(t, 1, l.UpdateSnapshot(early))
	require.Equal(t, late.Nodes(), early.Nodes())

	mustAdd(t, l, withScalar(makePod("p", "n1", "1", "1Gi"), "example.com/gpu", "4"), PodUpdated)
	l.UpdateSnapshot(early)
	require.EqualValues(t, 3, late.Node("n1").Requested.Scalar["example.com/gpu"], "snapshots share no maps with the ledger")
}

func TestSnapshotOfAnotherLedgerIsReplaced(t *testing.T) {
	a, b := New(DefaultOptions()), New(DefaultOptions())
	a.AddNode(makeNode("a1", ""))
	a.AddNode(makeNode("a2", ""))
	b.AddNode(makeNode("b1", ""))
	s := NewSnapshot()
	a.UpdateSnapshot(s)
	require.Equal(t, 1, b.UpdateSnapshot(s))
	require.Equal(t, []string{"b1"}, nodeNames(s))
	require.Nil(t, s.Node("a1"))
}

func TestAllocatableFollowsTheNode(t *testing.T) {
	l := New(DefaultOptions())
	s := NewSnapshot()
	n := makeNode("n1", "a")
	l.AddNode(n)
	l.UpdateSnapshot(s)
	require.Equal(t, Resources{MilliCPU: 32000, Memory: 64 << 30, Pods: 110}, s.Node("n1").Allocatable)

	shrunk := n.DeepCopy()
	shrunk.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("500m")
	shrunk.Status.Allocatable["example.com/gpu"] = resource.MustParse("8")
	shrunk.Status.Allocatable[v1.ResourceHugePagesPrefix+"2Mi"] = resource.MustParse("1Gi")
	shrunk.Status.Allocatable["nonsense"] = resource.MustParse("1")
	shrunk.Status.Allocatable[v1.ResourceEphemeralStorage] = resource.MustParse("10Gi")
	l.UpdateNode(shrunk)
	require.Equal(t, 1, l.UpdateSnapshot(s))
	want := Resources{MilliCPU: 500, Memory: 64 << 30, EphemeralStorage: 10 << 30, Pods: 110, Scalar: map[v1.ResourceName]int64{"example.com/gpu": 8, "hugepages-2Mi": 1 << 30}}
	require.Equal(t, want, s.Node("n1").Allocatable)

	l.UpdateNode(n)
	l.UpdateSnapshot(s)
	require.Empty(t, s.Node("n1").Allocatable.Scalar)
}

// TestIdleSnapshotAllocatesNothing guards what makes a snapshot per cycle affordable: no allocation when
// nothing changed, nor when known nodes changed.
func TestIdleSnapshotAllocatesNothing(t *testing.T) {
	l := New(DefaultOptions())
	s := NewSnapshot()
	l.AddNode(makeNode("n1", "a"))
	l.AddNode(makeNode("n2", "b"))
	mustAdd(t, l, withScalar(makePod("p", "n1", "1", "1Gi"), "example.com/gpu", "3"), PodAdded)
	l.UpdateSnapshot(s)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.UpdateSnapshot(s) }))

	refreshed := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		l.mu.Lock()
		l.touchLocked(l.nodes["n1"])
		l.mu.Unlock()
		refreshed += l.UpdateSnapshot(s)
	}))
	require.Equal(t, 101, refreshed)
}
