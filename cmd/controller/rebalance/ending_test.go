package rebalance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/rebalance"
)

// endingServer tells the process to end when it has stored a status, before it answers.
type endingServer struct {
	*server
	end func()
}

func (s *endingServer) Status() client.SubResourceWriter {
	return &endingWriter{s.server.Status(), s.end}
}

type endingWriter struct {
	client.SubResourceWriter
	end func()
}

func (w *endingWriter) Update(ctx context.Context, obj client.Object, options ...client.SubResourceUpdateOption) error {
	err := w.SubResourceWriter.Update(ctx, obj, options...)
	w.end()
	return errors.Join(err, ctx.Err())
}

// TestTheEndOfAProcessLosesNoEvent: a process is told to end while the answer to a status is on its way. What the
// status says is told all the same, since the next process does not know that it is news; nothing is evicted any
// more.
func TestTheEndOfAProcessLosesNoEvent(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	w.now = w.now.Add(6 * time.Minute)

	ctx, cancel := context.WithCancel(t.Context())
	w.controller = New(parts.Shared{Client: &endingServer{w.server, cancel}, CPUFraction: 1000, Read: w.readCluster}, Options{Seeds: 1, ReadyFor: rebalance.DefaultReadyFor})
	w.controller.now = func() time.Time { return w.now }
	_, err := w.controller.Reconcile(ctx, parts.Look)
	require.NoError(t, err)
	require.Equal(t, v1alpha1.MoveEvicting, w.stored.Status.Moves[0].State)
	require.Equal(t, []string{"MoveEvicting"}, w.events)
	require.Empty(t, w.evicted)
}
