package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/internal/pods"
)

// world is an API server, an informer that lags it, a scheduler whose bindings take their time, and the
// ledger that hears from the last two.
type world struct {
	ledger *Ledger
	serial int

	// What is true, by name.
	pods  map[string]*v1.Pod
	nodes map[string]*v1.Node

	// What the informer's store holds, and what is on its way there.
	storePods  map[string]*v1.Pod
	storeNodes map[string]*v1.Node
	podEvents  []func()
	nodeEvents []func()

	// Binding cycles between Reserve and the bind call, and between its return and Unreserve.
	binding []cycle
	ending  []cycle
}

type cycle struct {
	pod      *v1.Pod
	node     string
	reserved bool
	bound    bool
}

// put changes the truth about a pod, or removes it with nil, and sends word to the informer.
func (w *world) put(name string, pod *v1.Pod) {
	if pod == nil {
		delete(w.pods, name)
	} else {
		w.pods[name] = pod
	}
	w.podEvents = append(w.podEvents, func() { w.hearPod(name, pod) })
}

// hearPod is the informer's store and its handler: the scheduler's informer leaves out finished pods, so
// that one that finishes looks deleted.
func (w *world) hearPod(name string, pod *v1.Pod) {
	if pod != nil && pods.Ended(pod) {
		pod = nil
	}
	old := w.storePods[name]
	switch {
	case pod == nil && old == nil:
	case pod == nil:
		delete(w.storePods, name)
		w.ledger.RemovePod(old.UID)
	case old == nil:
		w.storePods[name] = pod
		_, _ = w.ledger.AddPod(pod)
	default:
		w.storePods[name] = pod
		_, _ = w.ledger.UpdatePod(old, pod)
	}
}

func (w *world) putNode(name string, n *v1.Node) {
	if n == nil {
		delete(w.nodes, name)
	} else {
		w.nodes[name] = n
	}
	w.nodeEvents = append(w.nodeEvents, func() { w.hearNode(name, n) })
}

func (w *world) hearNode(name string, n *v1.Node) {
	old := w.storeNodes[name]
	switch {
	case n == nil && old == nil:
	case n == nil:
		delete(w.storeNodes, name)
		w.ledger.RemoveNode(old)
	default:
		w.storeNodes[name] = n
		w.ledger.UpdateNode(n)
	}
}

func drawName[V any](t *rapid.T, from map[string]V, label string) string {
	if len(from) == 0 {
		t.Skip("nothing to draw ", label, " from")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(from))).Draw(t, label)
}

func (w *world) CreatePod(t *rapid.T) {
	name := rapid.SampledFrom([]string{"p1", "p2", "p3", "p4"}).Draw(t, "pod")
	if _, exists := w.pods[name]; exists {
		t.Skip("exists")
	}
	w.serial++
	pod := makePod(name, "", fmt.Sprintf("%dm", rapid.IntRange(1, 5).Draw(t, "cpu")), "1Ki")
	pod.UID = types.UID(fmt.Sprintf("%s-%d", name, w.serial))
	w.put(name, pod)
}

func (w *world) DeletePod(t *rapid.T) { w.put(drawName(t, w.pods, "pod"), nil) }

// TerminatePod begins a deletion that something still holds up: a finalizer or, of a bound pod, the
// kubelet.
func (w *world) TerminatePod(t *rapid.T) {
	name := drawName(t, w.pods, "pod")
	pod := w.pods[name].DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: t0}
	w.put(name, pod)
}

// ChangePod resizes a bound pod in place, or finishes it.
func (w *world) ChangePod(t *rapid.T) {
	name := drawName(t, w.pods, "pod")
	pod := w.pods[name].DeepCopy()
	if pod.Spec.NodeName == "" || pods.Ended(pod) {
		t.Skip("not running")
	}
	if rapid.Bool().Draw(t, "finish") {
		pod.Status.Phase = v1.PodSucceeded
	} else {
		pod.Spec.Containers[0].Resources.Requests = list("cpu", fmt.Sprintf("%dm", rapid.IntRange(1, 5).Draw(t, "cpu")))
	}
	w.put(name, pod)
}

// bind is the API server's side of a binding.
func (w *world) bind(name string, uid types.UID, node string) bool {
	pod := w.pods[name]
	if pod == nil || pod.UID != uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	w.put(name, pod)
	return true
}

// BindByOther is a binding by someone else than the scheduler.
func (w *world) BindByOther(t *rapid.T) {
	name := drawName(t, w.pods, "pod")
	w.bind(name, w.pods[name].UID, rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node"))
}

func (w *world) inFlight(uid types.UID) bool {
	same := func(c cycle) bool { return c.pod.UID == uid }
	return slices.ContainsFunc(w.binding, same) || slices.ContainsFunc(w.ending, same)
}

// Schedule runs a scheduling cycle up to Reserve, from the informer's view of the world.
func (w *world) Schedule(t *rapid.T) {
	pod := w.storePods[drawName(t, w.storePods, "pod")]
	if pod.Spec.NodeName != "" || w.inFlight(pod.UID) {
		t.Skip("not to be scheduled")
	}
	node := drawName(t, w.storeNodes, "node")
	c := cycle{pod: pod, node: node, reserved: w.ledger.AssumePod(pod, node, t0) == nil}
	if c.reserved && rapid.IntRange(0, 4).Draw(t, "permit") > 0 {
		w.binding = append(w.binding, c)
		return
	}
	// Reserve or a later step refused.
	w.ending = append(w.ending, c)
}

// Bind makes one bind call. It may fail before it reaches the API server, and its answer may be lost.
func (w *world) Bind(t *rapid.T) {
	if len(w.binding) == 0 {
		t.Skip("nothing to bind")
	}
	i := rapid.IntRange(0, len(w.binding)-1).Draw(t, "cycle")
	c := w.binding[i]
	w.binding = slices.Delete(w.binding, i, i+1)
	if rapid.IntRange(0, 4).Draw(t, "request arrives") > 0 {
		c.bound = w.bind(c.pod.Name, c.pod.UID, c.node)
	}
	if rapid.IntRange(0, 4).Draw(t, "answer arrives") == 0 {
		c.bound = false
	}
	w.ending = append(w.ending, c)
}

// End ends one binding cycle, with Unreserve if it has failed.
func (w *world) End(t *rapid.T) {
	if len(w.ending) == 0 {
		t.Skip("nothing to end")
	}
	i := rapid.IntRange(0, len(w.ending)-1).Draw(t, "cycle")
	w.end(i)
}

func (w *world) end(i int) {
	c := w.ending[i]
	w.ending = slices.Delete(w.ending, i, i+1)
	if !c.bound {
		w.ledger.ForgetPod(c.pod.UID, c.node)
	}
}

func (w *world) SetNode(t *rapid.T) {
	name := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "node")
	n := makeNode(name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))
	if old, exists := w.nodes[name]; exists {
		n.UID = old.UID
	} else {
		w.serial++
		n.UID = types.UID(fmt.Sprintf("%s-%d", name, w.serial))
	}
	w.putNode(name, n)
}

func (w *world) DeleteNode(t *rapid.T) { w.putNode(drawName(t, w.nodes, "node"), nil) }

func (w *world) HearPod(t *rapid.T) {
	if len(w.podEvents) == 0 {
		t.Skip("no news")
	}
	w.podEvents[0]()
	w.podEvents = w.podEvents[1:]
}

func (w *world) HearNode(t *rapid.T) {
	if len(w.nodeEvents) == 0 {
		t.Skip("no news")
	}
	w.nodeEvents[0]()
	w.nodeEvents = w.nodeEvents[1:]
}

// Relist is a watch that broke: what was on its way is lost, and the informer compares its store with the
// truth. Deletions turn up as such, with the last object known; a pod that was replaced by another of its
// name turns up as an update; whatever is unchanged is sent again.
func (w *world) Relist(*rapid.T) {
	w.podEvents, w.nodeEvents = nil, nil
	for _, name := range slices.Sorted(maps.Keys(w.storePods)) {
		if w.pods[name] == nil {
			w.hearPod(name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		w.hearPod(name, w.pods[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.storeNodes)) {
		if w.nodes[name] == nil {
			w.hearNode(name, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.hearNode(name, w.nodes[name])
	}
}

// settle lets all binding cycles end and all events arrive.
func (w *world) settle(t *rapid.T) {
	for len(w.binding) > 0 {
		w.Bind(t)
	}
	for len(w.ending) > 0 {
		w.end(0)
	}
	for len(w.podEvents) > 0 {
		w.HearPod(t)
	}
	for len(w.nodeEvents) > 0 {
		w.HearNode(t)
	}
}

// truth is the ledger that someone would build who had never missed anything.
func (w *world) truth() Dump {
	l := New(DefaultOptions())
	for _, n := range w.nodes {
		l.AddNode(n)
	}
	for _, pod := range w.pods {
		_, _ = l.AddPod(pod)
	}
	return content(l)
}

// TestEndsInTheTruth lets pods be created, bound by the scheduler and by others, deleted, replaced and
// finished, nodes come and go, bind calls and their answers get lost, events be delayed and watches break;
// once all has settled, the ledger is what the API server says, with no pod left assumed.
func TestEndsInTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			ledger:     New(DefaultOptions()),
			pods:       map[string]*v1.Pod{},
			nodes:      map[string]*v1.Node{},
			storePods:  map[string]*v1.Pod{},
			storeNodes: map[string]*v1.Node{},
		}
		kept := NewSnapshot()
		t.Repeat(map[string]func(*rapid.T){
			"CreatePod":   w.CreatePod,
			"DeletePod":   w.DeletePod,
			"Terminate":   w.TerminatePod,
			"ChangePod":   w.ChangePod,
			"BindByOther": w.BindByOther,
			"Schedule":    w.Schedule,
			"Bind":        w.Bind,
			"End":         w.End,
			"SetNode":     w.SetNode,
			"DeleteNode":  w.DeleteNode,
			"HearPod":     w.HearPod,
			"HearNode":    w.HearNode,
			"Relist":      w.Relist,
			"Snapshot":    func(*rapid.T) { w.ledger.UpdateSnapshot(kept) },
			"Settle": func(t *rapid.T) {
				w.settle(t)
				require.Zero(t, w.ledger.Stats().AssumedPods)
				require.Equal(t, w.truth(), content(w.ledger))
			},
		})
		w.settle(t)
		require.Zero(t, w.ledger.Stats().AssumedPods)
		require.Equal(t, w.truth(), content(w.ledger))
	})
}
