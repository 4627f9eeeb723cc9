package buy

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSearch: what has to be bought so that each zone's loss leaves enough CPUs.
func TestSearch(t *testing.T) {
	four, eight := Model{Zone: "b", Node: "four", cpu: 4}, Model{Zone: "b", Node: "eight", cpu: 8}
	cpus := func(sizes map[string]int, want int) func(map[string]int) (bool, error) {
		return func(bought map[string]int) (bool, error) {
			have := 0
			for name, n := range bought {
				have += sizes[name] * n
			}
			return have >= want, nil
		}
	}
	sizes := map[string]int{"four": 4, "eight": 8}
	for _, tc := range []struct {
		name   string
		models []Model
		most   int
		enough func(map[string]int) (bool, error)
		want   map[string]int
	}{
		{"the fewest", []Model{four, eight}, 9, cpus(sizes, 12), map[string]int{"eight": 2}},
		{"the smallest of as many", []Model{four, eight}, 9, cpus(sizes, 4), map[string]int{"four": 1}},
		{"none is enough", []Model{four, eight}, 2, cpus(sizes, 100), nil},
		{"no models", nil, 9, cpus(sizes, 1), nil},
		{"of several what is needed", []Model{four, eight}, 9, func(bought map[string]int) (bool, error) {
			return bought["four"] >= 1 && bought["eight"] >= 3, nil
		}, map[string]int{"four": 1, "eight": 3}},
		{"room for the loss of any zone is shared", []Model{{Zone: "a", Node: "a"}, {Zone: "b", Node: "b"}, {Zone: "c", Node: "c"}}, 9, func(bought map[string]int) (bool, error) {
			return bought["a"]+bought["b"] >= 2 && bought["b"]+bought["c"] >= 2 && bought["a"]+bought["c"] >= 2, nil
		}, map[string]int{"a": 1, "b": 1, "c": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bought, err := Search(tc.models, tc.most, tc.enough)
			require.NoError(t, err)
			require.Equal(t, tc.want, bought)
		})
	}
	broken := errors.New("the copy broke")
	_, err := Search([]Model{four, eight}, 3, func(map[string]int) (bool, error) { return false, broken })
	require.ErrorIs(t, err, broken)
}

// TestSearchFindsTheLeast: the result is what brute force finds. If one model is enough alone, no smaller number of any
// model is, nor as many of a model before it. Else one node less of what it finds is not enough, and if it finds
// nothing, nothing is.
func TestSearchFindsTheLeast(t *testing.T) {
	const most = 9
	models := []Model{{Zone: "a", Node: "a"}, {Zone: "b", Node: "b"}, {Zone: "c", Node: "c"}}
	rapid.Check(t, func(t *rapid.T) {
		// Each need is met by room of some of the models together.
		type need struct {
			room map[string]int
			many int
		}
		needs := make([]need, rapid.IntRange(1, 4).Draw(t, "needs"))
		for i := range needs {
			needs[i] = need{map[string]int{}, rapid.IntRange(1, 20).Draw(t, "many")}
			for _, m := range models {
				needs[i].room[m.Node] = rapid.IntRange(0, 3).Draw(t, m.Node)
			}
		}
		isEnough := func(bought map[string]int) bool {
			for _, n := range needs {
				have := 0
				for name, room := range n.room {
					have += room * bought[name]
				}
				if have < n.many {
					return false
				}
			}
			return true
		}
		fewest, first := math.MaxInt, ""
		for _, m := range models {
			least := math.MaxInt
			for n := most; n > 0 && isEnough(map[string]int{m.Node: n}); n-- {
				least = n
			}
			if least < fewest {
				fewest, first = least, m.Node
			}
		}
		bought, err := Search(models, most, func(bought map[string]int) (bool, error) {
			for name, n := range bought {
				if n < 0 || n > most {
					t.Fatalf("%d like %s are tried", n, name)
				}
			}
			return isEnough(bought), nil
		})
		require.NoError(t, err)
		if first != "" {
			require.Equal(t, map[string]int{first: fewest}, bought)
			return
		}
		require.Equal(t, isEnough(map[string]int{"a": most, "b": most, "c": most}), bought != nil)
		if bought == nil {
			return
		}
		require.True(t, isEnough(bought), "%v", bought)
		for name := range bought {
			bought[name]--
			require.False(t, isEnough(bought), "one like %s less than needed is %v", name, bought)
			bought[name]++
		}
	})
}
