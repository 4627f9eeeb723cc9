package explain_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/featuregates"
)

func TestMain(m *testing.M) { featuregates.Run(m) }

// TestNativeGangsAreExplained: what a native gang lacks, and its members one by one, as of other gangs.
func TestNativeGangsAreExplained(t *testing.T) {
	explained := func(c *clitest.Cluster) *explain.Report {
		x := explain.Explainer{Census: census.Take(c.Snapshot), Command: "zonewise"}
		r, err := x.Gang(t.Context(), census.Key(clitest.Namespace, "gang", true), nil)
		require.NoError(t, err)
		require.NotNil(t, r)
		return r
	}
	c := oneNode()
	c.NativeGang("gang", 2, "5", "", "")
	r := explained(c)
	require.Equal(t, 2, r.Gang.Missing)
	require.Equal(t, 1, *r.Gang.Fit)
	require.Contains(t, r.Gang.Why, "the cluster has no room for 2 members at once: short of cpu")
	require.Contains(t, strings.Join(r.Next, "\n"), "PodGroup shop/gang (native) needs 2 more members at once, and 1 of them would find a node; gang-1 is the first that would not")
	require.Contains(t, r.Next, "in zone a: 1 more node like node-a")
	member := pod(t, c, "gang-0")
	require.Equal(t, 2, member.Gang.Missing)
	require.Contains(t, strings.Join(member.Next, "\n"), "zonewise explain podgroup.scheduling.k8s.io/gang -n shop says whether they fit")

	c.Node("node-b", "b", "8", "8Gi")
	require.Contains(t, strings.Join(explained(c).Next, "\n"), "no change is needed: PodGroup shop/gang (native) needs 2 more members at once, and they fit now")

	few := oneNode()
	few.NativeGang("gang", 3, "1", "")
	require.Equal(t, []string{"PodGroup shop/gang (native) needs 3 members and has 1: 2 more pods must be created"}, explained(few).Next)

	whole := oneNode()
	whole.NativeGang("gang", 2, "1", "node-a", "node-a")
	require.Zero(t, explained(whole).Gang.Missing)
	require.True(t, pod(t, whole, "gang-0").Now.Stays)
}
