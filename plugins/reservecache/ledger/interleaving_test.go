package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// events are what can happen to a pod after Reserve. The informer keeps Add before Delete; all else comes
// in any order.
var events = map[string]func(*testing.T, *Ledger){
	"Add": func(t *testing.T, l *Ledger) {
		_, err := l.AddPod(makePod("p", "n1", "1", "1Gi"))
		require.NoError(t, err)
	},
	"AddElsewhere": func(t *testing.T, l *Ledger) {
		_, err := l.AddPod(makePod("p", "n2", "1", "1Gi"))
		require.NoError(t, err)
	},
	"Unreserve": func(_ *testing.T, l *Ledger) { l.ForgetPod("p", "n1") },
	"Delete":    func(_ *testing.T, l *Ledger) { l.RemovePod("p") },
}

// permutations calls visit with every order of every subset of names.
func permutations(names []string, visit func([]string)) {
	var extend func(chosen []string)
	extend = func(chosen []string) {
		visit(chosen)
		for _, name := range names {
			if !slices.Contains(chosen, name) {
				extend(append(slices.Clone(chosen), name))
			}
		}
	}
	extend(nil)
}

// where returns the state in which a sequence of events must leave a pod that was assumed on n1, judged
// by which of them happened and not by their order, save that Add and Delete are the API server's word.
func where(sequence []string) (State, string) {
	added := ""
	for _, event := range sequence {
		switch event {
		case "Add":
			added = "n1"
		case "AddElsewhere":
			added = "n2"
		case "Delete":
			added = ""
		}
	}
	switch {
	case added != "":
		return Added, added
	case slices.Contains(sequence, "Delete"), slices.Contains(sequence, "Unreserve"):
		return None, ""
	default:
		return Assumed, "n1"
	}
}

// TestEveryInterleaving runs every order of every subset of {Add, Unreserve, Delete}, of a pod that
// is bound where it was assumed and of one that is bound elsewhere, each event once and each event
// delivered twice in a row.
func TestEveryInterleaving(t *testing.T) {
	for _, add := range []string{"Add", "AddElsewhere"} {
		for _, times := range []int{1, 2} {
			permutations([]string{add, "Unreserve", "Delete"}, func(sequence []string) {
				t.Run(fmt.Sprintf("%s/x%d", strings.Join(append([]string{"Assume"}, sequence...), ","), times), func(t *testing.T) {
					l := New(DefaultOptions())
					l.AddNode(makeNode("n1", "a"))
					l.AddNode(makeNode("n2", "b"))
					mustAdd(t, l, makePod("other", "n1", "2", "1Gi"), PodAdded)
					require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))

					for _, event := range sequence {
						for range times {
							events[event](t, l)
						}
					}

					state, node := where(sequence)
					got, known := l.GetPod("p")
					require.Equal(t, state, got.State)
					require.Equal(t, state != None, known)
					require.Equal(t, node, got.Node)
					require.Equal(t, state == Assumed, l.IsAssumedPod("p"))
					want := map[string]int64{"n1": 2000, "n2": 0}
					if node != "" {
						want[node] += 1000
					}
					require.Equal(t, want, milliCPU(l))

					// In the end the pod goes, and nothing of it is left.
					l.RemovePod("p")
					require.Equal(t, map[string]int64{"n1": 2000, "n2": 0}, milliCPU(l))
					require.Equal(t, Stats{Pods: 1, Nodes: 2}, l.Stats())
				})
			})
		}
	}
}
