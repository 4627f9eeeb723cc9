package simulate

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/clitest"
)

// drifted is a cluster in which zone c is empty although web is to be spread; one pod of it may not be moved. Pods of
// large need room that zone c does not have.
func drifted() *clitest.Cluster {
	c := zones("12")
	pods := c.Running("web", "1", clitest.Spread("web"), "node-a", "node-a", "node-a", "node-b", "node-b", "node-b")
	pods[0].Annotations = map[string]string{clitest.DoNotDisrupt: "true"}
	c.Running("large", "4", nil, "node-a", "node-a")
	c.Running("batch", "9", nil, "node-c")
	c.Running("filler", "7", nil, "node-b")
	c.Policy("large", nil)
	return c
}

func TestRebalance(t *testing.T) {
	for name, c := range map[string]*clitest.Cluster{"rebalance": drifted(), "return": clitest.Story()} {
		t.Run(name, func(t *testing.T) {
			s := &Scenario{Rebalance: true}
			if name == "return" {
				s.Zones, s.Return = []string{"a"}, true
			}
			result := run(t, c, s)
			result.Passed = "" // of a return and a search for moves it depends on the machine
			golden(t, name, NewReport([]*Result{result}, DefaultFailures))
		})
	}
}

// TestReturn: a zone comes back with its nodes and what belongs to them, the displaced pods stay, and a plan moves them
// back.
func TestReturn(t *testing.T) {
	c := zones("8")
	c.Running("web", "1", clitest.Spread("web"), onEach(6)...)
	lost := run(t, c, &Scenario{Zones: []string{"c"}})
	require.True(t, lost.Zones[2].Lost)

	back := run(t, c, &Scenario{Zones: []string{"c"}, Return: true, Rebalance: true})
	require.Equal(t, 1, back.ReturnedNodes)
	require.False(t, back.Zones[2].Lost)
	require.Zero(t, back.Zones[2].After.Pods, "displaced pods stay where they are")
	require.Len(t, back.Rebalance.Moves, 2)
	require.Zero(t, back.Rebalance.After.Excess)
	require.True(t, back.Rebalance.Complete)
}

// TestDocumentedPlan: the report that docs/rebalance.md shows is that of a zone that is back.
func TestDocumentedPlan(t *testing.T) {
	c := zones("8")
	c.Running("web", "1", clitest.Spread("web"), "node-a", "node-a", "node-a", "node-b", "node-b", "node-b")
	shown := text(t, run(t, c, &Scenario{Rebalance: true}))
	_, plan, _ := strings.Cut(shown, "\n\nRebalance\n")
	plan, _, ok := strings.Cut(plan, "  nothing is broken")
	require.True(t, ok, shown)
	document, err := os.ReadFile("../../../docs/rebalance.md")
	require.NoError(t, err)
	require.Contains(t, string(document), "```\nRebalance\n"+plan+"```\n")
}

// TestBalanceFails: the exit code can say that pods are too many in their zones after the plan.
func TestBalanceFails(t *testing.T) {
	r := run(t, drifted(), &Scenario{Rebalance: true})
	require.Positive(t, r.Rebalance.After.Excess)
	require.True(t, NewReport([]*Result{r}, DefaultFailures).Survives)
	require.False(t, NewReport([]*Result{r}, []string{FailBalance}).Survives)
}
