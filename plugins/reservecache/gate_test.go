package reservecache

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestFirstCycleWaitsForTheHandlers(t *testing.T) {
	args := defaultArgs()
	args.HandlerSyncTimeout = metav1.Duration{Duration: 5 * time.Millisecond}
	f := newFixture(t, &args, makeNode("n1"), makePod("p", "n1"))

	_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code(), "an error sends the pod to backoff and is retried")
	require.Contains(t, status.Message(), "the ledger has not seen all pods and nodes within 5ms")

	// A pod-group cycle waits as well.
	_, status = f.plugin.PreFilter(t.Context(), &cycleState{podGroup: true}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code())

	// The scheduler stops.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.plugin.running.gate.timeout = time.Hour
	_, status = f.plugin.PreFilter(ctx, &cycleState{}, makePod("q", ""), nil)
	require.Equal(t, fwk.Error, status.Code())

	// A cycle that is waiting goes on as soon as the handlers have synced, and sees all.
	waiting := make(chan *fwk.Status)
	go func() {
		_, status := f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("q", ""), nil)
		waiting <- status
	}()
	f.start(t)
	require.True(t, (<-waiting).IsSkip(), "nothing is held")
	require.Equal(t, 1, f.shared.Ledger().Stats().Pods)

	// From then on there is nothing to wait for, even if the scheduler is stopping.
	require.NoError(t, f.plugin.running.gate.wait(ctx))
}
