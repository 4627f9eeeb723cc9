package ledger

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestConcurrentUse runs scheduling cycles, a pod handler, a node handler and readers side by side, as a
// scheduler does, and checks that sums stay whole and that nothing is left in the end. Run it with -race.
func TestConcurrentUse(t *testing.T) {
	const workers, rounds, nodes = 4, 300, 3
	l := New(DefaultOptions())
	for i := range nodes {
		l.AddNode(makeNode(fmt.Sprintf("n%d", i), "a"))
	}

	var cycles, readers sync.WaitGroup
	done := make(chan struct{})
	failures := make(chan error, workers)
	for worker := range workers {
		cycles.Go(func() {
			for round := range rounds {
				name := fmt.Sprintf("p%d-%d", worker, round)
				node := fmt.Sprintf("n%d", round%nodes)
				if err := l.AssumePod(makePod(name, "", "1", "1Gi"), node, t0); err != nil {
					failures <- err
					return
				}
				// The binding cycle and the informer's handler race for the pod.
				var both sync.WaitGroup
				both.Go(func() {
					if round%2 == 0 {
						l.ForgetPod(types.UID(name), node)
					}
				})
				both.Go(func() {
					_, _ = l.AddPod(makePod(name, node, "1", "1Gi"))
					l.RemovePod(types.UID(name))
				})
				both.Wait()
			}
		})
	}
	readers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				n := makeNode(fmt.Sprintf("n%d", i%nodes), "b")
				l.RemoveNode(n)
				l.AddNode(n)
			}
		}
	})
	readers.Go(func() {
		s := NewSnapshot()
		for {
			select {
			case <-done:
				return
			default:
				l.UpdateSnapshot(s)
				for _, n := range s.Nodes() {
					if n.Requested.MilliCPU != int64(len(n.Pods))*1000 || n.Requested.Pods != int64(len(n.Pods)) {
						t.Errorf("node %s has %d pods and %+v requested", n.Node.Name, len(n.Pods), n.Requested)
						return
					}
				}
				l.Stats()
				l.Dump()
			}
		}
	})

	cycles.Wait()
	close(done)
	readers.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.Equal(t, Stats{Nodes: nodes}, l.Stats())
	require.Equal(t, map[string]int64{"n0": 0, "n1": 0, "n2": 0}, milliCPU(l))
}
