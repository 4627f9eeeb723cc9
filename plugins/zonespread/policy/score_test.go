package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

// TestScores, where the examples of the documentation do not show them.
func TestScores(t *testing.T) {
	const weights = "{zones: [{name: a, weight: 7}, {name: b, weight: 3}]}"
	for _, test := range []struct {
		name, spec, zones string
		want              []int64
	}{
		// kubernetes/kubernetes 91234: the signal must not fade as pods become many.
		{"one more among thousands", "{}", "a 3000, b 3001, c 3000", []int64{100, 0, 100}},
		{"in between", "{}", "a 0, b 1, c 4", []int64{100, 75, 0}},
		{"by weight", weights, "a 6, b 2", []int64{100, 100}},
		{"over the cap is last", "{whenUnsatisfiable: ScheduleAnyway, maxPerZone: 40%}", "a 4, b 1, c 3", []int64{0, 100, 10}},
		{"forbidden is last", "{whenUnsatisfiable: ScheduleAnyway, zones: [{name: a, weight: 0}]}", "a 0, b 4", []int64{0, 100}},
		{"caught up", "{}", "a 4, b 3, c 3 recovering", []int64{0, 100, 100}},
		{"two recover", "{}", "a 4, b 0 recovering, c 1 recovering", []int64{20, 100, 80}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := situation(t, test.zones)
			in.Replicas = 10
			require.Equal(t, test.want, written(t, test.spec).Evaluate(in).Scores(zoneNames(len(in.Domains))))
		})
	}
	table := compile(t).Evaluate(policy.Input{Domains: domains(5, 1), Replicas: 10})
	require.Equal(t, []int64{100}, table.Scores([]string{"a"}), "only zones that are still in question are compared")
	require.Empty(t, table.Scores(nil))
}

func TestScoresFollowShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "zones")
		p := drawPolicy(t, n, 1000, false)
		counts := rapid.SliceOfN(rapid.Int64Range(0, 300), n, n).Draw(t, "counts")
		names := zoneNames(n)
		table := p.Evaluate(policy.Input{Domains: domains(counts...), Replicas: 1000})
		scores := table.Scores(names)
		require.Contains(t, scores, policy.MaxScore)
		for _, s := range scores {
			require.GreaterOrEqual(t, s, int64(0))
			require.LessOrEqual(t, s, policy.MaxScore)
		}
		// Another pod in a zone never makes its score better.
		i := rapid.IntRange(0, n-1).Draw(t, "zone")
		counts[i]++
		more := p.Evaluate(policy.Input{Domains: domains(counts...), Replicas: 1000}).Scores(names)
		require.LessOrEqual(t, more[i], scores[i])
	})
}
