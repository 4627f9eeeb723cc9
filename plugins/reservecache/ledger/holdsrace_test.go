package ledger

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestConcurrentHolds runs cycles that compete for slots, a controller that places and releases them, pod and
// node handlers and readers side by side. At any moment the pods in slots are no more than the slots, and in
// the end nothing is left. Run it with -race.
func TestConcurrentHolds(t *testing.T) {
	const workers, rounds, nodes = 4, 300, 3
	l := New(DefaultOptions())
	for i := range nodes {
		l.AddNode(makeNode(fmt.Sprintf("n%d", i), "a"))
	}
	place := func(n int) {
		var slots []Slot
		for i := range nodes {
			slots = append(slots, cpus(fmt.Sprintf("n%d", i), 1, n))
		}
		_, _ = l.PlaceHolds(shop, slots)
	}
	place(2)

	var cycles, others sync.WaitGroup
	done := make(chan struct{})
	for worker := range workers {
		cycles.Go(func() {
			for round := range rounds {
				name := types.UID(fmt.Sprintf("p%d-%d", worker, round))
				node := fmt.Sprintf("n%d", round%nodes)
				_, err := l.AssumePodOnHold(makePod(string(name), "", "1", "1Gi"), node, &Admission{
					Asker:       Asker{Claims: []ClaimID{shop.ID}, Use: Use(round % 3)},
					Allocatable: Resources{MilliCPU: 32000, Memory: 64 << 30, Pods: 110},
					// The cycle sees no other pods; what matters here is that the ledger keeps its own books.
					Present: func(types.UID) bool { return true },
				}, t0)
				if err != nil {
					continue
				}
				var both sync.WaitGroup
				both.Go(func() {
					if round%2 == 0 {
						l.FinishBinding(name, node, t0)
					} else {
						l.ForgetPod(name, node)
					}
				})
				both.Go(func() {
					_, _ = l.AddPod(makePod(string(name), node, "1", "1Gi"))
					l.RemovePod(name)
				})
				both.Wait()
			}
		})
	}
	until := func(step func(i int) bool) {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					if !step(i) {
						return
					}
				}
			}
		})
	}
	until(func(i int) bool {
		if i%5 == 0 {
			l.ReleaseHolds(shop.ID)
		}
		place(1 + i%3)
		return true
	})
	until(func(i int) bool {
		n := makeNode(fmt.Sprintf("n%d", i%nodes), "b")
		l.RemoveNode(n)
		l.AddNode(n)
		return true
	})
	var view HoldsView
	snapshot := NewSnapshot()
	until(func(int) bool {
		l.UpdateHoldsView(&view)
		l.UpdateSnapshot(snapshot)
		for _, n := range snapshot.Nodes() {
			if n.Holds == nil {
				continue
			}
			for i := range n.Holds.Holds {
				if h := &n.Holds.Holds[i]; len(h.Consumers) > h.Slots {
					t.Errorf("%d pods use %d slots of %s", len(h.Consumers), h.Slots, n.Node.Name)
					return false
				}
			}
		}
		l.TakeNews()
		l.Queue()
		l.Dump()
		return true
	})

	cycles.Wait()
	close(done)
	others.Wait()
	l.ReleaseHolds(shop.ID)
	require.Equal(t, Stats{Nodes: nodes}, l.Stats())
	require.Empty(t, l.Claims())
	l.UpdateHoldsView(&view)
	require.True(t, view.Empty())
	require.Equal(t, 0, l.heldNodes)
}
