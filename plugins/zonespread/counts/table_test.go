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

func TestTableWithoutDomains(t *testing.T) {
	table := newTable("zone", map[string]int32{}, nil, nil)
	require.Equal(t, 0, table.Domains())
	require.Equal(t, math.MaxInt32, table.Minimum())
	require.Equal(t, 0, table.Count("a"))
	view := NewView(table)
	view.Add("a", 1)
	require.Equal(t, 1, view.Minimum())
	require.Equal(t, 1, view.Domains())
}
