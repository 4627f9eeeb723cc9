package survival

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"zonewise.dev/buy"
	"zonewise.dev/test/clitest"
)

// podOf returns a pod that waits and asks for whole CPUs.
func podOf(cpus int, change ...func(*v1.Pod)) *v1.Pod {
	size := clitest.Requests(resource.NewQuantity(int64(cpus), resource.DecimalSI).String(), "1Mi")
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: size}}}}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func toleratesGPU(pod *v1.Pod) { pod.Spec.Tolerations = []v1.Toleration{{Key: "gpu"}} }

func selectsZoneB(pod *v1.Pod) {
	pod.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "b"}
}

// TestGuesses: nodes are filled by the waiting pods that they admit, the large ones first. Nothing is expected of a model that does not admit a pod which needs
// a place, and nodes in a lost zone are known not to be enough.
func TestGuesses(t *testing.T) {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node(zone, zone, "8", "32Gi")
	}
	c.Node("gpu", "b", "16", "32Gi", v1.Taint{Key: "gpu", Effect: v1.TaintEffectNoSchedule})
	c.Node("preferred", "b", "4", "32Gi", v1.Taint{Key: "gpu", Effect: v1.TaintEffectPreferNoSchedule})
	daemon := c.Pod("daemon", "c", clitest.Plain("2", "1Gi"), nil)
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "daemon", Controller: new(bool)}}
	*daemon.OwnerReferences[0].Controller = true
	models := []buy.Model{{Zone: "a", Node: "a"}, {Zone: "b", Node: "b"}, {Zone: "c", Node: "c"}, {Zone: "b", Node: "gpu"}, {Zone: "b", Node: "preferred"}}
	lostA, lostB := trial{&loss{zone: "a"}, 0}, trial{&loss{zone: "b"}, 0}
	lostNodes := trial{lossOfNodes([]string{"a", "b"}), 0}
	two, three, tolerating, inB := podOf(2), podOf(3), podOf(3, toleratesGPU), podOf(3, selectsZoneB)
	for _, tc := range []struct {
		name     string
		failures []*failure
		want     []int // Alone
		helps    []bool
		each     int
	}{
		{
			"of 8 CPUs two of 3 and one of 2, of 6 two of 3, of 4 one",
			[]*failure{{trial: lostA, waiting: []*v1.Pod{two, three, two, three, three}, protected: []*v1.Pod{two}}},
			[]int{-1, 2, 3, 0, 4},
			[]bool{false, true, true, false, true},
			1,
		},
		{
			"others that are not admitted do not count",
			[]*failure{{trial: lostA, waiting: []*v1.Pod{three, tolerating, tolerating, tolerating, inB}, protected: []*v1.Pod{tolerating}}},
			[]int{-1, 3, 2, 1, 5},
			[]bool{false, true, true, true, true},
			1,
		},
		{
			"where a protected pod may not be nothing is expected",
			[]*failure{{trial: lostA, waiting: []*v1.Pod{inB}, protected: []*v1.Pod{inB}}},
			[]int{-1, 1, 0, 0, 1},
			[]bool{false, true, false, false, true},
			1,
		},
		{
			"the most of several, and beside what is bought",
			[]*failure{
				{trial: lostA, waiting: []*v1.Pod{three, three, three}, protected: []*v1.Pod{three}},
				{trial: trial{lostA.loss, 1}, bought: map[string]int{"b": 2}, waiting: []*v1.Pod{three}, protected: []*v1.Pod{three}},
			},
			[]int{-1, 3, 2, 0, 3},
			[]bool{false, true, true, false, true},
			3,
		},
		{
			"each zone",
			[]*failure{
				{trial: lostA, waiting: []*v1.Pod{podOf(6), podOf(6), podOf(6), podOf(6)}, protected: []*v1.Pod{podOf(6)}},
				{trial: lostB, waiting: []*v1.Pod{podOf(6), podOf(6), podOf(6)}, protected: []*v1.Pod{podOf(6)}},
			},
			[]int{-1, -1, 4, -1, -1},
			[]bool{true, true, true, false, false},
			2,
		},
		{
			"the loss of nodes takes none that are bought",
			[]*failure{{trial: lostNodes, waiting: []*v1.Pod{podOf(8)}, protected: []*v1.Pod{podOf(8)}}},
			[]int{1, 1, 0, 0, 0},
			[]bool{true, true, false, false, false},
			1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &PurchaseSearch{objects: c.Objects(), failures: tc.failures}
			p.count()
			guesses, each := p.guesses(models)
			var alone []int
			var helps []bool
			for _, m := range models {
				alone, helps = append(alone, guesses[m.Node].Alone), append(helps, guesses[m.Node].Helps)
			}
			require.Equal(t, tc.want, alone)
			require.Equal(t, tc.helps, helps)
			require.Equal(t, tc.each, each)
		})
	}
}

// TestPacking: never fewer nodes than have the room, and never twice as many as brute force finds.
func TestPacking(t *testing.T) {
	c := clitest.New()
	k := &packing{node: c.Node("n", "a", "8", "32Gi")}
	k.room.MilliCPU, k.room.Memory, k.room.Pods = 8000, 32<<30, 110
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 8), 1, 7).Draw(t, "sizes")
		var pods []*v1.Pod
		for _, size := range sizes {
			pods = append(pods, podOf(size))
		}
		got, least := k.nodesFor(pods, pods), leastNodes(sizes, nil, 8)
		if got < least || got >= 2*least && got > 1 {
			t.Fatalf("%d nodes for %v, of which the least is %d", got, sizes, least)
		}
	})
}

// leastNodes tries all ways to put pods on nodes.
func leastNodes(sizes, free []int, room int) int {
	if len(sizes) == 0 {
		return len(free)
	}
	least := leastNodes(sizes[1:], append(append([]int(nil), free...), room-sizes[0]), room)
	for i := range free {
		if free[i] >= sizes[0] {
			with := append([]int(nil), free...)
			with[i] -= sizes[0]
			least = min(least, leastNodes(sizes[1:], with, room))
		}
	}
	return least
}
