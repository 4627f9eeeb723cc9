package reservecache

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// nodeInfo is the part of the framework's NodeInfo that a comparison reads.
type nodeInfo struct {
	fwk.NodeInfo
	node       *v1.Node
	pods       []fwk.PodInfo
	requested  resources
	generation int64
}

func (n *nodeInfo) Node() *v1.Node             { return n.node }
func (n *nodeInfo) GetPods() []fwk.PodInfo     { return n.pods }
func (n *nodeInfo) GetRequested() fwk.Resource { return n.requested }
func (n *nodeInfo) GetGeneration() int64       { return n.generation }
func (n *nodeInfo) GetAllocatable() fwk.Resource {
	list := n.node.Status.Allocatable
	return resources{milliCPU: list.Cpu().MilliValue(), pods: int(list.Pods().Value())}
}

type resources struct {
	fwk.Resource
	milliCPU int64
	pods     int
	scalar   map[v1.ResourceName]int64
}

func (r resources) GetMilliCPU() int64                            { return r.milliCPU }
func (r resources) GetMemory() int64                              { return 0 }
func (r resources) GetEphemeralStorage() int64                    { return 0 }
func (r resources) GetAllowedPodNumber() int                      { return r.pods }
func (r resources) GetScalarResources() map[v1.ResourceName]int64 { return r.scalar }

type podInfo struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p podInfo) GetPod() *v1.Pod { return p.pod }

// CalculateResource returns what all pods of these tests ask for.
func (p podInfo) CalculateResource() fwk.PodResource {
	return fwk.PodResource{Resource: resources{milliCPU: 1000}}
}

// snapshotOf is the scheduler's view of a node with pods, each of which asks for one CPU.
func snapshotOf(generation int64, node *v1.Node, pods ...*v1.Pod) fwk.NodeInfo {
	info := &nodeInfo{node: node, generation: generation, requested: resources{milliCPU: int64(len(pods)) * 1000}}
	for _, pod := range pods {
		info.pods = append(info.pods, podInfo{pod: pod})
	}
	return info
}

// driftFixture is a ledger with one node and one pod, and the scheduler's view of the same.
type driftFixture struct {
	ledger   *ledger.Ledger
	detector *driftDetector
	node     *v1.Node
	logged   []string
	logger   klog.Logger
	hours    time.Duration // that have passed
}

func newDriftFixture() *driftFixture {
	f := &driftFixture{ledger: ledger.New(ledger.DefaultOptions()), node: makeNode("n1")}
	f.logger = funcr.New(func(_, args string) { f.logged = append(f.logged, args) }, funcr.Options{})
	f.ledger.AddNode(f.node)
	_, _ = f.ledger.AddPod(makePod("p", "n1"))
	f.detector = newDriftDetector(f.ledger, 5*time.Second, func(name string) bool { return name == "" })
	return f
}

func (f *driftFixture) at(after time.Duration, nodes ...fwk.NodeInfo) Drift {
	f.detector.check(f.logger, nodes, t0.Add(after))
	return f.detector.report()
}

func TestNoDrift(t *testing.T) {
	f := newDriftFixture()
	require.Equal(t, Drift{Checks: 1, CheckedAt: t0, Compared: 1}, f.at(0, snapshotOf(1, f.node, makePod("p", "n1"))))
	require.EqualValues(t, 1, f.at(999*time.Millisecond, snapshotOf(1, f.node, makePod("p", "n1"))).Checks, "a moment later")
	require.EqualValues(t, 2, f.at(time.Second, snapshotOf(1, f.node, makePod("p", "n1"))).Checks)
	require.Empty(t, f.logged)
}

func TestDriftThatLasts(t *testing.T) {
	other := makeNode("n2")
	bigger := makeNode("n1")
	bigger.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("9")
	heavier := snapshotOf(1, makeNode("n1"), makePod("p", "n1")).(*nodeInfo)
	heavier.requested.milliCPU++
	withGPU := snapshotOf(1, makeNode("n1"), makePod("p", "n1")).(*nodeInfo)
	withGPU.requested.scalar = map[v1.ResourceName]int64{"example.com/gpu": 1}

	for name, tc := range map[string]struct {
		nodes []fwk.NodeInfo
		want  NodeDrift
	}{
		"pod only in the ledger": {
			nodes: []fwk.NodeInfo{snapshotOf(1, makeNode("n1"))},
			want:  NodeDrift{Node: "n1", Since: t0, Differences: []string{"a pod is in the ledger only: p"}},
		},
		"pods only on one side each": {
			nodes: []fwk.NodeInfo{snapshotOf(1, makeNode("n1"), makePod("q", "n1"))},
			want:  NodeDrift{Node: "n1", Since: t0, Differences: []string{"a pod is in the ledger only: p", "a pod is in the scheduler's snapshot only: q"}},
		},
		"requests": {
			nodes: []fwk.NodeInfo{heavier},
			want:  NodeDrift{Node: "n1", Since: t0, Differences: []string{"the sums of requests differ"}},
		},
		"requests of an extended resource": {
			nodes: []fwk.NodeInfo{withGPU},
			want:  NodeDrift{Node: "n1", Since: t0, Differences: []string{"the sums of requests differ"}},
		},
		"allocatable": {
			nodes: []fwk.NodeInfo{snapshotOf(1, bigger, makePod("p", "n1"))},
			want:  NodeDrift{Node: "n1", Since: t0, Differences: []string{"the allocatable resources differ"}},
		},
		"node only in the ledger": {
			want: NodeDrift{Node: "n1", Since: t0, Differences: []string{"the node is in the ledger only"}},
		},
		"node only in the snapshot": {
			nodes: []fwk.NodeInfo{snapshotOf(1, other), snapshotOf(1, makeNode("n1"), makePod("p", "n1"))},
			want:  NodeDrift{Node: "n2", Since: t0, Differences: []string{"the node is in the scheduler's snapshot only"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newDriftFixture()
			got := f.at(0, tc.nodes...)
			require.Equal(t, 1, got.Unsettled, "it may be an event on its way")
			require.Empty(t, got.Nodes)
			got = f.at(4*time.Second, tc.nodes...)
			require.Equal(t, 1, got.Unsettled)
			got = f.at(5*time.Second, tc.nodes...)
			require.Zero(t, got.Unsettled)
			require.Equal(t, []NodeDrift{tc.want}, got.Nodes)
			require.Len(t, f.logged, 1)
			f.at(6*time.Second, tc.nodes...)
			require.Len(t, f.logged, 1, "one line for one drift")

			got = f.at(7*time.Second, snapshotOf(2, makeNode("n1"), makePod("p", "n1")))
			require.Equal(t, Drift{Checks: 5, CheckedAt: t0.Add(7 * time.Second), Compared: 1}, got, "it is over")
		})
	}
}

func TestAnEventOnItsWayIsNoDrift(t *testing.T) {
	f := newDriftFixture()
	// Each second one side hears of a pod that the other will hear of in the next: there is a difference
	// at each comparison, and never the same one.
	for i := range 20 {
		name := strings.Repeat("x", i+1)
		_, err := f.ledger.AddPod(makePod(name, "n1"))
		require.NoError(t, err)
		pods := []*v1.Pod{makePod("p", "n1")}
		for j := range i {
			pods = append(pods, makePod(strings.Repeat("x", j+1), "n1"))
		}
		got := f.at(time.Duration(i)*time.Second, snapshotOf(int64(i), f.node, pods...))
		require.Equal(t, 1, got.Unsettled)
		require.Empty(t, got.Nodes)
	}
}

func TestAmountsOfAChangingNodeAreNoDrift(t *testing.T) {
	f := newDriftFixture()
	for i := range 20 {
		behind := snapshotOf(int64(i), f.node, makePod("p", "n1")).(*nodeInfo)
		behind.requested.milliCPU += int64(i) + 1
		got := f.at(time.Duration(i)*time.Second, behind)
		require.Equal(t, 1, got.Unsettled)
		require.Empty(t, got.Nodes)
	}
}

func TestALostPodShowsOnABusyNode(t *testing.T) {
	f := newDriftFixture()
	var got Drift
	for i := range 6 {
		// The node changes on both sides all the time, but one pod stays on one side only.
		_, err := f.ledger.AddPod(makePod("busy", "n1"))
		require.NoError(t, err)
		got = f.at(time.Duration(i)*time.Second, snapshotOf(int64(i), f.node, makePod("busy", "n1")))
	}
	require.Equal(t, []NodeDrift{{Node: "n1", Since: t0, Differences: []string{"a pod is in the ledger only: p"}}}, got.Nodes)
}

// TestPodsOfOtherProfilesAreNoDrift: they are in the scheduler's snapshot before the ledger can know of them.
func TestPodsOfOtherProfilesAreNoDrift(t *testing.T) {
	f := newDriftFixture()
	other := makePod("q", "n1")
	other.Spec.SchedulerName = "without-the-plugin"
	info := snapshotOf(1, f.node, makePod("p", "n1"), other)
	f.at(0, info)
	got := f.at(time.Minute, info)
	require.Empty(t, got.Nodes)
	require.Zero(t, got.Unsettled)
	require.Equal(t, "a pod is in the scheduler's snapshot only: r", f.lasting(snapshotOf(2, f.node, makePod("p", "n1"), other, makePod("r", "n1"))), "one of its own is")
}

// lasting returns the one difference that a snapshot shows for long.
func (f *driftFixture) lasting(info fwk.NodeInfo) string {
	f.hours += 2
	f.at((f.hours-1)*time.Hour, info)
	nodes := f.at(f.hours*time.Hour, info).Nodes
	if len(nodes) != 1 || len(nodes[0].Differences) != 1 {
		return ""
	}
	return nodes[0].Differences[0]
}

func TestPodGroupCyclesAreNotCompared(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	_, status := f.plugin.PreFilter(t.Context(), &cycleState{podGroup: true}, makePod("p", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")
	require.Zero(t, f.shared.Drift().Checks, "their snapshot holds rehearsals")
	_, status = f.plugin.PreFilter(t.Context(), &cycleState{}, makePod("p", ""), nil)
	require.True(t, status.IsSkip(), "nothing is held")
	require.Equal(t, Drift{Checks: 1, CheckedAt: t0, Compared: 1, Unsettled: 1}, f.shared.Drift())
}
