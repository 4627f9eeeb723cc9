package counts

import (
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestViewEqualsMap changes views, and clones of them, at random and compares them with plain maps.
func TestViewEqualsMap(t *testing.T) {
	domain := rapid.SampledFrom([]string{"a", "b", "c", "d", "new", "other", ""})
	rapid.Check(t, func(t *rapid.T) {
		ids := map[string]int32{}
		var names []string
		var pods []int32
		base := map[string]int{}
		for _, value := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", ""}),
			rapid.ID).Draw(t, "domains") {
			n := rapid.Int32Range(absent, 5).Draw(t, "pods")
			ids[value] = int32(len(pods)) //nolint:gosec // at most five
			names, pods = append(names, value), append(pods, n)
			if n != absent {
				base[value] = int(n)
			}
		}
		table := newTable("zone", ids, names, pods)
		type pair struct {
			view View
			want map[string]int
		}
		views := []pair{{NewView(table), maps.Clone(base)}}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			i := rapid.IntRange(0, len(views)-1).Draw(t, "view")
			if rapid.Bool().Draw(t, "clone") {
				views = append(views, pair{views[i].view.Clone(), maps.Clone(views[i].want)})
			}
			value, n := domain.Draw(t, "domain"), rapid.SampledFrom([]int{-1, 1, 1, 3}).Draw(t, "change")
			views[i].view.Add(value, n)
			views[i].want[value] += n
			for _, p := range views {
				least := math.MaxInt32
				for value, n := range p.want {
					least = min(least, n)
					if got := p.view.Count(value); got != n {
						t.Fatalf("%q has %d pods, want %d", value, got, n)
					}
				}
				if p.view.Minimum() != least || p.view.Domains() != len(p.want) {
					t.Fatalf("minimum %d of %d domains, want %d of %d (%v)", p.view.Minimum(), p.view.Domains(), least,
						len(p.want), p.want)
				}
			}
		}
		check(t, "the table under the views", table, base)
	})
}

func TestFits(t *testing.T) {
	tests := []struct {
		name     string
		matching int
		self     bool
		minimum  int
		maxSkew  int32
		want     bool
	}{
		{"the emptiest domain always fits", 3, true, 3, 1, true},
		{"one ahead and one more is two ahead", 4, true, 3, 1, false},
		{"one ahead stays one ahead for a pod that does not count", 4, false, 3, 1, true},
		{"two ahead is too far for any pod", 5, false, 3, 1, false},
		{"a wider skew", 5, true, 3, 3, true},
		{"no domain at all", 0, true, math.MaxInt32, 1, true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Fits(tc.matching, tc.self, tc.minimum, tc.maxSkew))
		})
	}
}

func TestGlobalMinimum(t *testing.T) {
	require.Equal(t, 2, GlobalMinimum(2, 3, 1))
	require.Equal(t, 2, GlobalMinimum(2, 3, 3))
	require.Equal(t, 0, GlobalMinimum(2, 3, 4))
}

func TestContribution(t *testing.T) {
	require.InDelta(t, 0.0, Contribution(0, 1, Weight(3)), 0)
	require.InDelta(t, 2*math.Log(5)+4, Contribution(2, 5, Weight(3)), 1e-12)
	require.EqualValues(t, 3, Raw(2.5))
	require.EqualValues(t, 2, Raw(2.49))
}

// TestNormalize checks what the formula promises for any raw scores: the best node gets the maximum, more
// pods never score better, and nothing leaves the range.
func TestNormalize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Int64Range(0, 1_000_000), 1, 20).Draw(t, "raw")
		r := NewRange()
		best := raw[0]
		for _, s := range raw {
			r.Add(s)
			best = min(best, s)
		}
		if got := r.Normalize(best); got != MaxNodeScore {
			t.Fatalf("the best node scores %d", got)
		}
		for _, a := range raw {
			got := r.Normalize(a)
			if got < 0 || got > MaxNodeScore {
				t.Fatalf("score %d is out of range", got)
			}
			for _, b := range raw {
				if a < b && got < r.Normalize(b) {
					t.Fatalf("raw %d scores %d, worse than raw %d with %d", a, got, b, r.Normalize(b))
				}
			}
		}
	})
}
