package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/zonespread/policy"
)

func TestScores(t *testing.T) {
	for _, test := range []struct {
		name   string
		p      *policy.Policy
		counts []int64
		view   policy.ZoneAvailability
		want   []int64
	}{
		{"even", compile(t), []int64{2, 2, 2}, nil, []int64{100, 100, 100}},
		{"one more", compile(t), []int64{3, 2, 2}, nil, []int64{0, 100, 100}},
		// kubernetes/kubernetes 91234: the signal must not fade as pods become many.
		{"one more among thousands", compile(t, scheduleAnyway), []int64{3000, 3001, 3000}, nil, []int64{100, 0, 100}},
		{"in between", compile(t), []int64{0, 1, 4}, nil, []int64{100, 75, 0}},
		{"by weight", compile(t, withZones(weighted("a", 7), weighted("b", 3))), []int64{6, 2}, nil, []int64{100, 100}},
		{
			"ahead of its weight", compile(t, withZones(weighted("a", 7), weighted("b", 3))),
			[]int64{6, 3},
			nil,
			[]int64{100, 0},
		},
		{
			"soft: over the cap is last", compile(t, scheduleAnyway, maxPerZone("40%")),
			[]int64{4, 1, 3},
			nil,
			[]int64{0, 100, 10},
		},
		{
			"soft: forbidden is last", compile(t, scheduleAnyway, withZones(weighted("a", 0))),
			[]int64{0, 4, 4},
			nil,
			[]int64{0, 100, 100},
		},
		{
			"recovering comes first", compile(t),
			[]int64{4, 3, 1},
			policy.ZoneAvailability{"c": policy.Recovering},
			[]int64{0, 20, 100},
		},
		{
			"recovering and caught up is like others", compile(t),
			[]int64{4, 3, 3},
			policy.ZoneAvailability{"c": policy.Recovering},
			[]int64{0, 100, 100},
		},
		{
			"two recover", compile(t),
			[]int64{4, 0, 1},
			policy.ZoneAvailability{"b": policy.Recovering, "c": policy.Recovering},
			[]int64{20, 100, 80},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := test.p.Evaluate(policy.Input{
				Domains: domains(test.counts...), Replicas: 10,
				Availability: test.view,
			})
			require.Equal(t, test.want, table.Scores(zoneNames(len(test.counts))))
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
