package counts

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// tight makes everything be evicted all the time.
var tight = Limits{Selectors: 3, Cells: 12, IdleQueries: 9, ClassBytes: 700, Topologies: 1}

// TestIndexEqualsRecount changes a cluster at random and asks the index random questions after every
// change, with ample and with tight limits. It also asks Direct, keeps some tables to see that they do
// not change, and checks the index's own books.
func TestIndexEqualsRecount(t *testing.T) {
	pool := queries()
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SampledFrom([]Limits{DefaultLimits(), tight}).Draw(t, "limits")
		w := &world{}
		ix := NewIndex(limits)
		if rapid.IntRange(0, 3).Draw(t, "hashes collide") == 0 {
			ix.labelSets.hash = func(pod *v1.Pod) uint64 { return uint64(len(pod.Labels)) }
		}
		type kept struct {
			table *Table
			want  map[string]int
			what  string
			query *Query
			nodes []*v1.Node
		}
		var old []kept
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "mutations") {
				w.mutate(t)
			}
			nodes := w.snapshot()
			update(ix, nodes)
			asked := rapid.SliceOfN(rapid.SampledFrom(pool), 1, 4).Draw(t, "queries")
			direct := Direct(nodes, asked, func(n int, do func(int)) {
				for i := range n {
					do(i)
				}
			})
			for i, table := range ix.Count(asked, nil) {
				want := recount(nodes, &asked[i])
				check(t, "index: "+describe(&asked[i]), table, want)
				check(t, "direct: "+describe(&asked[i]), direct[i], want)
				at := make([]*v1.Node, len(nodes))
				for j, n := range nodes {
					at[j] = n.node
				}
				checkNodes(t, "index: "+describe(&asked[i]), table, &asked[i], at, want)
				checkNodes(t, "direct: "+describe(&asked[i]), direct[i], &asked[i], at, want)
				if len(old) < 20 {
					old = append(old, kept{table, want, "kept: " + describe(&asked[i]), &asked[i], at})
				}
			}
			audit(t, ix, w)
		}
		for _, k := range old {
			check(t, k.what, k.table, k.want)
			checkNodes(t, k.what, k.table, k.query, k.nodes, k.want)
		}
		w.nodes = nil
		update(ix, w.snapshot())
		audit(t, ix, w)
		for ix.counters.recency.Len() > 0 {
			ix.dropCounter(ix.counters.recency.Back().Value.(*counter))
		}
		if len(ix.labelSets.namespaces) != 0 || len(ix.labelSets.byHash) != 0 || ix.counters.cells != 0 {
			t.Fatalf("an empty index holds %d namespaces, %d label sets, %d cells", len(ix.labelSets.namespaces),
				len(ix.labelSets.byHash), ix.counters.cells)
		}
	})
}

type cellList = cells // in audit the name stands for a number

// audit compares what the index says it holds with the cluster and with what it does hold.
func audit(t *rapid.T, ix *Index, w *world) {
	pods := 0
	type labelsKey struct{ namespace, labels string }
	labelSets := map[labelsKey]int{}
	for _, n := range w.nodes {
		for _, p := range n.pods {
			if p.pod.DeletionTimestamp == nil {
				pods++
				labelSets[labelsKey{p.pod.Namespace, labels.Set(p.pod.Labels).String()}]++
			}
		}
	}
	cells := 0
	for _, c := range ix.counters.byKey {
		cells += c.cellCount()
		lists := []cellList{c.cells}
		for value, list := range c.groups {
			if len(*list) == 0 {
				t.Fatalf("counter %v keeps an empty group %s", c.key, value)
			}
			lists = append(lists, *list)
		}
		for _, list := range lists {
			for i, e := range list {
				if e.pods <= 0 || i > 0 && list[i-1].slot >= e.slot || ix.slots[e.slot].node == nil {
					t.Fatalf("counter %v has cells %v", c.key, list)
				}
			}
		}
	}
	got := ix.Stats()
	if got.Nodes != len(w.nodes) || got.Pods != pods || got.LabelSets != len(labelSets) || got.Cells != cells {
		t.Fatalf("stats %+v, want %d nodes, %d pods, %d label sets, %d cells", got, len(w.nodes), pods, len(labelSets),
			cells)
	}
	if ix.counters.recency.Len() != got.Selectors || got.Selectors > ix.limits.Selectors ||
		got.Topologies > ix.limits.Topologies {
		t.Fatalf("stats %+v exceed the limits %+v", got, ix.limits)
	}
	auditNodes(t, ix, w)
	for _, n := range ix.scratch {
		if n != 0 {
			t.Fatalf("scratch is left as %v", ix.scratch)
		}
	}
}

// auditNodes checks what the topologies and classes count of the nodes.
func auditNodes(t *rapid.T, ix *Index, w *world) {
	for _, topology := range ix.topologies {
		values := map[string]int32{"": 0}
		for _, n := range w.nodes {
			if value, ok := valueOf(topology.key, n.node); ok {
				values[value]++
			}
		}
		for value, nodes := range values {
			if id, ok := topology.ids[value]; !ok || topology.nodes[id] != nodes || topology.values[id] != value {
				t.Fatalf("topology %q: value %q of %d nodes is kept as %d in %+v", topology.key, value, nodes, id,
					topology)
			}
		}
		if len(topology.ids) != len(values) || len(topology.ids)+len(topology.free) != len(topology.values) {
			t.Fatalf("topology %q has %d values, want %d: %+v", topology.key, len(topology.ids), len(values), topology)
		}
	}
	for _, c := range ix.classes {
		eligible, homes := int32(0), 0
		for _, n := range c.nodes {
			eligible += n
		}
		for _, domain := range c.domainOf {
			if domain != none {
				homes++
			}
		}
		if int(eligible) != homes {
			t.Fatalf("class %+v counts %d eligible nodes, and has %d", c.key, eligible, homes)
		}
	}
}

// TestUpdateLooksOnlyAtChangedNodes pins what makes the index cheap: a node whose generation stayed is
// not looked at, and one that only moved in the list is not compared again.
func TestUpdateLooksOnlyAtChangedNodes(t *testing.T) {
	w := &world{}
	rapid.Check(t, func(t *rapid.T) {
		if len(w.nodes) > 0 {
			return
		}
		for range 20 {
			n := &fakeNode{node: w.drawNode(t, rapid.StringMatching(`n[a-z]{12}`).Draw(t, "name"))}
			w.bump(n)
			w.nodes = append(w.nodes, n)
		}
	})
	ix := NewIndex(DefaultLimits())
	update(ix, w.snapshot())
	require.EqualValues(t, 20, ix.Stats().Refreshed)
	update(ix, w.snapshot())
	require.EqualValues(t, 20, ix.Stats().Refreshed, "nothing changed")

	w.nodes[3], w.nodes[17] = w.nodes[17], w.nodes[3]
	update(ix, w.snapshot())
	require.EqualValues(t, 20, ix.Stats().Refreshed, "two nodes changed places")

	w.bump(w.nodes[5])
	update(ix, w.snapshot())
	require.EqualValues(t, 21, ix.Stats().Refreshed, "one node changed")

	// A generation that goes back is a change too: the snapshot may come from another cache.
	w.nodes[5].generation = -1
	update(ix, w.snapshot())
	require.EqualValues(t, 22, ix.Stats().Refreshed, "one node changed to an older generation")

	w.nodes = w.nodes[1:]
	update(ix, w.snapshot())
	require.EqualValues(t, 22, ix.Stats().Refreshed, "one node is gone")
	require.Equal(t, 19, ix.Stats().Nodes)
}

// TestTablesMayBeReadDuringUpdates is for the race detector: a table must not share what an update writes.
func TestTablesMayBeReadDuringUpdates(t *testing.T) {
	w := &world{}
	add := func(name string) {
		n := &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"zone": name},
		}}}
		w.bump(n)
		w.nodes = append(w.nodes, n)
	}
	for i := range 10 {
		add(fmt.Sprintf("node-%d", i))
	}
	ix := NewIndex(DefaultLimits())
	query := []Query{{Namespace: "shop", Selector: labels.Everything(), TopologyKey: "zone"}}
	var readers sync.WaitGroup
	for i := range 50 {
		update(ix, w.snapshot())
		table := ix.Count(query, nil)[0]
		require.Equal(t, 10, table.Domains())
		var nodes []*v1.Node
		for _, n := range w.nodes {
			nodes = append(nodes, n.node)
		}
		readers.Go(func() {
			for j := range 60 {
				table.Count(fmt.Sprintf("node-%d", j))
			}
			for _, node := range nodes {
				table.Find(node)
			}
			view := NewView(table)
			view.Add("node-1", 1)
		})
		w.nodes = w.nodes[1:]
		add(fmt.Sprintf("node-%d", 10+i))
	}
	readers.Wait()
}

// TestSelectorsAreEvicted shows the three reasons for which a selector is dropped.
func TestSelectorsAreEvicted(t *testing.T) {
	ask := func(ix *Index, selector string) {
		parsed, err := labels.Parse(selector)
		require.NoError(t, err)
		ix.Count([]Query{{Namespace: "shop", Selector: parsed, TopologyKey: "zone"}}, nil)
	}
	limits := DefaultLimits()
	limits.Selectors = 2
	ix := NewIndex(limits)
	ask(ix, "app=a")
	ask(ix, "app=b")
	ask(ix, "app=a")
	ask(ix, "app=c") // b is the one used least recently
	require.Equal(t, 2, ix.Stats().Selectors)
	built := ix.Stats().SelectorsBuilt
	ask(ix, "app=a")
	ask(ix, "app=c")
	require.Equal(t, built, ix.Stats().SelectorsBuilt)
	ask(ix, "app=b")
	require.Equal(t, built+1, ix.Stats().SelectorsBuilt)

	limits = DefaultLimits()
	limits.IdleQueries = 3
	ix = NewIndex(limits)
	ask(ix, "app=a")
	for range 4 {
		require.Equal(t, 0, int(ix.Stats().SelectorsEvicted))
		ask(ix, "app=b")
	}
	require.Equal(t, 1, int(ix.Stats().SelectorsEvicted))
	require.Equal(t, 1, ix.Stats().Selectors)
}
