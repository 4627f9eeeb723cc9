package parity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"zonewise.dev/apis/v1alpha1"
)

// countedNode counts how often somebody looks at a node.
type countedNode struct {
	fwk.NodeInfo

	looks *int
}

func (n countedNode) Node() *v1.Node {
	*n.looks++
	return n.NodeInfo.Node()
}

// countedNodes are a snapshot's nodes that are counted.
type countedNodes struct {
	fwk.SharedLister
	fwk.NodeInfoLister

	looks int
}

func (l *countedNodes) NodeInfos() fwk.NodeInfoLister { return l }

func (l *countedNodes) List() ([]fwk.NodeInfo, error) {
	nodes, err := l.NodeInfoLister.List()
	counted := make([]fwk.NodeInfo, len(nodes))
	for i, n := range nodes {
		counted[i] = countedNode{n, &l.looks}
	}
	return counted, err
}

// TestAFullZoneCostsNoLookAtNodes: PreFilter of a pod for whose workload a zone is full looks at no node, like that of
// any other pod.
func TestAFullZoneCostsNoLookAtNodes(t *testing.T) {
	// Given: zone z1 is full for the pods that the policy selects, and without that would hold zone z2 back.
	const shop types.UID = "web"
	var nodes []*v1.Node
	var objects []runtime.Object
	for _, line := range []string{"a zone=z1", "b zone=z1", "c zone=z2"} {
		n := node(t, line)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		nodes, objects = append(nodes, n), append(objects, n)
	}
	objects = append(objects, incoming("foo")) // a run lasts as long as there are pods of its workload
	snapshot := cache.NewSnapshot(pods(t, []string{"c foo"}), nodes)
	lister := &countedNodes{SharedLister: snapshot, NodeInfoLister: snapshot.NodeInfos()}
	pair, source := withPolicies(t, lister, objects...)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(-d)} }
	full := policyFor("web")
	full.Status.Zones = []v1alpha1.ZoneStatus{{
		Name: "z1", State: v1alpha1.ZoneFull,
		Full: []v1alpha1.FullRun{{Workload: shop, Since: ago(10 * time.Minute), Last: ago(time.Second)}},
	}}
	source.Put(full)

	// When: two pods are tried.
	looks := make([]int, 2)
	for i := range looks {
		c, status, err := Start(t.Context(), pair.Ours, pair.Lister, incoming("foo"))
		require.NoError(t, err)
		require.True(t, status.IsSuccess(), status.AsError())
		looks[i] = lister.looks
		require.Equal(t, map[string]string{"a": "Success", "b": "Success", "c": "Success"}, c.Filter(t.Context(), c.State), "z1 is full")
		lister.looks = 0
	}
	// Then: the second, for which the index knows the nodes, has looked at none.
	require.Positive(t, looks[0])
	require.Zero(t, looks[1])
}
