package reservecache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLedgerLags: the ledger lags on a node from when the informer's store has lost a bound pod until the ledger hears of that. An event
// of the node changes nothing about it. A pod that is assumed has no part in it: it is not in the store yet.
func TestLedgerLags(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1"), makeNode("n2"), makePod("bound", "n1"), makePod("stays", "n1")).start(t)
	l, store := f.shared.Ledger(), f.handle.factory.Core().V1().Pods().Informer().GetStore()
	lags := ledgerLags(l, f.handle.factory)
	require.NoError(t, l.AssumePod(makePod("assumed", ""), "n1", t0))
	require.False(t, lags("n1"))

	lost := func(replacement *v1.Pod) {
		t.Helper()
		require.NoError(t, store.Delete(makePod("bound", "n1")))
		if replacement != nil {
			require.NoError(t, store.Add(replacement))
		}
		require.True(t, lags("n1"))
		require.False(t, lags("n2"))
	}
	another := makePod("bound", "n1")
	another.UID = "another"
	lost(another)
	lost(makePod("bound", "n2"))
	lost(nil)
	relabelled := makeNode("n1")
	relabelled.Labels = map[string]string{"some": "label"}
	_, err := f.client.CoreV1().Nodes().Update(t.Context(), relabelled, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool { return l.Dump().Nodes[0].Node.Labels["some"] != "" })
	require.True(t, lags("n1"))
	l.RemovePod("bound")
	require.False(t, lags("n1"))
}
