package integration

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"zonewise.dev/test/build"
	"zonewise.dev/test/internal/audit"
	"zonewise.dev/test/internal/program"
)

// TestSplitBrain: the leader is stopped until its lease has run out and the other replica leads, and then goes on, with
// most of its binds still waiting for their turn. Of the shipped program it writes nothing any more, up to its end.
// Twice, with the parts exchanged.
func TestSplitBrain(t *testing.T) {
	root, err := repository()
	require.NoError(t, err)
	scheduler, err := program.Scheduler(root)
	require.NoError(t, err)
	w := newWorld(t)
	w.addNodes("16", "a1", "a2", "b1", "b2", "c1", "c2")
	before, err := w.cp.audit.Events()
	require.NoError(t, err)

	const qps = 4 // most binds wait for their turn
	start := func(number int) *replica {
		r := w.startReplicaOf(scheduler, number, qps)
		w.eventually("the replica is ready", func() (bool, string) {
			code, body, err := r.get(w.ctx, "/readyz")
			return code == http.StatusOK, fmt.Sprint(code, body, err)
		})
		return r
	}
	one := start(1)
	w.eventually("the first replica leads", func() (bool, string) { h := w.leaseHolder(); return h != "", h })
	other := start(2)

	for round := range 2 {
		bound := w.boundCount()
		w.create(newPods(100, fmt.Sprintf("plain-%d", round), "10m", build.Scheduler("zonewise-scheduler"))...)
		w.eventually("pods are bound", func() (bool, string) { return w.boundCount() >= bound+2*qps, fmt.Sprint(w.boundCount()) })
		holder := w.leaseHolder()
		require.NoError(t, one.cmd.Process.Signal(syscall.SIGSTOP))
		w.eventually("the other replica leads", func() (bool, string) { h := w.leaseHolder(); return h != holder && h != "", h })
		bound = w.boundCount()
		w.eventually("the other replica binds", func() (bool, string) { return w.boundCount() > bound, fmt.Sprint(w.boundCount()) })
		require.NoError(t, one.cmd.Process.Signal(syscall.SIGCONT))
		require.Less(t, w.boundCount(), 100*(round+1), "nothing was left to bind, so the test shows nothing")
		require.Error(t, <-one.done, "it has lost its lease")
		if round == 0 {
			one, other = other, start(3)
		}
	}

	events, err := w.cp.audit.Events()
	require.NoError(t, err)
	lost := staleWrites(events[len(before):])
	require.Empty(t, lost, "written by a replica that did not hold the lease")
}

// staleWrites returns what programs other than the one that held the lease have written. Events are no decisions.
func staleWrites(events []auditv1.Event) (lost []string) {
	holder := ""
	for i := range events {
		e := &events[i]
		if !audit.Accepted(e) || e.ObjectRef == nil || e.ObjectRef.Resource == "events" || strings.HasSuffix(e.ObjectRef.Resource, "reviews") {
			continue
		}
		switch {
		case e.ObjectRef.Resource == "leases":
			holder = audit.Program(e)
		case audit.Program(e) != holder:
			lost = append(lost, fmt.Sprintf("%s %s %s/%s %s/%s by %s, while %s led", e.StageTimestamp.Format("15:04:05.000"), e.Verb,
				e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Namespace, e.ObjectRef.Name, audit.Program(e), holder))
		}
	}
	return lost
}
