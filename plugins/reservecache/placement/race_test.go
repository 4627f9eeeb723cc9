package placement

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// TestConcurrentKeeping runs scheduling cycles, a controller, pod and node handlers and a reader of reports side
// by side. Once all is quiet, one Reconcile puts every slot in its place. Run it with -race.
func TestConcurrentKeeping(t *testing.T) {
	const rounds = 200
	l := cluster(3, "a", "b")
	k := keeper(t, l, demand("r", 0, Zone{"a", 4}, Zone{"b", 4}), demand("s", 1, Zone{"a", 2}))
	k.Reconcile(nil)

	var cycles, others sync.WaitGroup
	done := make(chan struct{})
	cycles.Go(func() {
		// There is one scheduling cycle at a time.
		for round := range rounds {
			view := cycle(l)
			k.Refill(view, nil)
			i := round % view.Len()
			allocatable, requested := view.Resources(i)
			name, node := fmt.Sprintf("p%d", round), view.Node(i).Name
			_, err := l.AssumePodOnHold(makePod(name, "", "1"), node, &ledger.Admission{
				Asker:     ledger.Asker{Claims: []ledger.ClaimID{id("r")}, Use: ledger.Use(round % 2)},
				Requested: requested, Allocatable: allocatable,
				Present: func(uid types.UID) bool { return view.Present(i, uid) },
			}, t0)
			if err != nil {
				continue
			}
			others.Go(func() {
				_, _ = l.AddPod(makePod(name, node, "1"))
				l.RemovePod(types.UID(name))
			})
		}
	})
	until := func(step func(i int)) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					step(i)
				}
			}
		})
	}
	until(func(i int) {
		if i%10 == 0 {
			d := demand("s", 1, Zone{"a", 1 + i%3})
			if err := k.Set(d); err != nil {
				t.Error(err)
			}
		}
		k.Reconcile(nil)
		l.TakeNews()
	})
	until(func(i int) {
		n := makeNode("b3", "b", "4")
		if i%3 == 0 {
			l.RemoveNode(n)
		}
		n.Spec.Unschedulable = i%2 == 0
		l.AddNode(n)
	})
	until(func(int) {
		if r, ok := k.Report(id("r")); ok && r.Used > r.Held {
			t.Errorf("%d pods use %d slots", r.Used, r.Held)
		}
	})
	cycles.Wait()
	close(done)
	others.Wait()

	k.Reconcile(nil)
	r, ok := k.Report(id("r"))
	require.True(t, ok)
	require.Zero(t, r.Missing, r.Shortfalls())
	require.Equal(t, 8, r.Held)
	require.Empty(t, k.Reconcile(nil).Changed)
}
