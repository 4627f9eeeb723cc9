package simulate

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/test/clitest"
)

// drifted is a cluster in which zone c is empty although web is to be spread; one pod of it may not be moved. Pods of
// large need room that zone c does not have.
func drifted() *clitest.Cluster {
	c := zones("12")
	web := c.Deployment("web", 6, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	for i, node := range []string{"node-a", "node-a", "node-a", "node-b", "node-b", "node-b"} {
		pod := web(node)
		if i == 0 {
			pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}
	}
	large := c.Deployment("large", 2, "4", "1Gi", nil)
	large("node-a")
	large("node-a")
	batch := c.Deployment("batch", 1, "9", "1Gi", nil)
	batch("node-c")
	batch = c.Deployment("filler", 1, "7", "1Gi", nil)
	batch("node-b")
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
			report := NewReport([]*Result{result}, DefaultFailures)
			var text, wide bytes.Buffer
			require.NoError(t, report.Text(&text, show.Style{}))
			clitest.Golden(t, name+".txt", text.String())
			require.NoError(t, show.Object(&wide, show.YAML, "Simulation", report))
			clitest.Golden(t, name+".yaml", wide.String())
		})
	}
}

// TestReturn: a zone comes back with its nodes and what belongs to them, the displaced pods stay, and a plan moves them
// back.
func TestReturn(t *testing.T) {
	c := zones("8")
	web := c.Deployment("web", 6, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	for _, node := range []string{"node-a", "node-a", "node-b", "node-b", "node-c", "node-c"} {
		web(node)
	}
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
	web := c.Deployment("web", 6, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	for _, node := range []string{"node-a", "node-a", "node-a", "node-b", "node-b", "node-b"} {
		web(node)
	}
	var text bytes.Buffer
	require.NoError(t, NewReport([]*Result{run(t, c, &Scenario{Rebalance: true})}, DefaultFailures).Text(&text, show.Style{}))
	_, plan, _ := strings.Cut(text.String(), "\n\nRebalance\n")
	plan, _, ok := strings.Cut(plan, "  nothing is broken")
	require.True(t, ok, text.String())
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
