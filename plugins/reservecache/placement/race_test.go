package placement

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// TestConcurrentKeeping runs scheduling cycles, a worker, pod and node handlers and a reader of reports side by side. Once all is
// quiet, one pass puts every slot in its place. Run it with -race.
func TestConcurrentKeeping(t *testing.T) {
	const rounds = 200
	s := cluster(3, "a", "b")
	s.planner.nominatedOn = func(string) ledger.Resources { return ledger.Resources{} }
	guarantee := func(slots int) Target {
		d := target("s", 1, Zone{"a", slots})
		d.Claim.Use = holds.UseFirst
		return d
	}
	s.reconcile(t, target("r", 0, Zone{"a", 4}, Zone{"b", 4}), guarantee(2))

	var cycles, others sync.WaitGroup
	done := make(chan struct{})
	cycles.Go(func() {
		// There is one scheduling cycle at a time.
		for round := range rounds {
			view := s.view()
			s.planner.Collect(view)
			name, node := fmt.Sprintf("p%d", round), view.Node(round%view.Len()).Name
			i := round % view.Len()
			allocatable, requested := view.Resources(i)
			byClaim := view.Owned(i)
			claim := []types.UID{"r", "s"}[round%2]
			pod := owned(makePod(name, "", "1"), claim)
			request := s.ledger.Requests(pod)
			after := requested.Clone()
			if after.Add(&request, 1); after.Exceeds(&allocatable) != "" {
				continue
			}
			who := holds.Requester{Claim: claim, Use: holds.Use(round % 2)}
			result := s.holds.Node(node).Fit(&holds.FitInput{
				Requester: &who, Request: &request, Allocatable: &allocatable, Requested: &requested,
				Owned: func(claim types.UID) ledger.Resources { return byClaim[claim] },
			})
			if !result.Fits {
				continue
			}
			var err error
			s.planner.Exclusively(func() {
				if result.Takes.Pods > 0 {
					_, err = s.holds.Take(claim, node, &result.Takes)
				}
				if err == nil {
					err = s.ledger.AssumePod(pod, node, t0)
				}
			})
			if err != nil {
				continue
			}
			others.Go(func() {
				_, _ = s.ledger.AddPod(owned(makePod(name, node, "1"), claim))
				s.end(name)
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
			s.planner.Set(guarantee(1 + i%3))
		}
		s.planner.Reconcile(s.live, nil)
	})
	until(func(i int) {
		n := makeNode("b3", "b", "4")
		if i%3 == 0 {
			s.ledger.RemoveNode(n)
		}
		n.Spec.Unschedulable = i%2 == 0
		s.ledger.AddNode(n)
		s.planner.OwnersChanged()
	})
	until(func(int) {
		if r, ok := s.planner.Report("s"); ok && r.Used.Pods > r.Held.Pods {
			t.Errorf("%d pods use %d slots", r.Used.Pods, r.Held.Pods)
		}
	})
	cycles.Wait()
	close(done)
	others.Wait()

	s.reconcile(t)
	r := s.report(t, "r")
	require.Zero(t, r.Missing.Pods, r.Shortfalls())
	require.Equal(t, int64(8), r.Held.Pods)
	require.Empty(t, s.reconcile(t))
	require.Equal(t, ledger.Stats{Nodes: 6}, s.ledger.Stats())
}
