package parity

import (
	"context"
	"flag"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
)

// cyclesPerCluster times rapid's default of 100 checks, 20 with -short, is the number of cycles that are compared. Give
// -rapid.checks for more, as `make soak` does.
var cyclesPerCluster = flag.Int("parity.cycles", 200, "scheduling cycles in each random cluster")

// TestRandomClustersEqualInTree schedules random pods in random clusters that change between cycles, by
// both plugins, on the snapshot of the scheduler's own cache. Two profiles, with List and with System
// defaulting, take turns. On failure rapid prints the seed and the smallest case that it finds.
func TestRandomClustersEqualInTree(t *testing.T) {
	cycles, hard, graded, group, all := 0, 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := newCluster(ctx)
		profiles := newProfiles(ctx, t, c)
		for range rapid.SampledFrom([]int{2, 4, 8, 8, 16, 40, 120}).Draw(t, "nodes") {
			c.mutateNode(t, "add node")
		}
		for range *cyclesPerCluster {
			for range rapid.IntRange(0, 3).Draw(t, "mutations") {
				c.mutate(t)
			}
			c.must(t, c.cache.UpdateSnapshot(c.logger, c.snapshot))
			pair := rapid.SampledFrom(profiles).Draw(t, "profile")
			pod := c.drawIncoming(t)

			if rapid.IntRange(0, 15).Draw(t, "in a pod group") == 0 && len(c.nodes) > 0 {
				c.comparePodGroupCycle(ctx, t, pair, pod)
				group++
				continue
			}
			if rapid.IntRange(0, 15).Draw(t, "selects all") == 0 {
				c.compareWithRecount(ctx, t, pair, pod)
				all++
				continue
			}
			outcome := compare(ctx, t, pair, pod, framework.NewCycleState(), framework.NewCycleState())
			cycles++
			var fitting []string
			for name, verdict := range outcome.Filter {
				if verdict == "Success" {
					fitting = append(fitting, name)
				} else {
					hard++
				}
			}
			graded += outcome.graded()
			if len(fitting) > 0 && rapid.Bool().Draw(t, "assume") {
				assumed := pod.DeepCopy()
				assumed.Spec.NodeName = fitting[0]
				for _, name := range fitting {
					assumed.Spec.NodeName = min(assumed.Spec.NodeName, name)
				}
				c.must(t, c.cache.AssumePod(c.logger, assumed))
				c.assumed = append(c.assumed, assumed)
			}
		}
	})
	t.Logf("%d cycles, %d of them in pod groups, %d with empty selectors, %d refused nodes, %d graded scores", cycles+group+all, group, all, hard, graded)
	require.Greater(t, hard, cycles/2, "refused nodes")
	require.Greater(t, graded, cycles/2, "graded scores")
}

// newProfiles returns the plugins of two profiles of one scheduler.
func newProfiles(ctx context.Context, t *rapid.T, c *cluster) []*Pair {
	handle, err := NewHandle(ctx, c.snapshot, defaultObjects()...)
	c.must(t, err)
	hard := spread(2, "host", nil)
	list, err := NewPairOn(ctx, handle, Options{Constraints: []v1.TopologySpreadConstraint{hard, spread(1, "zone", nil, soft)}})
	c.must(t, err)
	system, err := NewPairOn(ctx, handle, Options{System: true})
	c.must(t, err)
	return []*Pair{list, system}
}

// compare runs both plugins and returns what both say.
func compare(ctx context.Context, t *rapid.T, pair *Pair, pod *v1.Pod, theirState, ourState fwk.CycleState) Outcome {
	want, err := RunIn(ctx, theirState, pair.InTree, pair.Lister, pod, nil)
	if err != nil {
		t.Fatalf("in-tree: %v", err)
	}
	got, err := RunIn(ctx, ourState, pair.Ours, pair.Lister, pod, nil)
	if err != nil {
		t.Fatalf("ours: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("pod %s %v with %v (-in-tree +ours):\n%s", pod.Name, pod.Labels, pod.Spec.TopologySpreadConstraints, diff)
	}
	return got
}

// compareWithRecount gives the pod an empty selector, about which in-tree is wrong.
func (c *cluster) compareWithRecount(ctx context.Context, t *rapid.T, pair *Pair, pod *v1.Pod) {
	everything := drawConstraint(t)
	everything.LabelSelector = &metav1.LabelSelector{}
	everything.MatchLabelKeys = nil
	pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, everything)
	got, err := Run(ctx, pair.Ours, pair.Lister, pod, nil)
	if err != nil {
		t.Fatalf("ours: %v", err)
	}
	nodes, err := pair.Lister.NodeInfos().List()
	c.must(t, err)
	requireRecount(t, "pod with an empty selector", c.recount(nodes), pod, got)
}

// comparePodGroupCycle does what the cycle of a pod group does: pods are assumed in the snapshot alone,
// which keeps its generations, and are taken back.
func (c *cluster) comparePodGroupCycle(ctx context.Context, t *rapid.T, pair *Pair, pod *v1.Pod) {
	var tried []*v1.Pod
	for range rapid.IntRange(1, 3).Draw(t, "members") {
		p := c.drawPod(t)
		p.Spec.NodeName = pick(t, "node", c.nodes...).Name
		info, err := framework.NewPodInfo(p)
		c.must(t, err)
		c.must(t, c.snapshot.AssumePod(info))
		tried = append(tried, p)
		compare(ctx, t, pair, pod, PodGroupCycle(), PodGroupCycle())
	}
	for _, p := range slices.Backward(tried) {
		c.must(t, c.snapshot.ForgetPod(c.logger, p))
	}
}
