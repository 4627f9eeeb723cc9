package floor_test

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// anyNode is met by all nodes that are ready and without taints.
var anyNode = floor.NewNodeRequirements(nil, nil, false)

func size(cpu, memory int64) ledger.Resources {
	return ledger.Resources{MilliCPU: cpu, Memory: memory << 30, Pods: 1}
}

// pod is a pod of a world; own is its claim, if it has one.
type pod struct {
	request  ledger.Resources
	own      types.UID
	priority int32
}

// world is nodes with pods, and a floor over them.
type world struct {
	t          rapid.TB
	floor      *floor.Floor
	claims     []floor.Claim
	nodes      []*v1.Node
	size       ledger.Resources
	pods       [][]pod
	generation int64
	// fraction is how much of a zone may be held, and absent are the nodes that are not there at present.
	fraction float64
	absent   map[int]bool
	// nominated is what pods ask for that are nominated to nodes.
	nominated map[int]ledger.Resources
}

// newWorld makes nodes of 16 CPUs in zones a, b and on.
func newWorld(t rapid.TB, nodes, zones int) *world { return newLimitedWorld(t, nodes, zones, 1) }

// newLimitedWorld is newWorld where that fraction of a zone may be held.
func newLimitedWorld(t rapid.TB, nodes, zones int, fraction float64) *world {
	w := &world{t: t, fraction: fraction, absent: map[int]bool{}, nominated: map[int]ledger.Resources{}, size: ledger.Resources{MilliCPU: 16000, Memory: 64 << 30, Pods: 30}, pods: make([][]pod, nodes)}
	for i := range nodes {
		w.nodes = append(w.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%02d", i), Labels: map[string]string{v1.LabelTopologyZone: zoneName(i % zones), "pool": fmt.Sprint(i % 2)},
		}})
	}
	w.floor = w.build(nil)
	return w
}

func zoneName(i int) string { return string(rune('a' + i)) }

// build makes a floor of the present claims over the present nodes, which begins with what seeds say.
func (w *world) build(seeds map[types.UID][]floor.Seed) *floor.Floor {
	f := floor.New(w.fraction)
	claims := slices.Clone(w.claims)
	for i := range claims {
		claims[i].Seed = seeds[claims[i].UID]
	}
	f.SetClaims(claims)
	for i := range w.nodes {
		if !w.absent[i] {
			f.Update(w.node(i))
		}
	}
	f.Settle()
	return f
}

// apply changes the claims.
func (w *world) apply(claims ...floor.Claim) {
	w.claims = claims
	w.floor.SetClaims(claims)
	w.floor.Settle()
}

// node is what a floor is told of a node.
func (w *world) node(i int) *floor.Node {
	w.generation++
	n := &floor.Node{
		Object: w.nodes[i], Generation: w.generation, Allocatable: w.size, Nominated: w.nominated[i], Owned: map[types.UID]ledger.Resources{},
	}
	for _, p := range w.pods[i] {
		n.Requested.Add(&p.request, 1)
		if p.own != "" {
			n.Owned = ledger.AddTo(n.Owned, p.own, &p.request)
		}
	}
	return n
}

// update has the floor see a node, and then settle, as a cycle does.
func (w *world) update(i int) {
	w.floor.Update(w.node(i))
	w.floor.Settle()
}

// fits reports whether a pod fits on a node beside its pods and the slots.
func (w *world) fits(i int, p pod) bool {
	n := w.node(i)
	free := n.Allocatable.Minus(&n.Requested)
	return p.request.Exceeds(&free) == "" && w.floor.Fit(&floor.Pod{Claim: p.own, Request: p.request, Priority: p.priority}, &floor.At{
		Node: w.nodes[i].Name, Allocatable: n.Allocatable, Requested: n.Requested, Owned: func() map[types.UID]ledger.Resources { return n.Owned },
	}).Fits
}

// place puts a pod on the first node of an order on which it fits, and reports whether there was one.
func (w *world) place(order []int, p pod) bool {
	for _, i := range order {
		if !w.absent[i] && w.fits(i, p) {
			w.floor.Take(&floor.Pod{Claim: p.own, Request: p.request, Priority: p.priority}, w.nodes[i].Name)
			w.pods[i] = append(w.pods[i], p)
			w.update(i)
			return true
		}
	}
	return false
}

// toggle takes a node away with its pods, or brings it back.
func (w *world) toggle(i int) {
	if w.absent[i] = !w.absent[i]; w.absent[i] {
		w.pods[i] = nil
		w.floor.Remove(w.nodes[i].Name)
		w.floor.Settle()
	} else {
		w.update(i)
	}
}

// nominate changes what the pods ask for that are nominated to a node.
func (w *world) nominate(i int, request ledger.Resources) {
	w.nominated[i] = request
	w.update(i)
}

// leave takes a pod off a node.
func (w *world) leave(i, k int) {
	if len(w.pods[i]) > 0 {
		k %= len(w.pods[i])
		w.pods[i] = slices.Delete(w.pods[i], k, k+1)
		w.update(i)
	}
}

// held is how many slots a claim has in each zone.
func held(f *floor.Floor, claim types.UID) map[string]int {
	counts := map[string]int{}
	if r, ok := f.Report(claim); ok {
		for _, z := range r.Zones {
			if z.Held > 0 {
				counts[z.Name] = z.Held
			}
		}
	}
	return counts
}

// most is how many slots of a claim have room in a zone, were it the only one.
func (w *world) most(zone string, c *floor.Claim) (n int) {
	for i, object := range w.nodes {
		if object.Labels[v1.LabelTopologyZone] != zone || w.absent[i] || !c.Nodes.MetBy(object) {
			continue
		}
		at := w.node(i)
		free := at.Allocatable.Minus(&at.Requested)
		k := int(free.Slots(&c.Slot))
		if c.PerNode > 0 {
			owned := at.Owned[c.UID]
			k = min(k, max(0, c.PerNode-int(owned.Pods)))
		}
		n += k
	}
	return n
}

// roomFor names a node of a zone that has room for one more slot of a claim beside pods and slots, if the fraction
// allows one; empty for none. Of a Guarantee it has room as well for what owners there leave of their slots: that is held
// before a further slot.
func (w *world) roomFor(zone string, c *floor.Claim) string {
	var offered ledger.Resources
	room := ""
	for i, object := range w.nodes {
		if object.Labels[v1.LabelTopologyZone] != zone {
			continue
		}
		offered.Add(&w.size, 1)
		n, held := w.node(i), w.floor.HeldOn()[object.Name]
		free := n.Allocatable.Minus(&n.Requested)
		need, owned := c.Slot, n.Owned[c.UID]
		if c.Inclusive {
			need = c.Slot.Times(int64(owned.Covering(&c.Slot) + 1))
			need = need.Beyond(&owned)
		}
		if left := free.Minus(&held); need.Exceeds(&left) == "" {
			room = object.Name
		}
	}
	held := w.floor.Held()[zone]
	for name := range c.Slot.Named() {
		if held.Amount(name)+c.Slot.Amount(name) > int64(w.fraction*float64(offered.Amount(name))) {
			return ""
		}
	}
	return room
}

// allowed is how many slots of a claim the fraction lets a zone have.
func (w *world) allowed(zone string, c *floor.Claim) int {
	var offered ledger.Resources
	for i, object := range w.nodes {
		if object.Labels[v1.LabelTopologyZone] == zone && !w.absent[i] {
			offered.Add(&w.size, 1)
		}
	}
	n := int64(1 << 30)
	for name := range c.Slot.Named() {
		n = min(n, int64(w.fraction*float64(offered.Amount(name)))/c.Slot.Amount(name))
	}
	return int(n)
}

// seeds is what statuses say that claims have.
func (w *world) seeds() map[types.UID][]floor.Seed {
	all := map[types.UID][]floor.Seed{}
	for i := range w.claims {
		r, _ := w.floor.Report(w.claims[i].UID)
		all[w.claims[i].UID] = r.Seed()
	}
	return all
}

// drawClaim draws a claim of headroom over some zones.
func drawClaim(t *rapid.T, uid string, zones int) floor.Claim {
	c := floor.Claim{
		UID: types.UID(uid), Name: uid, Created: time.Unix(0, 0), Nodes: anyNode, PerNode: rapid.IntRange(0, 2).Draw(t, "per node"),
		Slot: size(rapid.Int64Range(1, 6).Draw(t, "cpu")*1000, rapid.Int64Range(1, 20).Draw(t, "memory")),
	}
	c.Zones = map[string]int{}
	for i := range zones {
		c.Zones[zoneName(i)] = rapid.IntRange(0, 12).Draw(t, "slots")
	}
	return c
}

func drawPod(t *rapid.T) pod {
	return pod{request: size(rapid.Int64Range(1, 5).Draw(t, "pod cpu")*1000, rapid.Int64Range(1, 16).Draw(t, "pod memory"))}
}

func drawOrder(t *rapid.T, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return rapid.Permutation(order).Draw(t, "order")
}
