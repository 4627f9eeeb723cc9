package placement

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// world is a cluster with reservations, in which pods and nodes come and go. Its scheduling cycles see cache, and the planner's
// worker sees the ledger; both hear of events in their order, and of one event at different times.
type world struct {
	*scene
	cache   *ledger.Ledger
	targets map[string]Target
	nodes   map[string]*v1.Node
	serial  int
	// toCache and toLedger are the events that are on their way.
	toCache, toLedger []func(*ledger.Ledger)
	alive             map[string]string // pods that are bound, by name: their node
	// pods are the objects of each pod, by name.
	pods map[string][]*v1.Pod
}

var (
	nodeNames  = []string{"a1", "a2", "b1", "b2", "c1"}
	claimNames = []string{"r1", "r2", "r3"}
)

func newWorld() *world {
	return &world{
		scene: newScene(1), cache: ledger.New(ledger.DefaultOptions()),
		targets: map[string]Target{}, nodes: map[string]*v1.Node{}, alive: map[string]string{}, pods: map[string][]*v1.Pod{},
	}
}

func (w *world) happen(event func(*ledger.Ledger)) {
	w.toCache = append(w.toCache, event)
	w.toLedger = append(w.toLedger, event)
}

func (w *world) hear(to *ledger.Ledger, queue *[]func(*ledger.Ledger), n int) {
	for ; n > 0 && len(*queue) > 0; n-- {
		(*queue)[0](to)
		*queue = (*queue)[1:]
	}
}

func (w *world) CacheHears(t *rapid.T) {
	w.hear(w.cache, &w.toCache, rapid.IntRange(1, 5).Draw(t, "events"))
}

func (w *world) LedgerHears(t *rapid.T) {
	w.hear(w.ledger, &w.toLedger, rapid.IntRange(1, 5).Draw(t, "events"))
}

// settle has all hear everything.
func (w *world) settle() {
	w.hear(w.cache, &w.toCache, len(w.toCache))
	w.hear(w.ledger, &w.toLedger, len(w.toLedger))
}

// lags tells whether the ledger has a pod that is gone, by what the API server says.
func (w *world) lags(node string) bool {
	for _, n := range w.ledger.Dump().Nodes {
		for _, p := range n.Pods {
			if n.Name == node && p.State == ledger.Added && w.alive[p.Pod.Name] != node {
				return true
			}
		}
	}
	return false
}

// newNode is a version of a node, of another one if the node is gone.
func (w *world) newNode(name string, cpus int) *v1.Node {
	n := makeNode(name, name[:1], fmt.Sprint(cpus))
	if old := w.nodes[name]; old != nil {
		n.UID = old.UID
	} else {
		w.serial++
		n.UID = types.UID(fmt.Sprint(name, "-", w.serial))
	}
	return n
}

func (w *world) SetNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	n := w.newNode(name, rapid.IntRange(1, 6).Draw(t, "cpus"))
	switch rapid.IntRange(0, 7).Draw(t, "state") {
	case 0:
		n.Spec.Unschedulable = true
	case 1:
		notReady(n)
	}
	w.nodes[name] = n
	w.happen(func(l *ledger.Ledger) { l.UpdateNode(n) })
}

func (w *world) RemoveNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	if n := w.nodes[name]; n != nil {
		w.happen(func(l *ledger.Ledger) { l.RemoveNode(n) })
		delete(w.nodes, name)
	}
}

func (w *world) cycle() View {
	snapshot := ledger.NewSnapshot()
	w.cache.UpdateSnapshot(snapshot)
	return snapshotView{snapshot}
}

// Schedule is a cycle for a pod that may own a claim, or another scheduler's.
func (w *world) Schedule(t *rapid.T) {
	view := w.cycle()
	if view.Len() == 0 {
		return
	}
	w.planner.Collect(view)
	w.serial++
	node := view.Node(rapid.IntRange(0, view.Len()-1).Draw(t, "place")).Name
	cpu := fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "cpu"))
	pod := makePod(fmt.Sprintf("p%d", w.serial), "", cpu)
	bound := makePod(pod.Name, node, cpu)
	w.pods[pod.Name] = []*v1.Pod{pod, bound}
	if rapid.IntRange(0, 9).Draw(t, "bound by another") > 0 {
		owner := types.UID(rapid.SampledFrom(append([]string{""}, claimNames...)).Draw(t, "owner"))
		owned(bound, owner)
		if _, fits := w.schedule(t, view, node, pod, owner); !fits {
			return
		}
		require.NoError(t, w.cache.AssumePod(pod, node, t0))
	}
	w.alive[pod.Name] = node
	w.happen(func(l *ledger.Ledger) { _, _ = l.AddPod(bound) })
}

func (w *world) EndPod(t *rapid.T) {
	if len(w.alive) == 0 {
		return
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.alive))).Draw(t, "pod")
	delete(w.alive, name)
	w.happen(func(l *ledger.Ledger) { l.RemovePod(types.UID(name)) })
}

// ChangeOwner has a pod belong to another claim, or to none: the owners of a claim are others.
func (w *world) ChangeOwner(t *rapid.T) {
	if len(w.pods) == 0 {
		return
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")
	owner := rapid.SampledFrom(append([]string{""}, claimNames...)).Draw(t, "owner")
	for _, pod := range w.pods[name] {
		pod.Labels = map[string]string{"claim": owner}
	}
	w.planner.OwnersChanged()
}

// Nominate has pods be nominated to a node, or no longer.
func (w *world) Nominate(t *rapid.T) {
	node := rapid.SampledFrom(nodeNames).Draw(t, "node")
	w.nominated[node] = ledger.Resources{MilliCPU: rapid.Int64Range(1, 4).Draw(t, "cpu") * 1000, Pods: 1}
	if rapid.Bool().Draw(t, "ends") {
		delete(w.nominated, node)
	}
}

func (w *world) Set(t *rapid.T) {
	name := rapid.SampledFrom(claimNames).Draw(t, "claim")
	d := target(name, slices.Index(claimNames, name))
	d.Claim.Use = rapid.SampledFrom([]holds.Use{holds.UseLast, holds.UseFirst}).Draw(t, "use")
	d.OnZoneLoss = rapid.SampledFrom([]LossPolicy{Shift, Keep}).Draw(t, "loss")
	d.Claim.Slot.MilliCPU = rapid.Int64Range(1, 2).Draw(t, "size") * 1000
	d.PerNode = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "per node")
	if rapid.IntRange(0, 2).Draw(t, "form") == 0 {
		amounts := map[string]ledger.Resources{}
		for _, node := range rapid.SliceOfNDistinct(rapid.SampledFrom(append(nodeNames, "none")), 1, 4, rapid.ID[string]).Draw(t, "nodes") {
			amounts[node] = ledger.Resources{MilliCPU: rapid.Int64Range(0, 8).Draw(t, "cpu") * 500, Pods: rapid.Int64Range(1, 3).Draw(t, "places")}
		}
		d = targetOn(name, slices.Index(claimNames, name), amounts)
	} else if rapid.Bool().Draw(t, "spread") {
		d.Slots = rapid.IntRange(0, 6).Draw(t, "slots")
	} else {
		for _, zone := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3, rapid.ID[string]).Draw(t, "zones") {
			d.Zones = append(d.Zones, Zone{zone, rapid.IntRange(0, 4).Draw(t, "slots")})
		}
	}
	w.planner.Set(d)
	w.planner.OwnersChanged()
	w.targets[name] = d
}

func (w *world) Remove(t *rapid.T) {
	name := rapid.SampledFrom(claimNames).Draw(t, "claim")
	w.planner.Remove(types.UID(name))
	delete(w.targets, name)
}

// Pass is a pass of the worker while events are on their way.
func (w *world) Pass(*rapid.T) { w.planner.Reconcile(reads(w.view()), w.lags) }

// Settle: once all is heard and done, every slot is where it may be, has room, and no claim lacks a slot that has room.
func (w *world) Settle(t *rapid.T) {
	w.settle()
	before := w.stands()
	changed := map[types.UID]bool{}
	// A node that only a cycle has seen is there until the next cycle.
	for _, uid := range slices.Concat(w.planner.Collect(w.cycle()).Changed, w.reconcile(t)) {
		changed[uid] = true
	}
	for name, was := range before {
		if !changed[types.UID(name)] {
			require.Empty(t, cmp.Diff(was, w.stands()[name], cmpopts.EquateEmpty()), "%s has changed and nothing says so", name)
		}
	}
	for name := range w.targets {
		w.inOrder(t, name)
		w.nothingLeft(t, name)
		w.ownersFollowed(t, name)
	}
	// What is where it is to be stays there, by either entrance.
	require.Empty(t, w.reconcile(t))
	require.Empty(t, w.planner.Collect(w.cycle()).Changed)
}

func (w *world) stands() map[string][]holds.NodeStatus {
	all := map[string][]holds.NodeStatus{}
	for name := range w.targets {
		nodes, _ := w.holds.Status(types.UID(name))
		all[name] = nodes
	}
	return all
}

// freeRoom is what nominated pods leave of room.
func (w *world) freeRoom(view View, i int) ledger.Resources {
	room, nominated := w.room(view, i), w.nominated[view.Node(i).Name]
	return room.Minus(&nominated)
}

// room is what pods and unused holds leave of a node, and unused is what of a claim's amount there its pods leave, both by the ledger.
func (w *world) room(view View, i int) ledger.Resources {
	allocatable, requested := view.Resources(i)
	room := allocatable.Minus(&requested)
	for name, nodes := range w.stands() {
		for _, n := range nodes {
			if n.Node == view.Node(i).Name {
				unused := w.unused(view, i, name, n.Amount)
				room.Add(&unused, -1)
			}
		}
	}
	return room
}

func (w *world) unused(view View, i int, name string, amount ledger.Resources) ledger.Resources {
	d := w.targets[name]
	if d.Claim.Use == holds.UseLast && d.Claim.HasSlots() {
		return amount
	}
	owned := view.Owned(i)[types.UID(name)]
	left := amount.Minus(&owned)
	return left.Positive()
}

// usable returns the node where a claim may have slots.
func (w *world) usable(name, node string) bool {
	d := w.targets[name]
	n := w.nodes[node]
	return n != nil && d.Requirements.Unmet(n) == ""
}

func (w *world) inOrder(t *rapid.T, name string) {
	d := w.targets[name]
	nodes, _ := w.holds.Status(types.UID(name))
	view := w.view()
	at := map[string]int{}
	for i := range view.Len() {
		at[view.Node(i).Name] = i
	}
	for _, n := range nodes {
		i, there := at[n.Node]
		require.True(t, there && !ledger.Unready(view.Node(i)), "%s holds something on %s", name, n.Node)
		if !d.Claim.HasSlots() {
			desired := d.Nodes[n.Node]
			require.Empty(t, n.Amount.Exceeds(&desired), "%s holds too much on %s", name, n.Node)
		} else {
			require.Equal(t, d.Claim.Slot.MilliCPU*n.Amount.Pods, n.Amount.MilliCPU)
			require.False(t, n.Resized)
		}
		unused := w.unused(view, i, name, n.Amount)
		if d.Claim.HasSlots() {
			unused = ledger.Resources{}
			for k := n.Slots(); k > 0; k-- { // whole slots that are unused
				size := d.Claim.SlotsAmount(k)
				if left := w.unused(view, i, name, n.Amount); size.Exceeds(&left) == "" {
					unused = size
					break
				}
			}
		}
		if unused.IsZero() {
			continue
		}
		require.True(t, w.usable(name, n.Node), "%s holds something on %s", name, n.Node)
		room := w.room(view, i)
		require.False(t, room.Negative(&unused), "%s has no room on %s: %+v", name, n.Node, room)
		if owners := view.Owned(i)[types.UID(name)]; d.PerNode > 0 && d.Claim.Use == holds.UseLast {
			require.LessOrEqual(t, n.Slots()+int(owners.Pods), d.PerNode)
		} else if d.PerNode > 0 {
			require.LessOrEqual(t, n.Slots(), d.PerNode)
		}
	}
}

// nothingLeft looks with its own eyes for room that a claim should have taken.
func (w *world) nothingLeft(t *rapid.T, name string) {
	d := w.targets[name]
	nodes, _ := w.holds.Status(types.UID(name))
	if !d.Claim.HasSlots() {
		w.noPartLeft(t, name, nodes)
		return
	}
	zones, at, sum := map[string]int{}, map[string]int{}, 0
	for _, n := range nodes {
		at[n.Node] = n.Slots()
		zones[n.Zone] += n.Slots()
		sum += n.Slots()
	}
	require.LessOrEqual(t, sum, d.totalSlots())
	if sum >= d.totalSlots() {
		return
	}
	lacking := map[string]bool{}
	for _, z := range d.Zones {
		lacking[z.Name] = zones[z.Name] < z.Slots
	}
	view := w.view()
	for i := range view.Len() {
		n := view.Node(i)
		zone := n.Labels[v1.LabelTopologyZone]
		// Which zone may have the slots of a lost one is the quotas' matter.
		spread := len(d.Zones) == 0 && d.OnZoneLoss == Shift
		if !w.usable(name, n.Name) || !lacking[zone] && !spread {
			continue
		}
		inNode := at[n.Name]
		if d.Claim.Use == holds.UseLast {
			owners := view.Owned(i)[types.UID(name)]
			inNode += int(owners.Pods)
		}
		if d.PerNode > 0 && inNode >= d.PerNode {
			continue
		}
		d.Claim.Slot.Pods = 1
		now, then := w.unused(view, i, name, d.Claim.SlotsAmount(at[n.Name])), w.unused(view, i, name, d.Claim.SlotsAmount(at[n.Name]+1))
		more, room := then.Minus(&now), w.freeRoom(view, i)
		require.NotEmpty(t, more.Exceeds(&room), "%s lacks slots and %s has room", name, n.Name)
	}
}

// ownersFollowed: no slot of an inclusive claim is unused while an owner runs outside of slots in the same zone, if a slot there fits.
func (w *world) ownersFollowed(t *rapid.T, name string) {
	d := w.targets[name]
	if d.Claim.Use == holds.UseLast {
		return
	}
	nodes, _ := w.holds.Status(types.UID(name))
	at, unused := map[string]int{}, map[string]bool{}
	view := w.view()
	for _, n := range nodes {
		at[n.Node] = n.Slots()
		for i := range view.Len() {
			owned := view.Owned(i)[types.UID(name)]
			if view.Node(i).Name == n.Node && n.Amount.MilliCPU-owned.MilliCPU >= d.Claim.Slot.MilliCPU && n.Slots() > int(owned.Pods) {
				unused[n.Zone] = true
			}
		}
	}
	d.Claim.Slot.Pods = 1
	for i := range view.Len() {
		n := view.Node(i)
		slots, owners := at[n.Name], view.Owned(i)[types.UID(name)]
		if int(owners.Pods) <= slots || !w.usable(name, n.Name) || d.PerNode > 0 && slots >= d.PerNode || !unused[n.Labels[v1.LabelTopologyZone]] {
			continue
		}
		now, then := w.unused(view, i, name, d.Claim.SlotsAmount(slots)), w.unused(view, i, name, d.Claim.SlotsAmount(slots+1))
		more, room := then.Minus(&now), w.freeRoom(view, i)
		require.NotEmpty(t, more.Exceeds(&room), "owners of %s run outside of slots on %s", name, n.Name)
	}
}

// noPartLeft is nothingLeft for amounts.
func (w *world) noPartLeft(t *rapid.T, name string, nodes []holds.NodeStatus) {
	view := w.view()
	for i := range view.Len() {
		node := view.Node(i).Name
		if !w.usable(name, node) {
			continue
		}
		var has ledger.Resources
		if at := slices.IndexFunc(nodes, func(n holds.NodeStatus) bool { return n.Node == node }); at >= 0 {
			has = nodes[at].Amount
		}
		now, then, room := w.unused(view, i, name, has), w.unused(view, i, name, w.targets[name].Nodes[node]), w.freeRoom(view, i)
		for _, resource := range []v1.ResourceName{v1.ResourceCPU, v1.ResourcePods} {
			missing := then.Amount(resource) - now.Amount(resource)
			require.True(t, missing <= 0 || room.Amount(resource) <= 0, "%s lacks a part on %s, where there is room for %+v", name, node, room)
		}
	}
}

// Check: a report agrees with the records at any time.
func (w *world) Check(t *rapid.T) {
	for name := range w.targets {
		nodes, _ := w.holds.Status(types.UID(name))
		r, ok := w.planner.Report(types.UID(name))
		if !ok {
			continue
		}
		held, used, sum := 0, 0, 0
		for _, z := range r.Zones {
			held += int(z.Held.Pods)
			used += int(z.Used.Pods)
		}
		for _, n := range nodes {
			sum += n.Slots()
		}
		require.Equal(t, sum, held)
		require.LessOrEqual(t, used, held)
	}
}

func TestThePlannerKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		t.Repeat(map[string]func(*rapid.T){
			"":            w.Check,
			"SetNode":     w.SetNode,
			"MoreNodes":   w.SetNode,
			"RemoveNode":  w.RemoveNode,
			"Schedule":    w.Schedule,
			"MorePods":    w.Schedule,
			"EndPod":      w.EndPod,
			"ChangeOwner": w.ChangeOwner,
			"Nominate":    w.Nominate,
			"Set":         w.Set,
			"Remove":      w.Remove,
			"Pass":        w.Pass,
			"CacheHears":  w.CacheHears,
			"LedgerHears": w.LedgerHears,
			"Settle":      w.Settle,
		})
	})
}

// TestPlacementIsDeterministic: the order in which nodes, pods and claims become known makes no difference, and a planner that
// starts on what is there comes to the same slots.
func TestPlacementIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*v1.Node
		var pods []*v1.Pod
		for _, name := range nodeNames {
			nodes = append(nodes, makeNode(name, name[:1], fmt.Sprint(rapid.IntRange(1, 5).Draw(t, "cpus"))))
			if rapid.Bool().Draw(t, "pod") {
				pods = append(pods, makePod("on-"+name, name, "1"))
			}
		}
		var targets []Target
		for i, name := range claimNames {
			d := target(name, i, Zone{"a", rapid.IntRange(0, 4).Draw(t, "slots")}, Zone{"b", rapid.IntRange(0, 4).Draw(t, "slots")})
			if rapid.Bool().Draw(t, "spread") {
				d.Zones, d.Slots = nil, rapid.IntRange(0, 6).Draw(t, "slots")
			}
			targets = append(targets, d)
		}
		var first map[string]map[string]int
		for range 3 {
			s := newScene(1)
			for _, n := range rapid.Permutation(nodes).Draw(t, "nodes") {
				s.ledger.AddNode(n)
			}
			s.add(t, rapid.Permutation(pods).Draw(t, "pods")...)
			s.reconcile(t, rapid.Permutation(targets).Draw(t, "targets")...)
			got := map[string]map[string]int{}
			for _, name := range claimNames {
				got[name] = s.slots(t, name)
			}
			if first == nil {
				first = got
			}
			require.Equal(t, first, got)
		}
	})
}

// TestHeadroomOutlivesRollingUpdates replaces the replicas of a service one by one, in any order of zones, while batch pods wait
// for every CPU that becomes free. The new one comes before the old one goes.
func TestHeadroomOutlivesRollingUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster(2, "a", "b", "c")
		nodes := []string{"a1", "a2", "b1", "b2", "c1", "c2"}
		var old []string
		for i, node := range nodes {
			name := fmt.Sprintf("old-%d", i)
			s.add(t, makePod(name, node, "1"))
			old = append(old, name)
		}
		s.reconcile(t, target("r", 0, Zone{"a", 2}, Zone{"b", 2}, Zone{"c", 2}))
		batch := 0
		fill := func() {
			s.collect()
			for _, node := range nodes {
				for {
					batch++
					if _, fits := s.schedule(t, s.view(), node, makePod(fmt.Sprintf("batch-%d", batch), "", "1"), ""); !fits {
						break
					}
				}
			}
		}
		fill()
		for i, name := range rapid.Permutation(old).Draw(t, "order of leaving") {
			replica := makePod(fmt.Sprintf("new-%d", i), "", "1")
			placed := false
			for _, node := range rapid.Permutation(nodes).Draw(t, "order of coming") {
				uses, fits := s.schedule(t, s.view(), node, replica, "r")
				if fits {
					require.True(t, uses)
					placed = true
					break
				}
			}
			require.True(t, placed)
			fill()
			s.end(name)
			fill()
			require.Zero(t, s.report(t, "r").Missing, "after %d of 6", i+1)
		}
	})
}

func TestKeysTellRequirementsApart(t *testing.T) {
	tolerate := func(key string) []v1.Toleration { return []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}} }
	same := floor.NewNodeRequirements(map[string]string{"x": "y", "a": "b"}, tolerate("k"), false)
	require.Equal(t, same.Key(), floor.NewNodeRequirements(map[string]string{"a": "b", "x": "y"}, tolerate("k"), false).Key())
	for _, other := range []*NodeRequirements{everywhere, floor.NewNodeRequirements(map[string]string{"x": "y"}, tolerate("k"), false), floor.NewNodeRequirements(map[string]string{"x": "y", "a": "b"}, tolerate("l"), false), floor.NewNodeRequirements(map[string]string{"x": "y", "a": "b"}, tolerate("k"), true)} {
		require.NotEqual(t, same.Key(), other.Key())
	}
}
