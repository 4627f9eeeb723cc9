package parity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestFilterAllocatesNothing looks at nodes that fit, that are too skewed and that lack a key. Filter runs
// on thousands of nodes for each pod. A refusal is one object, which the framework keeps.
func TestFilterAllocatesNothing(t *testing.T) {
	pair, _ := setUp(t, Options{}, []string{"fits zone=z2 host=fits", "skewed zone=z1 host=skewed", "keyless host=keyless"}, []string{"skewed foo x2"})
	c, status, err := Start(t.Context(), pair.Ours, pair.Lister, incoming("foo", spread(1, "host", selects("bar")), spread(1, "zone", selects("foo"))))
	require.NoError(t, err)
	require.True(t, status.IsSuccess())
	verdicts := map[string]string{"fits": "Success", "skewed": "Unschedulable", "keyless": "UnschedulableAndUnresolvable"}
	for _, n := range c.Nodes {
		name := n.Node().Name
		require.Equal(t, verdicts[name], pair.Ours.Filter(t.Context(), c.State, c.Pod, n).Code().String())
		requireOnlyRefusals(t, name, func() *fwk.Status { return pair.Ours.Filter(t.Context(), c.State, c.Pod, n) })
	}
}

func requireOnlyRefusals(t *testing.T, node string, filter func() *fwk.Status) {
	t.Helper()
	want := 0.0
	if filter() != nil {
		want = 1
	}
	require.InDelta(t, want, testing.AllocsPerRun(1000, func() { filter() }), 0, node)
}

// TestFilterAllocatesNothingWithPolicies looks at nodes of a zone that fits, of one that is ahead, of one that is
// forbidden and of none.
func TestFilterAllocatesNothingWithPolicies(t *testing.T) {
	nodes := []*v1.Node{node(t, "fits zone=z2"), node(t, "skewed zone=z1"), node(t, "forbidden zone=z3"), node(t, "keyless")}
	pair, source := withPolicies(t, cache.NewSnapshot(pods(t, []string{"skewed foo x2"}), nodes))
	source.Put(policyFor("web", v1alpha1.ZoneSpreadZone{Name: "z3", Weight: ptr.To[int32](0)}))
	pod := incoming("foo")
	c, status, err := Start(t.Context(), pair.Ours, pair.Lister, pod)
	require.NoError(t, err)
	require.True(t, status.IsSuccess())
	verdicts := map[string]string{
		"fits": "Success", "skewed": "Unschedulable", "forbidden": "UnschedulableAndUnresolvable", "keyless": "UnschedulableAndUnresolvable",
	}
	for _, n := range c.Nodes {
		name := n.Node().Name
		first := pair.Ours.Filter(t.Context(), c.State, c.Pod, n)
		require.Equal(t, verdicts[name], first.Code().String(), "%s: %v", name, first)
		requireOnlyRefusals(t, name, func() *fwk.Status { return pair.Ours.Filter(t.Context(), c.State, c.Pod, n) })
		if first != nil {
			first.SetPlugin("the framework writes to a status")
			require.Empty(t, pair.Ours.Filter(t.Context(), c.State, c.Pod, n).Plugin())
		}
	}
}

// TestRefusalsAreIndependent: the framework writes to the statuses that it gets, from many goroutines.
func TestRefusalsAreIndependent(t *testing.T) {
	pair, _ := setUp(t, Options{}, []string{"a zone=z1", "b zone=z2"}, []string{"a foo x2"})
	c, _, err := Start(t.Context(), pair.Ours, pair.Lister, incoming("foo", spread(1, "zone", selects("foo"))))
	require.NoError(t, err)
	full := c.Nodes[0]
	if full.Node().Name != "a" {
		full = c.Nodes[1]
	}
	t.Run("group", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for j := range 200 {
					status := pair.Ours.Filter(t.Context(), c.State, c.Pod, full)
					mine := fmt.Sprintf("%d/%d", i, j)
					status.SetPlugin(mine)
					status.AppendReason(mine)
					require.Equal(t, mine, status.Plugin())
					require.Equal(t, []string{"node(s) didn't match pod topology spread constraints", mine}, status.Reasons())
				}
			})
		}
	})
}
