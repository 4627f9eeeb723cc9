package permitgate

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// fakeNode is a node in a cycle's snapshot: what plans read of it.
type fakeNode struct {
	fwk.NodeInfo
	node *v1.Node
	pods []fwk.PodInfo
	room amounts
	used fwk.HostPortInfo

	generation int64
}

// amounts are what a node has, or what its pods take.
type amounts struct {
	fwk.Resource
	cpu, memory int64
	pods        int
	scalar      map[v1.ResourceName]int64
}

func (a amounts) GetMilliCPU() int64                            { return a.cpu }
func (a amounts) GetMemory() int64                              { return a.memory }
func (a amounts) GetEphemeralStorage() int64                    { return 0 }
func (a amounts) GetAllowedPodNumber() int                      { return a.pods }
func (a amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.scalar }
func (n *fakeNode) Node() *v1.Node                              { return n.node }
func (n *fakeNode) GetPods() []fwk.PodInfo                      { return n.pods }
func (n *fakeNode) GetAllocatable() fwk.Resource                { return n.room }
func (n *fakeNode) GetRequested() fwk.Resource                  { return amounts{} }
func (n *fakeNode) GetUsedPorts() fwk.HostPortInfo              { return n.used }
func (n *fakeNode) GetGeneration() int64                        { return n.generation }

// nodesOf makes nodes with room for so many pods each.
func nodesOf(rooms ...int) []fwk.NodeInfo {
	var nodes []fwk.NodeInfo
	for i, room := range rooms {
		name := string(rune('a' + i))
		nodes = append(nodes, &fakeNode{
			node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}},
			room: amounts{pods: room},
		})
	}
	return nodes
}
