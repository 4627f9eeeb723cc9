package counts

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// fakePod and fakeNode are the snapshot's pods and nodes.
type fakePod struct{ pod *v1.Pod }

func (p fakePod) GetPod() *v1.Pod { return p.pod }

type fakeNode struct {
	node       *v1.Node
	pods       []fakePod
	generation int64
}

func (n *fakeNode) Node() *v1.Node     { return n.node }
func (n *fakeNode) GetPods() []fakePod { return n.pods }

// update is Update with the generations that the nodes have.
func update(ix *Index, nodes []*fakeNode) {
	generations := make([]int64, len(nodes))
	for i, n := range nodes {
		generations[i] = n.generation
	}
	Update(ix, nodes, generations)
}

// diskIs is an Eligibility by one label.
type diskIs string

func (d diskIs) Key() string                 { return "disk=" + string(d) }
func (d diskIs) Eligible(node *v1.Node) bool { return node.Labels["disk"] == string(d) }

// untainted is an Eligibility by taints.
type untainted struct{}

func (untainted) Key() string                 { return "untainted" }
func (untainted) Eligible(node *v1.Node) bool { return len(node.Spec.Taints) == 0 }

// world is a cluster that changes. Its objects are never changed in place, as those of informers.
type world struct {
	nodes      []*fakeNode
	generation int64
	serial     int
	removed    []*v1.Node
}

func (w *world) bump(n *fakeNode) {
	w.generation++
	n.generation = w.generation
}

// snapshot copies the nodes, as the scheduler's cache does.
func (w *world) snapshot() []*fakeNode {
	out := make([]*fakeNode, len(w.nodes))
	for i, n := range w.nodes {
		clone := *n
		clone.pods = slices.Clone(n.pods)
		out[i] = &clone
	}
	return out
}

var (
	drawZone  = rapid.SampledFrom([]string{"-", "a", "b", "c", ""})
	drawDisk  = rapid.SampledFrom([]string{"-", "ssd", "hdd"})
	drawTaint = rapid.SampledFrom([]string{"", "", "gpu"})
	drawApp   = rapid.SampledFrom([]string{"-", "web", "db", "cache", ""})
	drawTier  = rapid.SampledFrom([]string{"-", "front", "back"})
	drawSpace = rapid.SampledFrom([]string{"shop", "shop", "bank"})
)

// drawLabels draws a value for each key; "-" leaves the label out.
func drawLabels(t *rapid.T, draws map[string]*rapid.Generator[string]) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range draws {
			if !yield(k) {
				return
			}
		}
	}) {
		if value := draws[key].Draw(t, key); value != "-" {
			out[key] = value
		}
	}
	return out
}

func (w *world) drawNode(t *rapid.T, name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: drawLabels(t, map[string]*rapid.Generator[string]{"zone": drawZone, "disk": drawDisk}),
	}}
	if taint := drawTaint.Draw(t, "taint"); taint != "" {
		n.Spec.Taints = []v1.Taint{{Key: taint, Effect: v1.TaintEffectNoSchedule}}
	}
	return n
}

func drawPodLabels(t *rapid.T) map[string]string {
	return drawLabels(t, map[string]*rapid.Generator[string]{"app": drawApp, "tier": drawTier})
}

func (w *world) drawPod(t *rapid.T) *v1.Pod {
	w.serial++
	name := fmt.Sprintf("pod-%d", w.serial)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: drawSpace.Draw(t, "namespace"), Name: name,
		UID: types.UID(name), Labels: drawPodLabels(t),
	}}
	if rapid.IntRange(0, 7).Draw(t, "terminating") == 0 {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return p
}

func (w *world) anyNode(t *rapid.T) *fakeNode {
	if len(w.nodes) == 0 {
		return nil
	}
	return rapid.SampledFrom(w.nodes).Draw(t, "node")
}

// mutate changes something about the cluster.
func (w *world) mutate(t *rapid.T) {
	n := w.anyNode(t)
	kind := rapid.SampledFrom([]string{
		"add pod", "add pod", "add pod", "delete pod", "relabel pod", "terminate pod", "confirm pod", "move pod",
		"add node", "remove node", "bring node back", "replace node", "relabel node", "taint node", "heartbeat", "reorder",
	}).Draw(t, "mutation")
	switch {
	case kind == "add node" || n == nil:
		w.serial++
		made := &fakeNode{node: w.drawNode(t, fmt.Sprintf("node-%d", w.serial))}
		w.bump(made)
		w.nodes = append(w.nodes, made)
		return
	case kind == "remove node":
		w.nodes = slices.DeleteFunc(w.nodes, func(other *fakeNode) bool { return other == n })
		w.removed = append(w.removed, n.node)
		return
	case kind == "bring node back":
		// The same object, as the scheduler's cache has it when a node's pods outlive it for a moment.
		if len(w.removed) == 0 {
			return
		}
		back := &fakeNode{node: w.removed[len(w.removed)-1]}
		w.removed = w.removed[:len(w.removed)-1]
		w.bump(back)
		w.nodes = append(w.nodes, back)
		return
	case kind == "reorder":
		w.nodes = rapid.Permutation(w.nodes).Draw(t, "order")
		return
	case kind == "replace node":
		// Deleted and created again under the same name, between two snapshots.
		n.pods = nil
		n.node = w.drawNode(t, n.node.Name)
	case kind == "relabel node":
		n.node = w.drawNode(t, n.node.Name)
	case kind == "taint node":
		n.node = n.node.DeepCopy()
		if n.node.Spec.Taints == nil {
			n.node.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}
		} else {
			n.node.Spec.Taints = nil
		}
	case kind == "heartbeat":
		n.node = n.node.DeepCopy()
	case kind == "add pod":
		n.pods = append(slices.Clone(n.pods), fakePod{w.drawPod(t)})
	case len(n.pods) == 0:
		return
	default:
		w.mutatePod(t, kind, n)
	}
	w.bump(n)
}

func (w *world) mutatePod(t *rapid.T, kind string, n *fakeNode) {
	i := rapid.IntRange(0, len(n.pods)-1).Draw(t, "pod")
	pod := n.pods[i].pod
	// The scheduler's NodeInfo removes a pod by moving the last one into its place.
	pods := slices.Clone(n.pods)
	pods[i] = pods[len(pods)-1]
	pods = pods[:len(pods)-1]
	switch kind {
	case "delete pod":
	case "relabel pod":
		pod = pod.DeepCopy()
		pod.Labels = drawPodLabels(t)
		pods = append(pods, fakePod{pod})
	case "terminate pod":
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		pods = append(pods, fakePod{pod})
	case "confirm pod":
		pods = append(pods, fakePod{pod.DeepCopy()})
	case "move pod":
		if to := w.anyNode(t); to != n {
			to.pods = append(slices.Clone(to.pods), fakePod{pod})
			w.bump(to)
		}
	}
	n.pods = pods
}

// recount answers a query by its definition.
func recount(nodes []*fakeNode, q *Query) map[string]int {
	domains := map[string]int{}
	groups := map[string]map[string]bool{}
	for _, n := range nodes {
		value, ok := n.node.Labels[q.TopologyKey]
		if q.TopologyKey == PerNode {
			value, ok = n.node.Name, true
		}
		takesPart := ok || q.MissingIsEmpty
		for _, key := range q.RequiredKeys {
			_, has := n.node.Labels[key]
			takesPart = takesPart && has
		}
		if !takesPart || q.Eligibility != nil && !q.Eligibility.Eligible(n.node) {
			continue
		}
		domains[value] += 0
		for _, p := range n.pods {
			if p.pod.DeletionTimestamp != nil || p.pod.Namespace != q.Namespace ||
				!q.Selector.Matches(labels.Set(p.pod.Labels)) {
				continue
			}
			group := p.pod.Labels[q.GroupBy] // there is no label ""
			switch {
			case group == "":
				domains[value]++
			case group != q.ExceptGroup:
				if groups[value] == nil {
					groups[value] = map[string]bool{}
				}
				groups[value][group] = true
			}
		}
	}
	for value, found := range groups {
		domains[value] += len(found)
	}
	return domains
}

// check compares a table with the domains that it should have.
func check(t *rapid.T, what string, table *Table, want map[string]int) {
	got := map[string]int{}
	for domain, value := range table.All() {
		if table.domainNamed(value) != domain || table.Count(value) != table.At(domain) {
			t.Fatalf("%s: %q is domain %d with %d pods, by name %d with %d", what, value, domain, table.At(domain),
				table.domainNamed(value), table.Count(value))
		}
		got[value] += table.At(domain)
	}
	for _, value := range []string{"no such domain", "a", "b", "c", "", "node-1"} {
		if _, ok := want[value]; table.Counts(table.domainNamed(value)) != ok || !ok && table.Count(value) != 0 {
			t.Fatalf("%s: %q is a domain: %v, want %v, with %d pods", what, value, !ok, ok, table.Count(value))
		}
	}
	least := math.MaxInt32
	for _, n := range want {
		least = min(least, n)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: domains %v, want %v", what, got, want)
	}
	if table.Domains() != len(want) || table.Minimum() != least {
		t.Fatalf("%s: %d domains with minimum %d, want %d with %d (%v)", what, table.Domains(), table.Minimum(),
			len(want), least, want)
	}
}

// checkEverywhere compares what a table says of all nodes together. Only an Index knows it.
func checkEverywhere(t *rapid.T, what string, table *Table, q *Query, nodes []*v1.Node, want map[string]int) {
	named, all, most := map[string]bool{}, true, 0
	for _, node := range nodes {
		value, ok := valueOf(q.TopologyKey, node)
		if all = all && ok; ok {
			named[value] = true
		}
	}
	for _, pods := range want {
		most = max(most, pods)
	}
	values, everywhere := table.Everywhere()
	if everywhere != (all && !strings.HasPrefix(what, "direct")) || everywhere && values != len(named) {
		t.Fatalf("%s: %d domains and each node has one: %v, want %d, %v", what, values, everywhere, len(named), all)
	}
	view := NewView(table)
	if maximum, known := view.Maximum(); known != everywhere || maximum != most {
		t.Fatalf("%s: a maximum of %d, known %v, want %d, %v", what, maximum, known, most, everywhere)
	}
}

// checkNodes looks up every node in a table, and in a view that changes one domain after the other.
func checkNodes(t *rapid.T, what string, table *Table, q *Query, nodes []*v1.Node, want map[string]int) {
	values := map[Domain]string{}
	view := NewView(table)
	checkEverywhere(t, what, table, q, nodes, want)
	for _, node := range nodes {
		value, ok := node.Labels[q.TopologyKey]
		if q.TopologyKey == PerNode {
			value, ok = node.Name, true
		}
		domain, found := table.Find(node)
		if found != ok {
			t.Fatalf("%s: node %s with labels %v has a domain: %v, want %v", what, node.Name, node.Labels, found, ok)
		}
		if !ok {
			continue
		}
		if before, seen := values[domain]; seen && before != value {
			t.Fatalf("%s: %q and %q are one domain", what, before, value)
		}
		values[domain] = value
		pods, eligible := want[value]
		if table.At(domain) != pods || table.Counts(domain) != eligible {
			t.Fatalf("%s: node %s has %d pods in its domain %q, eligible %v, want %d, %v",
				what, node.Name, table.At(domain), value, table.Counts(domain), pods, eligible)
		}
		domain, found = view.Find(node)
		if got := view.CountAt(domain, node); !found || got != view.Count(value) {
			t.Fatalf("%s: node %s has %d pods in its domain %q of a view, want %d", what, node.Name, got, value,
				view.Count(value))
		}
		view.Add(value, 1)
		if _, known := view.Maximum(); known {
			t.Fatalf("%s: a view with changes knows its maximum", what)
		}
		if got := view.CountAt(domain, node); got != view.Count(value) {
			t.Fatalf("%s: node %s has %d pods in its changed domain %q, want %d", what, node.Name, got, value,
				view.Count(value))
		}
	}
	if len(values) > 0 && table.At(table.Empty()) != want[""] {
		t.Fatalf("%s: the domain of the empty value has %d pods, want %d", what, table.At(table.Empty()), want[""])
	}
}

// queries is the pool of questions.
func queries() []Query {
	var out []Query
	for _, text := range []string{
		"app=web", "app=db", "tier=back", "app=web,tier=front", "app in (web,db)", "app in (web,db),tier=back", "tier", "!tier",
		"app!=web", "app notin (db),tier=front", "", "app=", "app=web,app=db",
	} {
		selector, err := labels.Parse(text)
		if err != nil {
			panic(err)
		}
		for _, q := range []Query{
			{TopologyKey: "zone"},
			{TopologyKey: PerNode},
			{TopologyKey: "zone", RequiredKeys: []string{"zone", "disk"}},
			{TopologyKey: "disk", RequiredKeys: []string{"zone", "disk", "rack"}},
			{TopologyKey: "zone", MissingIsEmpty: true},
			{TopologyKey: "zone", Eligibility: diskIs("ssd")},
			{TopologyKey: "disk", Eligibility: untainted{}, RequiredKeys: []string{"disk"}},
			{TopologyKey: "zone", Eligibility: untainted{}, MissingIsEmpty: true},
			{TopologyKey: "zone", GroupBy: "tier"},
			{TopologyKey: "zone", GroupBy: "app", ExceptGroup: "web", Eligibility: diskIs("ssd")},
		} {
			for _, namespace := range []string{"shop", "bank", "nobody"} {
				q.Namespace, q.Selector = namespace, selector
				out = append(out, q)
			}
		}
	}
	// The API server takes a value twice.
	twice, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "web", "db"}},
	}})
	if err != nil {
		panic(err)
	}
	return append(out,
		Query{Namespace: "shop", Selector: twice, TopologyKey: "zone"},
		Query{Namespace: "shop", Selector: twice, TopologyKey: PerNode},
		Query{Namespace: "shop", Selector: labels.Nothing(), TopologyKey: "zone"})
}

func describe(q *Query) string {
	eligibility := "all"
	if q.Eligibility != nil {
		eligibility = q.Eligibility.Key()
	}
	return fmt.Sprintf("%s/%s by %s requiring %s among %s, groups of %q but %q", q.Namespace, q.Selector, q.TopologyKey,
		strings.Join(q.RequiredKeys, "+"), eligibility, q.GroupBy, q.ExceptGroup)
}
