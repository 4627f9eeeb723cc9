package reservecache

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// nodeInfo is the part of the framework's NodeInfo that a comparison and the floor read.
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

// onNode has a pod be on n1.
func onNode(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = "n1"
	return pod
}

// TestComparison finds every difference between the ledger and a cycle's snapshot, but for pods of which the ledger
// hears later.
func TestComparison(t *testing.T) {
	bigger := makeNode("n1")
	bigger.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("9")
	heavier := snapshotOf(1, makeNode("n1"), makePod("p", "n1")).(*nodeInfo)
	heavier.requested.milliCPU++
	others := makePod("q", "n1")
	others.Spec.SchedulerName = "another"
	for name, tc := range map[string]struct {
		nodes []fwk.NodeInfo
		want  []string
	}{
		"none":                 {[]fwk.NodeInfo{snapshotOf(1, makeNode("n1"), makePod("p", "n1"))}, []string{}},
		"another's pod":        {[]fwk.NodeInfo{snapshotOf(1, makeNode("n1"), makePod("p", "n1"), others)}, []string{}},
		"a pod of one side":    {[]fwk.NodeInfo{snapshotOf(1, makeNode("n1"))}, []string{"node n1: a pod is in the ledger only: p"}},
		"a pod of the other":   {[]fwk.NodeInfo{snapshotOf(1, makeNode("n1"), makePod("p", "n1"), makePod("q", "n1"))}, []string{"node n1: a pod is in the scheduler's snapshot only: q"}},
		"requests":             {[]fwk.NodeInfo{heavier}, []string{"node n1: the sums of requests differ"}},
		"size":                 {[]fwk.NodeInfo{snapshotOf(1, bigger, makePod("p", "n1"))}, []string{"node n1: the allocatable resources differ"}},
		"a node of the ledger": {nil, []string{"node n1: the node is in the ledger only"}},
		"a node of the snapshot": {
			[]fwk.NodeInfo{snapshotOf(1, makeNode("n1"), makePod("p", "n1")), snapshotOf(1, makeNode("n2"))}, []string{"node n2: the node is in the scheduler's snapshot only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(ledger.DefaultOptions())
			l.AddNode(makeNode("n1"))
			_, err := l.AddPod(makePod("p", "n1"))
			require.NoError(t, err)
			c := &comparison{ledger: l, mine: func(name string) bool { return name == "" }}
			c.compare(klog.Background(), tc.nodes)
			require.Equal(t, Comparison{}, c.report(), "nothing has asked for it")
			c.request()
			c.compare(klog.Background(), tc.nodes)
			require.Equal(t, Comparison{Count: 1, Differences: tc.want}, c.report())
		})
	}
}
