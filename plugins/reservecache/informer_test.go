package reservecache

import (
	"encoding/json"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/reservecache/ledger"
)

// newHandlers returns handlers of their own for the plugin of a fixture, as the pod informer calls them, and what they
// log.
func newHandlers(t testing.TB) (f *fixture, pods informer.Funcs[*v1.Pod], nodes informer.Funcs[*v1.Node], lines *[]string) {
	f = newFixture(t, nil)
	lines = &[]string{}
	logger := funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{})
	h := &handlers{logger: logger, running: f.plugin.running}
	return f, informer.Latest(h.podSeen, h.podGone), informer.Latest(h.nodeSeen, h.nodeGone), lines
}

func TestEventsThatMakeNoSense(t *testing.T) {
	f, pods, _, lines := newHandlers(t)
	anonymous := makePod("p", "n1")
	anonymous.UID = ""
	pods.OnAdd(anonymous, false)
	require.Len(t, *lines, 1)
	require.Contains(t, (*lines)[0], "no UID")
	require.Equal(t, ledger.Stats{}, f.shared.Ledger().Stats())
}

func TestAMoveIsLogged(t *testing.T) {
	f, pods, _, lines := newHandlers(t)
	require.NoError(t, f.shared.Ledger().AssumePod(makePod("p", ""), "n1", t0))
	pods.OnAdd(makePod("p", "n2"), false)
	require.Len(t, *lines, 1)
	require.Contains(t, (*lines)[0], "another node")
}

// FuzzEvents sends whatever decodes as a pod or a node through all handlers, plain, wrapped as a missed
// deletion, and as a type that has no business there. Sums must be those of the pods at any time, and nothing
// may be left once all is deleted.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"p","namespace":"d","uid":"u"},"spec":{"nodeName":"n1","containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi","example.com/gpu":"2"}}}],"overhead":{"cpu":"10m"}}}`,
		`{"metadata":{"name":"p","uid":"u"},"spec":{"nodeName":"n1","initContainers":[{"name":"i","restartPolicy":"Always","resources":{"requests":{"cpu":"9223372036854775807"}}}],"resources":{"requests":{"memory":"-1"}}},"status":{"phase":"Failed"}}`,
		`{"metadata":{"name":"n1","uid":"n","labels":{"topology.kubernetes.io/zone":"a"}},"status":{"allocatable":{"cpu":"4","pods":"110","hugepages-2Mi":"1e30","attachable-volumes-x":"7"}}}`,
		`{"metadata":{"name":"p"},"spec":{"nodeName":"n1"},"status":{"resize":"Deferred","containerStatuses":[{"name":"c","allocatedResources":{"cpu":"2"}}]}}`,
		`null`,
	} {
		f.Add([]byte(seed), []byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, how uint8) {
		var podA, podB v1.Pod
		var nodeA v1.Node
		if json.Unmarshal(first, &podA) != nil || json.Unmarshal(second, &podB) != nil || json.Unmarshal(first, &nodeA) != nil {
			return
		}
		fixture, pods, nodes, _ := newHandlers(t)
		l := fixture.shared.Ledger()
		wrap := func(obj any) any {
			if how&1 != 0 {
				return cache.DeletedFinalStateUnknown{Key: "key", Obj: obj}
			}
			return obj
		}
		check := func() {
			for _, n := range l.Dump().Nodes {
				var sum ledger.Resources
				for i := range n.Pods {
					sum.Add(&n.Pods[i].Requests, 1)
				}
				require.True(t, sum.Equal(&n.Requested), "%s: the pods take %v, and the sum is %v", n.Name, sum, n.Requested)
			}
		}
		nodes.OnAdd(&nodeA, false)
		if how&2 != 0 {
			_ = l.AssumePod(&podA, "n1", t0)
		}
		pods.OnAdd(&podA, false)
		check()
		pods.OnUpdate(&podA, &podB)
		check()
		pods.OnAdd(&podB, false)
		nodes.OnUpdate(&nodeA, &nodeA)
		check()
		// Objects of another kind, and none, change nothing.
		before := l.Stats()
		for _, wrong := range []any{nil, cache.DeletedFinalStateUnknown{}, "text"} {
			pods.OnAdd(wrong, false)
			pods.OnUpdate(wrong, wrong)
			pods.OnDelete(wrong)
			nodes.OnAdd(wrong, false)
			nodes.OnDelete(wrong)
		}
		pods.OnAdd(&nodeA, false)
		nodes.OnAdd(&podA, false)
		require.Equal(t, before, l.Stats())

		pods.OnDelete(wrap(&podA))
		pods.OnDelete(wrap(&podB))
		nodes.OnDelete(wrap(&nodeA))
		require.Equal(t, ledger.Stats{}, l.Stats())
	})
}
