package framework

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/test/build"
)

// outcome is what has become of services in a cluster: pods that found no room, skew of the services in sum, and nodes
// used.
type outcome struct{ left, skew, nodes int }

func (o outcome) plus(p outcome) outcome {
	return outcome{o.left + p.left, o.skew + p.skew, o.nodes + p.nodes}
}

// scenario is a cluster that is 60% full and services that do not quite fit.
type scenario struct {
	seed           uint64
	nodes          int
	demand         float64 // of all CPUs, beside the 60%
	nodeCPU        []int
	podCPU         []int // thousandths
	mostPerService int
}

// run places the services with a plugin. The pods of a service follow each other, as those of a Deployment do.
func (s *scenario) run(t *testing.T, opts ...option) (o outcome) {
	t.Helper()
	inBubble(t, func(t *testing.T) { o = s.runInBubble(t, opts...) })
	return o
}

func (s *scenario) runInBubble(t *testing.T, opts ...option) outcome {
	t.Helper()
	rng := rand.New(rand.NewPCG(s.seed, s.seed)) //nolint:gosec // a fixed seed gives both plugins the same cluster
	c := newSpreadCluster(t)
	total := 0
	for i := range s.nodes {
		cpu := s.nodeCPU[rng.IntN(len(s.nodeCPU))]
		zone := string("aaabbc"[rng.IntN(6)]) // some zones are larger
		name := fmt.Sprintf("%s%d", zone, i)
		c.addNodes(fmt.Sprint(cpu), name)
		total += cpu * 1000
		for used := 0; used < cpu*600; {
			n := min(s.podCPU[rng.IntN(len(s.podCPU))], cpu*600-used)
			used += n
			c.createPods(newPod(fmt.Sprintf("before-%s-%d", name, used), fmt.Sprintf("%dm", n), build.Label("app", "before"),
				build.Bound(name)))
		}
	}
	services, pods := 0, 0
	for asked := 0; asked < int(float64(total)*s.demand); services++ {
		cpu, replicas := s.podCPU[rng.IntN(len(s.podCPU))], 1+rng.IntN(s.mostPerService)
		app := fmt.Sprintf("service-%d", services)
		spread := overZones()
		spread.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		c.createPods(newPods(replicas, app, fmt.Sprintf("%dm", cpu), build.Label("app", app), func(pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{spread}
		})...)
		asked += cpu * replicas
		pods += replicas
	}
	c.start(opts...)
	c.eventually("all are tried", func() bool { return c.cycles.Load() >= int64(pods) })
	c.pass(20 * time.Second) // what comes back from its backoff
	c.stop()

	var o outcome
	used := map[string]bool{}
	zones := map[string]map[string]int{}
	for _, pod := range c.listPods("service") {
		app := pod.Labels["app"]
		if zones[app] == nil {
			zones[app] = map[string]int{"a": 0, "b": 0, "c": 0}
		}
		if node := pod.Spec.NodeName; node == "" {
			o.left++
		} else {
			used[node] = true
			zones[app][node[:1]]++
		}
	}
	o.nodes = len(used)
	for _, counts := range zones {
		o.skew += max(counts["a"], counts["b"], counts["c"]) - min(counts["a"], counts["b"], counts["c"])
	}
	return o
}

// TestOutcomesEqualInTree: in clusters that become full ZoneSpread places as many pods as the in-tree plugin, as
// evenly, on as many nodes. Equal verdicts do not show that: which pods are batched decides, too. Placed by the scores
// of their first pod, services leave more pods without room. Which of equal nodes is taken is chance, by which runs of
// the in-tree plugin differ, too.
func TestOutcomesEqualInTree(t *testing.T) {
	var inTrees, ours outcome
	for seed := range uint64(3) {
		s := scenario{
			seed: seed, nodes: 50, demand: 0.42, mostPerService: 12,
			nodeCPU: []int{8, 16, 16, 32}, podCPU: []int{250, 500, 1000, 1000, 2000, 4000},
		}
		theirs, o := s.run(t, inTree), s.run(t)
		t.Logf("cluster %d: in-tree %+v, ours %+v", seed, theirs, o)
		inTrees, ours = inTrees.plus(theirs), ours.plus(o)
	}
	require.Greater(t, inTrees.left, 60, "the clusters became full")
	// With pods of hard constraints signed, 10% more are left here, and twice as many in larger clusters.
	require.LessOrEqual(t, ours.left, inTrees.left*108/100, "pods left")
	require.LessOrEqual(t, ours.skew, inTrees.skew*108/100, "skew")
	require.InDelta(t, inTrees.nodes, ours.nodes, float64(inTrees.nodes)/20, "nodes used")
}
