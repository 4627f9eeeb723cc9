package performance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"zonewise.dev/test/build"
	parity "zonewise.dev/test/parity/zonespread"
	"zonewise.dev/test/schedulertest"
)

const region = v1.LabelTopologyRegion

// spreadCluster is a large cluster in the scheduler's own cache, with both plugins on its snapshot.
type spreadCluster struct {
	cache    cache.Cache
	snapshot *cache.Snapshot
	pair     *parity.Pair
	nodes    []*v1.Node
	pods     []*v1.Pod // oldest first
	pending  *v1.Pod   // assumed, to be confirmed next
	serial   int
}

func newSpreadCluster(b testing.TB, nodes int) *spreadCluster {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := newBareCluster(ctx, nodes)
	handle, err := parity.NewHandle(ctx, c.snapshot)
	require.NoError(b, err)
	c.pair, err = parity.NewPairOn(ctx, handle, parity.Options{})
	require.NoError(b, err)
	return c
}

// newBareCluster makes a cluster of three zones and two regions, without plugins.
func newBareCluster(ctx context.Context, nodes int) *spreadCluster {
	c := &spreadCluster{cache: schedulertest.NewCache(ctx), snapshot: cache.NewEmptySnapshot()}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
			v1.LabelHostname:     name,
			v1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			region:               fmt.Sprintf("region-%d", i%2),
			v1.LabelArchStable:   "amd64",
			v1.LabelOSStable:     "linux",
		}}}
		c.nodes = append(c.nodes, n)
		c.cache.AddNode(klog.Logger{}, n)
	}
	return c
}

// newPod makes a pod of an app, labelled as a Deployment labels its pods.
func (c *spreadCluster) newPod(app int, constraints ...v1.TopologySpreadConstraint) *v1.Pod {
	c.serial++
	name := fmt.Sprintf("app-%d-%d", app, c.serial)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{
			"app": fmt.Sprintf("app-%d", app), "tier": "backend", "pod-template-hash": fmt.Sprintf("hash-%d", app),
		}},
		Spec: v1.PodSpec{TopologySpreadConstraints: constraints, Containers: []v1.Container{{Name: "app"}}},
	}
}

// spreadBy makes a constraint that selects the pods of an app.
func spreadBy(app int, key string, action v1.UnsatisfiableConstraintAction) v1.TopologySpreadConstraint {
	constraint := build.OverZones(fmt.Sprintf("app-%d", app), 1, action)
	constraint.TopologyKey = key
	return constraint
}

// fill binds pods of the apps in turn until there are so many. Pod i of an app is on a node of zone i%3.
func (c *spreadCluster) fill(b testing.TB, pods, apps int) {
	b.Helper()
	c.fillWith(b, pods, apps, func(*v1.Pod) {})
}

// fillWith is fill with pods that edit changes first.
func (c *spreadCluster) fillWith(b testing.TB, pods, apps int, edit func(*v1.Pod)) {
	b.Helper()
	for i := len(c.pods); i < pods; i++ {
		p := c.newPod(i % apps)
		edit(p)
		p.Spec.NodeName = c.nodes[c.home(i%apps, i/apps)].Name
		require.NoError(b, c.cache.AddPod(klog.Logger{}, p))
		c.pods = append(c.pods, p)
	}
	c.update(b)
}

// home is the node of the n-th pod of an app, such that the app's pods are spread evenly over zones and
// nodes.
func (c *spreadCluster) home(app, n int) int {
	start := app * 31
	return (start + n) % (len(c.nodes) / 3 * 3)
}

func (c *spreadCluster) update(b testing.TB) {
	b.Helper()
	require.NoError(b, c.cache.UpdateSnapshot(klog.Logger{}, c.snapshot))
}

// turn is what happens between two cycles of a busy scheduler: a pod is assumed, the one before it is
// confirmed by its informer event, and, to keep the size of the cluster, the oldest one is deleted.
func (c *spreadCluster) turn(b testing.TB, pod *v1.Pod, node int, keepSize bool) {
	b.Helper()
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = c.nodes[node].Name
	require.NoError(b, c.cache.AssumePod(klog.Logger{}, assumed))
	if c.pending != nil {
		confirmed := c.pending.DeepCopy()
		confirmed.Labels[v1.LabelTopologyZone] = "copied-at-binding"
		require.NoError(b, c.cache.AddPod(klog.Logger{}, confirmed))
		c.pods = append(c.pods, confirmed)
	}
	c.pending = assumed
	if keepSize && len(c.pods) > 0 {
		require.NoError(b, c.cache.RemovePod(klog.Logger{}, c.pods[0]))
		c.pods = c.pods[1:]
	}
	c.update(b)
}

// candidates are the nodes that the scheduler would score: it stops looking when it has found enough.
// The share is that of the scheduler's percentageOfNodesToScore when that is not set.
func (c *spreadCluster) candidates(b testing.TB, start int) []fwk.NodeInfo {
	b.Helper()
	nodes, err := c.snapshot.NodeInfos().List()
	require.NoError(b, err)
	percent := max(50-len(nodes)/125, 5)
	enough := max(len(nodes)*percent/100, min(100, len(nodes)))
	out := make([]fwk.NodeInfo, 0, enough)
	for i := range enough {
		out = append(out, nodes[(start+i)%len(nodes)])
	}
	return out
}

// spreadCost is how long the extension points of a cycle took that look at more than one node.
type spreadCost struct{ preFilter, preScore time.Duration }

func (c spreadCost) sum() time.Duration { return c.preFilter + c.preScore }

// cost takes a plugin through PreFilter and PreScore, and returns how long these took. In between it filters the
// candidates, as a scheduler does: their labels are in the processor's caches then.
func (c *spreadCluster) cost(b testing.TB, plugin parity.Plugin, pod *v1.Pod, candidates []fwk.NodeInfo) (spreadCost, fwk.CycleState) {
	b.Helper()
	nodes, err := c.snapshot.NodeInfos().List()
	require.NoError(b, err)
	state := framework.NewCycleState()
	ctx := context.Background()
	var took spreadCost
	start := time.Now()
	_, preFilter := plugin.PreFilter(ctx, state, pod, nodes)
	took.preFilter = time.Since(start)
	if preFilter.IsSuccess() {
		for _, node := range candidates {
			plugin.Filter(ctx, state, pod, node)
		}
	}
	start = time.Now()
	preScore := plugin.PreScore(ctx, state, pod, candidates)
	took.preScore = time.Since(start)
	require.True(b, preFilter.IsSuccess() || preFilter.IsSkip(), preFilter.AsError())
	require.True(b, preScore.IsSuccess() || preScore.IsSkip(), preScore.AsError())
	return took, state
}

// spreadSamples are durations of one kind.
type spreadSamples []time.Duration

// median is what is reported: means would be those of the neighbours on the machine.
func (s spreadSamples) median() time.Duration {
	return s.percentile(50)
}

func (s spreadSamples) mean() (sum time.Duration) {
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(len(s))
}

func (s spreadSamples) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)*p/100]
}
