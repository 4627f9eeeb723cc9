package policy_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/plugins/zonespread/policy"
)

// TestDocumentedExamples: the examples of docs/zonespreadpolicy.md are what the code does.
func TestDocumentedExamples(t *testing.T) {
	document, err := os.ReadFile("../../../docs/zonespreadpolicy.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(document),
		"| spec | zones with their pods | R | may go to | scores | why |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")[1:]
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "|"), "|")
		require.Len(t, cells, 6, row)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		t.Run(cells[0]+" "+cells[1], func(t *testing.T) {
			allowed, scores := decide(t, strings.Trim(cells[0], "`"), cells[1], cells[2])
			require.Equal(t, cells[3], allowed, "may go to")
			require.Equal(t, cells[4], scores, "scores")
		})
	}
}

// decide returns where a pod may go, and the scores, in the words of the documentation.
func decide(t *testing.T, spec, zones, replicas string) (allowed, scores string) {
	t.Helper()
	p, in := written(t, spec), situation(t, zones)
	if replicas != "" {
		n, err := strconv.ParseInt(replicas, 10, 64)
		require.NoError(t, err)
		in.Replicas = n
	}
	table := p.Evaluate(in)
	var open []string
	for _, d := range in.Domains {
		availability := in.Availability[d.Name]
		usable := d.Eligible && availability != policy.Closed && availability != policy.Full
		if usable && (!p.Hard() || table.Rule(d.Name).OK()) {
			open = append(open, d.Name)
		}
	}
	if len(open) == 0 {
		return "none", ""
	}
	var scored []string
	for i, score := range table.Scores(open) {
		scored = append(scored, fmt.Sprintf("%s %d", open[i], score))
	}
	return strings.Join(open, ", "), strings.Join(scored, ", ")
}
