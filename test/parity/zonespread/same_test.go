package parity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// pairOn returns both plugins on a cluster of clusters, with its pods and nodes.
func pairOn(t *testing.T, cluster struct{ nodes, pods []string }, options Options) (pair *Pair, running []*v1.Pod, nodes []*v1.Node) {
	t.Helper()
	for _, line := range cluster.nodes {
		nodes = append(nodes, node(t, line))
	}
	running = pods(t, cluster.pods)
	pair, err := NewPair(t.Context(), cache.NewSnapshot(running, nodes), options)
	require.NoError(t, err)
	return pair, running, nodes
}

// requireSame runs a cycle of each plugin with a pod of its own, which may be one, and returns the outcome of both.
func (p *Pair) requireSame(t *testing.T, name string, theirs, ours *v1.Pod, keep func(string) bool) Outcome {
	t.Helper()
	want, err := Run(t.Context(), p.InTree, p.Lister, theirs, keep)
	require.NoError(t, err, name)
	got, err := Run(t.Context(), p.Ours, p.Lister, ours, keep)
	require.NoError(t, err, name)
	require.Empty(t, cmp.Diff(want, got), "%s (-in-tree +ours)", name)
	return want
}

// graded counts the scores that tell nodes apart by more than best and worst.
func (o *Outcome) graded() (scores int) {
	for _, score := range o.Scores {
		if score > 0 && score < 100 {
			scores++
		}
	}
	return scores
}
