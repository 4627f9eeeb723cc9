package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// availabilities are the words of the documentation.
var availabilities = map[string]policy.Availability{
	"closed": policy.Closed, "full": policy.Full, "recovering": policy.Recovering, "closing": policy.Closing,
}

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
	obj := &v1alpha1.ZoneSpreadPolicy{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &obj.Spec))
	obj.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	p, errs := policy.Compile(obj)
	require.Empty(t, errs)
	in := policy.Input{Availability: policy.ZoneAvailability{}}
	if replicas != "" {
		n, err := strconv.ParseInt(replicas, 10, 64)
		require.NoError(t, err)
		in.Replicas = n
	}
	var names []string
	state := map[string]string{}
	for zone := range strings.SplitSeq(zones, ", ") {
		words := strings.Fields(zone)
		pods, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(t, err)
		d := policy.Domain{Name: words[0], Pods: pods, Held: pods, Eligible: true}
		if len(words) > 2 {
			state[d.Name] = words[2]
			d.Eligible = words[2] != "ineligible"
			if availability, known := availabilities[words[2]]; known {
				in.Availability[d.Name] = availability
			} else {
				require.False(t, d.Eligible, words[2])
			}
		}
		names = append(names, d.Name)
		in.Domains = append(in.Domains, d)
	}
	table := p.Evaluate(in)
	open := slices.DeleteFunc(names, func(name string) bool {
		usable := state[name] != "closed" && state[name] != "full" && state[name] != "ineligible"
		return !usable || p.Hard() && !table.Rule(name).OK()
	})
	if len(open) == 0 {
		return "none", ""
	}
	var scored []string
	for i, score := range table.Scores(open) {
		scored = append(scored, fmt.Sprintf("%s %d", open[i], score))
	}
	return strings.Join(open, ", "), strings.Join(scored, ", ")
}
