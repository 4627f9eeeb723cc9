package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// model is the ledger as one would explain it: two maps, no sums, no generations. Everything else is
// computed from them when it is asked for.
type model struct {
	pods  map[types.UID]modelPod
	nodes map[string]*v1.Node
	// order is the order in which nodes came to their present zone.
	order []string
}

type modelPod struct {
	object  *v1.Pod
	node    string
	state   State
	assumed time.Time
}

func (m *model) add(pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		delete(m.pods, pod.UID)
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
		delete(m.pods, pod.UID)
	case pod.Spec.NodeName != "":
		m.pods[pod.UID] = modelPod{object: pod, node: pod.Spec.NodeName, state: Added}
	}
}

func (m *model) setNode(n *v1.Node) {
	if old, ok := m.nodes[n.Name]; !ok || old.Labels[v1.LabelTopologyZone] != n.Labels[v1.LabelTopologyZone] {
		m.order = slices.DeleteFunc(m.order, func(name string) bool { return name == n.Name })
		m.order = append(m.order, n.Name)
	}
	m.nodes[n.Name] = n
}

func (m *model) removeNode(name string) {
	m.order = slices.DeleteFunc(m.order, func(n string) bool { return n == name })
	delete(m.nodes, name)
}

// list returns the names of the nodes, one of each zone in turn. zones are given in the order of their
// first node's coming, which the model does not know once that node has left: it is the ledger's own
// order, and the test checks what can be known of it apart from this.
func (m *model) list(zones []string) []string {
	byZone := map[string][]string{}
	for _, name := range m.order {
		zone := m.nodes[name].Labels[v1.LabelTopologyZone]
		byZone[zone] = append(byZone[zone], name)
	}
	list := []string{}
	for i := 0; len(list) < len(m.order); i++ {
		for _, zone := range zones {
			if i < len(byZone[zone]) {
				list = append(list, byZone[zone][i])
			}
		}
	}
	return list
}

// dump computes what the ledger's Dump must be.
func (m *model) dump() map[string]NodeDump {
	want := map[string]NodeDump{}
	for name, n := range m.nodes {
		want[name] = NodeDump{Name: name, Node: n, Zone: n.Labels[v1.LabelTopologyZone], Allocatable: ResourcesOf(n.Status.Allocatable), Pods: []PodStatus{}}
	}
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		p := m.pods[uid]
		n, ok := want[p.node]
		if !ok {
			n = NodeDump{Name: p.node, Ghost: true}
		}
		requests := podRequests(p.object, DefaultOptions().Requests)
		n.Requested.Add(&requests, 1)
		n.Pods = append(n.Pods, PodStatus{Pod: p.object, State: p.state, Node: p.node, Requests: requests, AssumedAt: p.assumed})
		want[p.node] = n
	}
	return want
}

// machine drives a ledger and the model with the same random events.
type machine struct {
	ledger *Ledger
	model  model
	// kept is a snapshot that is brought up to date now and then, so that it has missed many changes.
	kept *Snapshot
	now  time.Time
}

func (m *machine) uid(t *rapid.T) types.UID {
	return types.UID(rapid.SampledFrom([]string{"p1", "p2", "p3", "p4", "p5"}).Draw(t, "uid"))
}

func (m *machine) nodeName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}).Draw(t, "node")
}

// pod draws a version of a pod: of any size, on any node or none, running or finished.
func (m *machine) pod(t *rapid.T, uid types.UID) *v1.Pod {
	pod := makePod(string(uid), "", fmt.Sprintf("%dm", rapid.IntRange(0, 3).Draw(t, "cpu")), "1Ki")
	if rapid.Bool().Draw(t, "bound") {
		pod.Spec.NodeName = m.nodeName(t)
	}
	if gpus := rapid.IntRange(0, 2).Draw(t, "gpus"); gpus > 0 {
		withScalar(pod, "example.com/gpu", fmt.Sprint(gpus))
	}
	if rapid.IntRange(0, 3).Draw(t, "deleting") == 0 {
		pod.DeletionTimestamp = &metav1.Time{Time: t0}
	}
	pod.Status.Phase = rapid.SampledFrom([]v1.PodPhase{"", v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed}).Draw(t, "phase")
	return pod
}

func (m *machine) Assume(t *rapid.T) {
	uid, node := m.uid(t), m.nodeName(t)
	pod := m.pod(t, uid)
	m.now = m.now.Add(time.Second)
	err := m.ledger.AssumePod(pod, node, m.now)
	if known, ok := m.model.pods[uid]; ok {
		require.ErrorIs(t, err, map[State]error{Assumed: ErrAssumed, Added: ErrAdded}[known.state])
		return
	}
	require.NoError(t, err)
	m.model.pods[uid] = modelPod{object: pod, node: node, state: Assumed, assumed: m.now}
}

func (m *machine) Forget(t *rapid.T) {
	uid, node := m.uid(t), m.nodeName(t)
	p, ok := m.model.pods[uid]
	applies := ok && p.state == Assumed && p.node == node
	require.Equal(t, applies, m.ledger.ForgetPod(uid, node))
	if applies {
		delete(m.model.pods, uid)
	}
}

func (m *machine) Add(t *rapid.T) {
	pod := m.pod(t, m.uid(t))
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		_, err := m.ledger.AddPod(pod)
		require.NoError(t, err)
	}
	m.model.add(pod)
}

func (m *machine) Update(t *rapid.T) {
	oldUID, newUID := m.uid(t), m.uid(t)
	newPod := m.pod(t, newUID)
	_, err := m.ledger.UpdatePod(m.pod(t, oldUID), newPod)
	require.NoError(t, err)
	if oldUID != newUID {
		delete(m.model.pods, oldUID)
	}
	m.model.add(newPod)
}

func (m *machine) Remove(t *rapid.T) {
	uid := m.uid(t)
	_, ok := m.model.pods[uid]
	want := Unchanged
	if ok {
		want = PodRemoved
	}
	require.Equal(t, want, m.ledger.RemovePod(uid))
	delete(m.model.pods, uid)
}

func (m *machine) SetNode(t *rapid.T) {
	n := makeNode(m.nodeName(t), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone"))
	n.UID = types.UID(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "node uid"))
	if rapid.Bool().Draw(t, "gpus") {
		n.Status.Allocatable["example.com/gpu"] = n.Status.Allocatable[v1.ResourcePods]
	}
	m.ledger.UpdateNode(n)
	m.model.setNode(n)
}

func (m *machine) RemoveNode(t *rapid.T) {
	name := m.nodeName(t)
	gone := makeNode(name, "")
	gone.UID = types.UID(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "node uid"))
	n, ok := m.model.nodes[name]
	applies := ok && n.UID == gone.UID
	require.Equal(t, applies, m.ledger.RemoveNode(gone))
	if applies {
		m.model.removeNode(name)
	}
}

func (m *machine) Snapshot(t *rapid.T) {
	m.ledger.UpdateSnapshot(m.kept)
	fresh := NewSnapshot()
	m.ledger.UpdateSnapshot(fresh)
	require.Equal(t, nodeNames(fresh), nodeNames(m.kept))
	want := m.model.dump()
	require.Len(t, m.kept.byName, len(m.model.nodes))
	for _, n := range m.kept.Nodes() {
		w := want[n.Node.Name]
		// A snapshot may have an older version of an object that says the same of where pods may go.
		require.True(t, SameForPods(w.Node, n.Node))
		require.Same(t, m.kept.Node(n.Node.Name), n)
		require.True(t, w.Requested.Equal(&n.Requested), "%v: want %v, got %v", n.Node.Name, w.Requested, n.Requested)
		require.True(t, w.Allocatable.Equal(&n.Allocatable))
		want, got := map[types.UID]string{}, map[types.UID]string{}
		for _, p := range w.Pods {
			want[p.Pod.UID] = fmt.Sprint(p.Pod.Labels, p.Pod.DeletionTimestamp != nil)
		}
		for _, p := range n.Pods {
			got[p.UID] = fmt.Sprint(p.Labels, p.DeletionTimestamp != nil)
		}
		require.Equal(t, want, got)
		require.Equal(t, fresh.Node(n.Node.Name).Generation, n.Generation)
	}
}

// Check compares the whole ledger with the model after each event.
func (m *machine) Check(t *rapid.T) {
	want := m.model.dump()
	got := m.ledger.Dump()
	require.Len(t, got.Nodes, len(want))
	generations := map[uint64]string{}
	for _, g := range got.Nodes {
		require.Empty(t, generations[g.Generation], "two nodes have one generation")
		generations[g.Generation] = g.Name
		g.Generation = 0
		w := want[g.Name]
		require.True(t, w.Requested.Equal(&g.Requested), "%v: want %v, got %v", g.Name, w.Requested, g.Requested)
		w.Requested, g.Requested = Resources{}, Resources{}
		require.Equal(t, w, g)
	}

	stats := Stats{Pods: len(m.model.pods), Nodes: len(m.model.nodes), Ghosts: len(want) - len(m.model.nodes)}
	for uid, p := range m.model.pods {
		if p.state == Assumed {
			stats.AssumedPods++
			if stats.OldestAssumed.IsZero() || p.assumed.Before(stats.OldestAssumed) {
				stats.OldestAssumed = p.assumed
			}
		}
		require.Equal(t, p.state == Assumed, m.ledger.IsAssumedPod(uid))
	}
	require.Equal(t, stats, m.ledger.Stats())

	zones := []string{}
	for _, key := range m.ledger.tree.zones {
		zones = append(zones, m.ledger.tree.byZone[key][0].object.Labels[v1.LabelTopologyZone])
	}
	names := []string{}
	m.ledger.tree.each(func(n *node) { names = append(names, n.name) })
	require.Equal(t, m.model.list(zones), names)
	require.Equal(t, len(names), m.ledger.tree.size)

	// The list of changes is in order and complete.
	last, length := ^uint64(0), 0
	for n := m.ledger.newest; n != nil; n = n.older {
		require.Less(t, n.generation, last)
		last = n.generation
		length++
	}
	require.Equal(t, len(want), length)
}

// TestAgainstModel feeds random events, in orders that make sense and in orders that do not, to a ledger
// and to a simple model, and compares the two after each of them.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			ledger: New(DefaultOptions()),
			model:  model{pods: map[types.UID]modelPod{}, nodes: map[string]*v1.Node{}},
			kept:   NewSnapshot(),
			now:    t0,
		}
		t.Repeat(map[string]func(*rapid.T){
			"":           m.Check,
			"Assume":     m.Assume,
			"Forget":     m.Forget,
			"Add":        m.Add,
			"Update":     m.Update,
			"Remove":     m.Remove,
			"SetNode":    m.SetNode,
			"RemoveNode": m.RemoveNode,
			"Snapshot":   m.Snapshot,
		})
	})
}
