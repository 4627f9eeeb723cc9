package deletioncosts

import (
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller"
	"pgregory.net/rapid"

	"zonewise.dev/internal/pods"
	"zonewise.dev/test/clitest"
)

// ranked returns pods in the order in which the controller of their ReplicaSet deletes them, as its
// getPodsRankedByRelatedPodsOnSameNode and getPodsToDelete do.
func ranked(live []*v1.Pod) []*v1.Pod {
	live = slices.Clone(live)
	onNode := map[string]int{}
	for _, pod := range live {
		onNode[pod.Spec.NodeName]++
	}
	var ranks []int
	for _, pod := range live {
		ranks = append(ranks, onNode[pod.Spec.NodeName])
	}
	sort.Sort(controller.ActivePodsWithRanks{Pods: live, Rank: ranks, Now: metav1.NewTime(clitest.Now)})
	return live
}

// skewOf is the difference between the zones with most and fewest of some pods.
func skewOf(left []*v1.Pod) int {
	zones := map[byte]int{'a': 0, 'b': 0, 'c': 0}
	for _, pod := range left {
		if pod.Spec.NodeName != "" {
			zones[pod.Spec.NodeName[0]]++
		}
	}
	most, fewest := 0, math.MaxInt
	for _, n := range zones {
		most, fewest = max(most, n), min(fewest, n)
	}
	return most - fewest
}

// TestReplicaSetsKeepTheSpread: whatever the pods of a ReplicaSet look like and however many it deletes, by its own
// ranking it deletes those whose loss leaves the best spread. Costs that were given before stay where they can, and
// change nothing about that.
func TestReplicaSetsKeepTheSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a1", "a2", "b1", "b2", "c1", "c2"}
		c := newCluster(rapid.SliceOfN(rapid.SampledFrom(nodes), 1, 10).Draw(t, "pods")...)
		for range rapid.IntRange(0, 3).Draw(t, "changes before") {
			follow(c.Snapshot)
			live := livePods(c)
			if rapid.Bool().Draw(t, "one comes") || len(live) < 2 {
				c.add(rapid.SampledFrom(nodes).Draw(t, "new")).CreationTimestamp = metav1.NewTime(clitest.Now.Add(-time.Second))
			} else {
				rapid.SampledFrom(live).Draw(t, "gone").DeletionTimestamp = &metav1.Time{Time: clitest.Now}
			}
		}
		for _, pod := range livePods(c) {
			if rapid.IntRange(0, 5).Draw(t, "not ready") == 0 {
				unready(pod)
			}
		}
		follow(c.Snapshot)
		require.Empty(t, planned(c.Snapshot))

		order := ranked(livePods(c))
		ready := 0
		for ready < len(order) && !pods.Ready(order[ready]) {
			ready++
		}
		for k := ready; k <= len(order); k++ {
			best := math.MaxInt
			for chosen := range 1 << (len(order) - ready) { // of the ready pods
				var left []*v1.Pod
				for i, pod := range order[ready:] {
					if chosen&(1<<i) == 0 {
						left = append(left, pod)
					}
				}
				if len(left) == len(order)-k {
					best = min(best, skewOf(left))
				}
			}
			require.Equal(t, best, skewOf(order[k:]), "after %d of %d", k, len(order))
		}
	})
}

func livePods(c *cluster) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(c.Pods()), func(pod *v1.Pod) bool { return !pods.Live(pod) })
}
