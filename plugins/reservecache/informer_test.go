package reservecache

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

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

// newHandlers returns handlers without an informer, and what they log.
func newHandlers() (*handlers, *[]string) {
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	return &handlers{logger: logger, running: newRunning(defaultArgs(), &handle{})}, &lines
}

func TestMissedDeletions(t *testing.T) {
	h, lines := newHandlers()
	h.addNode(makeNode("n1"))
	h.addPod(makePod("p", "n1"))
	require.NoError(t, h.ledger.AssumePod(makePod("q", ""), "n1", t0))

	// What comes with a missed deletion is the last state that the informer had, here from before binding.
	h.deletePod(cache.DeletedFinalStateUnknown{Key: "default/p", Obj: makePod("p", "")})
	h.deletePod(cache.DeletedFinalStateUnknown{Key: "default/q", Obj: makePod("q", "")})
	require.Equal(t, ledger.Stats{Nodes: 1}, h.ledger.Stats())
	h.deleteNode(cache.DeletedFinalStateUnknown{Key: "n1", Obj: makeNode("n1")})
	require.Equal(t, ledger.Stats{}, h.ledger.Stats())
	require.Empty(t, *lines)
}

func TestMissedReplacement(t *testing.T) {
	h, _ := newHandlers()
	h.addNode(makeNode("n1"))
	h.addPod(makePod("p", "n1"))
	replacement := makePod("p", "n1")
	replacement.UID = "another"
	h.updatePod(makePod("p", "n1"), replacement)
	require.Equal(t, ledger.Stats{Pods: 1, Nodes: 1}, h.ledger.Stats())
	_, known := h.ledger.GetPod("p")
	require.False(t, known)
}

func TestUnexpectedObjectsAreLoggedAndLeftOut(t *testing.T) {
	h, lines := newHandlers()
	for _, obj := range []any{nil, "pod", (*v1.Pod)(nil), (*v1.Node)(nil), cache.DeletedFinalStateUnknown{Key: "x"}, metav1.ObjectMeta{}} {
		*lines = nil
		h.addPod(obj)
		h.updatePod(obj, makePod("p", "n1"))
		h.updatePod(makePod("p", "n1"), obj)
		h.deletePod(obj)
		h.addNode(obj)
		h.updateNode(makeNode("n1"), obj)
		h.deleteNode(obj)
		require.Len(t, *lines, 7, "%T", obj)
	}
	*lines = nil
	anonymous := makePod("p", "n1")
	anonymous.UID = ""
	h.addPod(anonymous)
	require.Len(t, *lines, 1)
	require.Contains(t, (*lines)[0], "no UID")
	require.Equal(t, ledger.Stats{}, h.ledger.Stats())
}

func TestAMoveIsLogged(t *testing.T) {
	h, lines := newHandlers()
	require.NoError(t, h.ledger.AssumePod(makePod("p", ""), "n1", t0))
	h.addPod(makePod("p", "n2"))
	require.Len(t, *lines, 1)
	require.Contains(t, (*lines)[0], "another node")
}
