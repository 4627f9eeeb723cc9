package reservecache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestReserveUnreserve(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	l := f.shared.Ledger()
	before := l.Stats()

	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1"))
	got, _ := l.GetPod("p")
	require.Equal(t, ledger.Assumed, got.State)
	require.Equal(t, "n1", got.Node)
	require.Equal(t, t0, got.AssumedAt)

	f.plugin.Unreserve(t.Context(), &cycleState{}, makePod("p", ""), "n2")
	require.True(t, l.IsAssumedPod("p"), "Unreserve of another node")
	f.plugin.Unreserve(t.Context(), &cycleState{}, makePod("p", ""), "n1")
	f.plugin.Unreserve(t.Context(), &cycleState{}, makePod("p", ""), "n1")
	require.Equal(t, before, l.Stats())
}

// TestRehearsalsChangeNothing but the state of their placement.
func TestRehearsalsChangeNothing(t *testing.T) {
	searched := &cycleState{}
	hypothetical.Mark(searched)
	for name, rehearsal := range map[string]*cycleState{"pod-group cycle": {podGroup: true}, "search for victims": searched} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil, makeNode("n1")).start(t)
			l := f.shared.Ledger()
			require.Nil(t, f.plugin.Reserve(t.Context(), rehearsal, makePod("p", ""), "n1"))
			require.False(t, l.IsAssumedPod("p"))

			// For real, and then a rehearsal's Unreserve of the same pod and node.
			require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1"))
			f.plugin.Unreserve(t.Context(), rehearsal, makePod("p", ""), "n1")
			require.True(t, l.IsAssumedPod("p"))
		})
	}
}

func TestReserveOfAPodThatIsBoundFails(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1"), makePod("p", "n1")).start(t)
	status := f.plugin.Reserve(t.Context(), &cycleState{}, makePod("p", ""), "n1")
	require.Equal(t, fwk.Error, status.Code())
	require.Contains(t, status.Message(), "bound already")

	// The framework unreserves after a failed Reserve; that must not free the bound pod.
	f.plugin.Unreserve(t.Context(), &cycleState{}, makePod("p", ""), "n1")
	got, _ := f.shared.Ledger().GetPod("p")
	require.Equal(t, ledger.Added, got.State)
}

func TestAPodDeletedWhileAssumedIsFreedAtOnce(t *testing.T) {
	for name, remove := range map[string]func(*testing.T, *fixture, *v1.Pod){
		"gone": func(t *testing.T, f *fixture, pod *v1.Pod) {
			require.NoError(t, f.client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		},
		"held by a finalizer": func(t *testing.T, f *fixture, pod *v1.Pod) {
			deleting := pod.DeepCopy()
			deleting.DeletionTimestamp = &metav1.Time{Time: t0}
			_, err := f.client.CoreV1().Pods("default").Update(t.Context(), deleting, metav1.UpdateOptions{})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := makePod("p", "")
			f := newFixture(t, nil, makeNode("n1"), pod).start(t)
			require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, pod, "n1"))
			remove(t, f, pod)
			eventually(t, func() bool { return !f.shared.Ledger().IsAssumedPod("p") })
			require.Equal(t, ledger.Stats{Nodes: 1}, f.shared.Ledger().Stats())

			// The binding fails later, and its Unreserve finds nothing.
			f.plugin.Unreserve(t.Context(), &cycleState{}, pod, "n1")
			require.Equal(t, ledger.Stats{Nodes: 1}, f.shared.Ledger().Stats())
		})
	}
}
