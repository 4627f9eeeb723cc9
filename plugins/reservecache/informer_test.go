package reservecache

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestHandlersFeedTheLedger(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1"), makePod("bound", "n1"), makePod("pending", "")).start(t)
	l := f.shared.Ledger()
	require.Equal(t, ledger.Stats{Pods: 1, Nodes: 1}, l.Stats(), "pods that are not bound take nothing")
	pods, nodes := f.client.CoreV1().Pods("default"), f.client.CoreV1().Nodes()

	_, err := pods.Update(t.Context(), makePod("pending", "n1"), metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool { return l.Stats().Pods == 2 })

	done := makePod("pending", "n1")
	done.Status.Phase = v1.PodSucceeded
	_, err = pods.Update(t.Context(), done, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool { return l.Stats().Pods == 1 })

	_, err = nodes.Create(t.Context(), makeNode("n2"), metav1.CreateOptions{})
	require.NoError(t, err)
	relabelled := makeNode("n1")
	relabelled.Labels = map[string]string{v1.LabelTopologyZone: "b"}
	_, err = nodes.Update(t.Context(), relabelled, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func() bool { d := l.Dump(); return len(d.Nodes) == 2 && d.Nodes[0].Zone == "b" })

	require.NoError(t, nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	eventually(t, func() bool { return l.Stats().Ghosts == 1 })
	require.NoError(t, pods.Delete(t.Context(), "bound", metav1.DeleteOptions{}))
	eventually(t, func() bool { return l.Stats() == ledger.Stats{Nodes: 1} })
}

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
