package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/reservecache/ledger"
)

// world is a cluster with reservations, in which pods and nodes come and go.
type world struct {
	ledger  *ledger.Ledger
	keeper  *Keeper
	demands map[string]Demand
	nodes   map[string]*v1.Node
	serial  int
}

var (
	nodeNames   = []string{"a1", "a2", "b1", "b2", "c1"}
	demandNames = []string{"r1", "r2", "r3"}
)

func (w *world) SetNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	n := makeNode(name, name[:1], fmt.Sprint(rapid.IntRange(1, 6).Draw(t, "cpus")))
	switch rapid.IntRange(0, 7).Draw(t, "state") {
	case 0:
		n.Spec.Unschedulable = true
	case 1:
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}
	}
	w.nodes[name] = n
	w.ledger.UpdateNode(n)
}

func (w *world) RemoveNode(t *rapid.T) {
	name := rapid.SampledFrom(nodeNames).Draw(t, "node")
	if n := w.nodes[name]; n != nil {
		w.ledger.RemoveNode(n)
		delete(w.nodes, name)
	}
}

// Schedule is a cycle for a pod that may own a demand, or for one that is bound by another scheduler.
func (w *world) Schedule(t *rapid.T) {
	view := cycle(w.ledger)
	if view.Len() == 0 {
		return
	}
	w.keeper.Refill(view, nil)
	w.serial++
	i := rapid.IntRange(0, view.Len()-1).Draw(t, "place")
	cpu := fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "cpu"))
	pod := makePod(fmt.Sprintf("p%d", w.serial), "", cpu)
	bound := makePod(pod.Name, view.Node(i).Name, cpu)
	allocatable, requested := view.Resources(i)
	requests := w.ledger.Requests(pod)
	if rapid.IntRange(0, 9).Draw(t, "bound by another") > 0 {
		after := requested.Clone()
		if after.Add(&requests, 1); requests.Exceeds(&allocatable) != "" || after.Exceeds(&allocatable) != "" {
			return
		}
		adm := &ledger.Admission{Requested: requested, Allocatable: allocatable, Present: func(uid types.UID) bool { return view.Present(i, uid) }}
		if owner := rapid.SampledFrom(append([]string{""}, demandNames...)).Draw(t, "owner"); owner != "" {
			adm.Claims = []ledger.ClaimID{id(owner)}
		}
		if _, err := w.ledger.AssumePodOnHold(pod, bound.Spec.NodeName, adm, t0); err != nil {
			return
		}
	}
	add(t, w.ledger, bound)
}

func (w *world) EndPod(t *rapid.T) {
	if w.serial > 0 {
		w.ledger.RemovePod(types.UID(fmt.Sprintf("p%d", rapid.IntRange(1, w.serial).Draw(t, "pod"))))
	}
}

func (w *world) Set(t *rapid.T) {
	name := rapid.SampledFrom(demandNames).Draw(t, "demand")
	d := demand(name, slices.Index(demandNames, name))
	d.Claim.Mode = rapid.SampledFrom([]ledger.Mode{ledger.Headroom, ledger.Guarantee}).Draw(t, "mode")
	d.OnZoneLoss = rapid.SampledFrom([]LossPolicy{Shift, Keep}).Draw(t, "loss")
	d.Slot.MilliCPU = rapid.Int64Range(1, 2).Draw(t, "size") * 1000
	if rapid.Bool().Draw(t, "spread") {
		d.Slots = rapid.IntRange(0, 6).Draw(t, "slots")
	} else {
		for _, zone := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3, rapid.ID[string]).Draw(t, "zones") {
			d.Zones = append(d.Zones, Zone{zone, rapid.IntRange(0, 4).Draw(t, "slots")})
		}
	}
	require.NoError(t, w.keeper.Set(d))
	w.demands[name] = d
}

func (w *world) Remove(t *rapid.T) {
	name := rapid.SampledFrom(demandNames).Draw(t, "demand")
	w.keeper.Remove(id(name))
	delete(w.demands, name)
}

// Refill must leave no room for a slot of the oldest unfilled demand in a zone that lacks it.
func (w *world) Refill(t *rapid.T) {
	w.keeper.Refill(cycle(w.ledger), nil)
	w.nothingLeft(t)
}

func (w *world) Reconcile(t *rapid.T) {
	before := w.stands()
	result := w.keeper.Reconcile(nil)
	changed := map[ledger.ClaimID]bool{}
	for name, was := range before {
		// What a node lacks for one claim changes with what another gives up there.
		if is := w.stands()[name]; !cmp.Equal(was, is, cmpopts.IgnoreFields(ledger.HoldStatus{}, "Excess")) {
			changed[id(name)] = true
		}
	}
	for _, c := range result.Changed {
		delete(changed, c)
	}
	require.Empty(t, changed, "changed and not told")
	w.nothingLeft(t)
	for name, d := range w.demands {
		for node := range slots(t, w.ledger, name) {
			status, _ := w.ledger.Claim(id(name))
			for _, h := range status.Holds {
				if h.Node == node && h.Slots > len(h.Consumers) {
					require.Empty(t, d.Fit.Of(w.nodes[node]), "%s holds slots on %s", name, node)
					require.Zero(t, h.Excess)
					require.Equal(t, d.Slot.MilliCPU, h.Requests.MilliCPU)
				}
			}
		}
	}
	// What is where it is to be stays there, by either entrance.
	require.Empty(t, w.keeper.Reconcile(nil).Changed)
	require.Empty(t, w.keeper.Refill(cycle(w.ledger), nil).Changed)
}

func (w *world) stands() map[string]ledger.ClaimStatus {
	all := map[string]ledger.ClaimStatus{}
	for name := range w.demands {
		all[name], _ = w.ledger.Claim(id(name))
	}
	return all
}

// nothingLeft looks with its own eyes for room that a demand should have taken.
func (w *world) nothingLeft(t *rapid.T) {
	view := cycle(w.ledger)
	var holds ledger.HoldsView
	w.ledger.UpdateHoldsView(&holds)
	for name, d := range w.demands {
		status, _ := w.ledger.Claim(id(name))
		if status.Missing == 0 {
			continue
		}
		lacking := map[string]bool{}
		for _, z := range d.Zones {
			has := 0
			for _, h := range status.Holds {
				if h.Zone == z.Name {
					has += h.Slots
					if d.Claim.Mode == ledger.Headroom {
						has -= len(h.Consumers)
					}
				}
			}
			lacking[z.Name] = has < z.Slots
		}
		for i := range view.Len() {
			n := view.Node(i)
			zone := n.Labels[v1.LabelTopologyZone]
			// Which zone may have the slots of a lost one is the quotas' matter.
			spread := len(d.Zones) == 0 && d.OnZoneLoss == Shift
			if d.Fit.Of(n) != "" || !lacking[zone] && !spread {
				continue
			}
			allocatable, requested := view.Resources(i)
			room := holds.Node(n.Name).Room(&allocatable, &requested, nil, nil)
			size := d.Slot.Clone()
			size.Pods = 1
			require.Zero(t, room.Slots(&size), "%s lacks %d slots and %s has room", name, status.Missing, n.Name)
		}
	}
}

// Check: never more slots than wanted nor than quotas and shifts allow, and never more held than there is,
// save what the events took.
func (w *world) Check(t *rapid.T) {
	for name, d := range w.demands {
		status, ok := w.ledger.Claim(id(name))
		require.True(t, ok)
		require.Equal(t, d.wanted(), status.Wanted)
		r, ok := w.keeper.Report(id(name))
		require.True(t, ok)
		held, used := 0, 0
		for _, z := range r.Zones {
			held += z.Held
			used += z.Used
		}
		require.Equal(t, []int{status.Slots, status.Used}, []int{held, used})
	}
}

func TestKeeperKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.New(ledger.DefaultOptions())
		w := &world{ledger: l, keeper: NewKeeper(l), demands: map[string]Demand{}, nodes: map[string]*v1.Node{}}
		t.Repeat(map[string]func(*rapid.T){
			"":           w.Check,
			"SetNode":    w.SetNode,
			"MoreNodes":  w.SetNode,
			"RemoveNode": w.RemoveNode,
			"Schedule":   w.Schedule,
			"MorePods":   w.Schedule,
			"EndPod":     w.EndPod,
			"Set":        w.Set,
			"Remove":     w.Remove,
			"Refill":     w.Refill,
			"Reconcile":  w.Reconcile,
		})
	})
}

// TestPlacementIsDeterministic: the order in which nodes, pods and demands become known makes no difference,
// and whoever starts anew on what is there comes to the same slots.
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
		var demands []Demand
		for i, name := range demandNames {
			d := demand(name, i, Zone{"a", rapid.IntRange(0, 4).Draw(t, "slots")}, Zone{"b", rapid.IntRange(0, 4).Draw(t, "slots")})
			if rapid.Bool().Draw(t, "spread") {
				d.Zones, d.Slots = nil, rapid.IntRange(0, 6).Draw(t, "slots")
			}
			demands = append(demands, d)
		}
		var first map[string]ledger.ClaimStatus
		for range 3 {
			l := ledger.New(ledger.DefaultOptions())
			for _, n := range rapid.Permutation(nodes).Draw(t, "nodes") {
				l.AddNode(n)
			}
			for _, pod := range rapid.Permutation(pods).Draw(t, "pods") {
				add(t, l, pod)
			}
			k := NewKeeper(l)
			for _, d := range rapid.Permutation(demands).Draw(t, "demands") {
				require.NoError(t, k.Set(d))
			}
			k.Reconcile(nil)
			got := map[string]ledger.ClaimStatus{}
			for _, name := range demandNames {
				got[name], _ = l.Claim(id(name))
			}
			if first == nil {
				first = got
			}
			require.Empty(t, cmp.Diff(first, got, cmpopts.EquateEmpty()))
		}
	})
}

// TestHeadroomOutlivesRollingUpdates replaces the replicas of a service one by one, in any order of zones, while
// batch pods wait for every CPU that becomes free. The new one comes before the old one goes.
func TestHeadroomOutlivesRollingUpdates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := cluster(2, "a", "b", "c")
		var old, replicas []string
		for i, node := range []string{"a1", "a2", "b1", "b2", "c1", "c2"} {
			name := fmt.Sprintf("old-%d", i)
			add(t, l, makePod(name, node, "1"))
			old = append(old, name)
		}
		d := demand("r", 0, Zone{"a", 2}, Zone{"b", 2}, Zone{"c", 2})
		k := NewKeeper(l)
		require.NoError(t, k.Set(d))
		k.Reconcile(nil)
		batch := 0
		fill := func() {
			view := cycle(l)
			k.Refill(view, nil)
			for i := range view.Len() {
				for {
					batch++
					name := fmt.Sprintf("batch-%d", batch)
					now := cycle(l)
					allocatable, requested := now.Resources(i)
					if room := allocatable.MilliCPU - requested.MilliCPU; room < 1000 {
						break
					}
					_, err := l.AssumePodOnHold(makePod(name, "", "1"), now.Node(i).Name, &ledger.Admission{
						Requested: requested, Allocatable: allocatable,
						Present: func(uid types.UID) bool { return now.Present(i, uid) },
					}, t0)
					if err != nil {
						require.ErrorIs(t, err, ledger.ErrHeld)
						break
					}
				}
			}
		}
		fill()
		for i, name := range rapid.Permutation(old).Draw(t, "order of leaving") {
			// The new replica goes to a zone that has a slot, as long as zones are to be even.
			view := cycle(l)
			placed := false
			for _, node := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order of coming") {
				allocatable, requested := view.Resources(node)
				replica := fmt.Sprintf("new-%d", i)
				claim, err := l.AssumePodOnHold(makePod(replica, "", "1"), view.Node(node).Name, &ledger.Admission{
					Asker:     ledger.Asker{Claims: []ledger.ClaimID{id("r")}},
					Requested: requested, Allocatable: allocatable,
					Present: func(uid types.UID) bool { return view.Present(node, uid) },
				}, t0)
				if err == nil && allocatable.MilliCPU > requested.MilliCPU {
					require.Equal(t, id("r"), claim)
					replicas = append(replicas, replica)
					placed = true
					break
				}
				if err == nil {
					l.ForgetPod(types.UID(replica), view.Node(node).Name)
				}
			}
			require.True(t, placed)
			fill()
			l.RemovePod(types.UID(name))
			fill()
			status, _ := l.Claim(id("r"))
			require.Equal(t, 6, status.Slots-status.Used, "after %d of 6", i+1)
		}
		require.Len(t, replicas, 6)
	})
}

func TestFitKeysTellFitsApart(t *testing.T) {
	tolerate := func(key string) []v1.Toleration { return []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}} }
	same := NewFit(map[string]string{"x": "y", "a": "b"}, tolerate("k"), false)
	require.Equal(t, same.key, NewFit(map[string]string{"a": "b", "x": "y"}, tolerate("k"), false).key)
	for _, other := range []*Fit{anywhere, NewFit(map[string]string{"x": "y"}, tolerate("k"), false), NewFit(map[string]string{"x": "y", "a": "b"}, tolerate("l"), false), NewFit(map[string]string{"x": "y", "a": "b"}, tolerate("k"), true)} {
		require.NotEqual(t, same.key, other.key)
	}
}

func TestFitOfNodes(t *testing.T) {
	seconds := int64(5)
	gpuNode := makeNode("n", "a", "4")
	gpuNode.Labels["pool"] = "gpu"
	gpuNode.Spec.Taints = []v1.Taint{{Key: "gpu", Value: "8", Effect: v1.TaintEffectNoSchedule}, {Key: "soft", Effect: v1.TaintEffectPreferNoSchedule}}
	gpu := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpEqual, Value: "8", TolerationSeconds: &seconds}}
	more := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpGt, Value: "4"}}
	require.Equal(t, Tainted, anywhere.Of(gpuNode))
	require.Equal(t, Unfit(""), NewFit(map[string]string{"pool": "gpu"}, gpu, false).Of(gpuNode))
	require.Equal(t, NotSelected, NewFit(map[string]string{"pool": "cpu"}, gpu, false).Of(gpuNode))
	require.Equal(t, Tainted, NewFit(nil, more, false).Of(gpuNode))
	require.Equal(t, Unfit(""), NewFit(nil, more, true).Of(gpuNode))

	cordoned := makeNode("n", "a", "4")
	cordoned.Spec.Unschedulable = true
	require.Equal(t, Cordoned, anywhere.Of(cordoned))
	require.Equal(t, Unfit(""), NewFit(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false).Of(cordoned))
	cordoned.Spec = v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}}
	require.Equal(t, Cordoned, anywhere.Of(cordoned))
	cordoned.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("0")
	require.Equal(t, Cordoned, anywhere.Of(cordoned), "room is no matter of fit")
}
