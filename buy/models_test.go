package buy

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func sized(name, zone, size string, change ...func(*v1.Node)) *v1.Node {
	n := node(name, zone, true)
	n.Labels[v1.LabelHostname] = name
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(size)}
	for _, c := range change {
		c(n)
	}
	return n
}

// TestModels: one node of each kind and zone, by what schedulers see of it: the kinds of each zone that have most of the pods, and the most frequent ones.
func TestModels(t *testing.T) {
	nodes := []*v1.Node{
		sized("a1", "a", "4"), sized("a2", "a", "4000m"), sized("a3", "a", "8"),
		sized("a4", "a", "4", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}} }),
		sized("a5", "a", "2", func(n *v1.Node) { n.Spec.Unschedulable = true }), sized("a6", "a", "16"),
		sized("b1", "b", "4", func(n *v1.Node) { n.Labels["disk"] = "ssd"; n.Labels["host"] = "b1" }), node("b2", "b", false),
		sized("c", "c", "4"), sized("d", "d", "4"),
	}
	models := func(pods map[string]int) (names []string) {
		for _, m := range Models(nodes, pods) {
			names = append(names, m.Zone+"/"+m.Node)
		}
		return names
	}
	require.Equal(t, []string{"a/a1", "a/a4", "b/b1", "c/c", "d/d", "a/a3"}, models(nil), "a6 is one kind too many")
	require.Equal(t, []string{"a/a4", "a/a6", "a/a1", "b/b1", "c/c", "d/d"}, models(map[string]int{"a6": 2, "a4": 1, "gone": 9}))
}

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
			bought, err := Search(tc.models, tc.most/3, tc.most, tc.enough)
			require.NoError(t, err)
			require.Equal(t, tc.want, bought)
		})
	}
	broken := errors.New("the copy broke")
	_, err := Search([]Model{four, eight}, 1, 3, func(map[string]int) (bool, error) { return false, broken })
	require.ErrorIs(t, err, broken)
}

// TestSearchGivesUpWhatItCan: one node less of what it finds is not enough.
func TestSearchGivesUpWhatItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		models := []Model{{Zone: "a", Node: "a"}, {Zone: "b", Node: "b"}, {Zone: "c", Node: "c"}}
		// Each demand is met by some of the models together.
		type need struct {
			of   []string
			many int
		}
		var needs []need
		for range rapid.IntRange(1, 4).Draw(t, "needs") {
			n := need{many: rapid.IntRange(1, 5).Draw(t, "many")}
			for _, m := range models {
				if rapid.Bool().Draw(t, m.Node) {
					n.of = append(n.of, m.Node)
				}
			}
			if len(n.of) > 0 {
				needs = append(needs, n)
			}
		}
		enough := func(bought map[string]int) (bool, error) {
			for _, n := range needs {
				have := 0
				for _, name := range n.of {
					have += bought[name]
				}
				if have < n.many {
					return false, nil
				}
			}
			return true, nil
		}
		if len(needs) == 0 {
			return
		}
		bought, _ := Search(models, rapid.IntRange(0, 10).Draw(t, "likely"), 9, enough)
		if yes, _ := enough(bought); !yes {
			t.Fatalf("%v is not enough", bought)
		}
		for name := range bought {
			bought[name]--
			if yes, _ := enough(bought); yes {
				t.Fatalf("one like %s less than needed is %v", name, bought)
			}
			bought[name]++
		}
	})
}
