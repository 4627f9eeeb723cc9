package placement

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/build"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// everywhere are the requirements of slots that select nothing and tolerate nothing.
var everywhere = floor.NewNodeRequirements(nil, nil, false)

func makeNode(name, zone, cpu string) *v1.Node {
	return build.Node(name, zone, cpu, build.Capacity(v1.ResourceMemory, "64Gi"))
}

func makePod(name, node, cpu string) *v1.Pod {
	return build.Pod(name, cpu, build.Bound(node))
}

// owned makes a pod one of a claim's.
func owned(pod *v1.Pod, claim types.UID) *v1.Pod {
	if claim != "" {
		pod.Labels = map[string]string{"claim": string(claim)}
	}
	return pod
}

func notReady(n *v1.Node) *v1.Node {
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	return n
}

// snapshotView shows a snapshot of a ledger.
type snapshotView struct{ *ledger.Snapshot }

func (v snapshotView) Len() int            { return len(v.Nodes()) }
func (v snapshotView) Node(i int) *v1.Node { return v.Nodes()[i].Node }

func (v snapshotView) Generation(i int) int64   { return int64(v.Nodes()[i].Generation) }
func (v snapshotView) Recent() ([]string, bool) { return nil, false }
func (v snapshotView) Outdated(int) bool        { return false }

func (v snapshotView) Resources(i int) (allocatable, requested ledger.Resources) {
	n := v.Nodes()[i]
	return n.Allocatable, n.Requested
}

func (v snapshotView) Owned(i int) (owned map[types.UID]ledger.Resources) {
	for _, pod := range v.Nodes()[i].Pods {
		if claim := pod.Labels["claim"]; claim != "" {
			requests := v.Requests(pod)
			owned = ledger.AddTo(owned, types.UID(claim), &requests)
		}
	}
	return owned
}

// liveView is a snapshotView that knows whether its ledger has a newer state.
type liveView struct{ snapshotView }

func (v liveView) Outdated(i int) bool { return v.Behind(v.Nodes()[i].Node.Name) }

// reads returns a view that was read before.
func reads(v View) func() View { return func() View { return v } }

// scene is a ledger, holds and a planner over them. Its cycles see what the ledger says.
type scene struct {
	ledger  *ledger.Ledger
	holds   *holds.Holds
	planner *Planner
	// nominated are the requests of nominated pods by node.
	nominated map[string]ledger.Resources
	// kept is the worker's snapshot.
	kept *ledger.Snapshot
}

func newScene(maxHeldFraction float64) *scene {
	s := &scene{ledger: ledger.New(ledger.DefaultOptions()), holds: holds.New(), nominated: map[string]ledger.Resources{}, kept: ledger.NewSnapshot()}
	s.planner = New(s.holds, maxHeldFraction, func(node string) ledger.Resources { return s.nominated[node] })
	return s
}

// cluster is a scene with n nodes of 4 CPUs in each of the zones: a1, a2, ... b1, ...
func cluster(n int, zones ...string) *scene {
	s := newScene(1)
	for _, zone := range zones {
		for i := range n {
			s.ledger.AddNode(makeNode(fmt.Sprintf("%s%d", zone, i+1), zone, "4"))
		}
	}
	return s
}

func (s *scene) add(t require.TestingT, pods ...*v1.Pod) {
	for _, pod := range pods {
		_, err := s.ledger.AddPod(pod)
		require.NoError(t, err)
	}
}

func (s *scene) view() View {
	snapshot := ledger.NewSnapshot()
	s.ledger.UpdateSnapshot(snapshot)
	return snapshotView{snapshot}
}

// live reads the nodes of the ledger, as the worker does.
func (s *scene) live() View {
	s.ledger.UpdateSnapshot(s.kept)
	return liveView{snapshotView{s.kept}}
}

// reconcile calls Reconcile until there is no more to do, and returns the claims that changed.
func (s *scene) reconcile(t require.TestingT, targets ...Target) (changed []types.UID) {
	for _, d := range targets {
		s.planner.Set(d)
		s.planner.OwnersChanged()
	}
	for i := 0; ; i++ {
		result := s.planner.Reconcile(s.live, nil)
		changed = append(changed, result.Changed...)
		if !result.More {
			return changed
		}
		require.Less(t, i, 10_000, "there is always more to do")
	}
}

func (s *scene) collect() []types.UID { return s.planner.Collect(s.view()).Changed }

// target returns one of slots of a CPU each; age is in minutes, and a smaller one is older.
func target(name string, age int, zones ...Zone) Target {
	return Target{
		Claim: holds.Claim{
			UID: types.UID(name), Name: "ZoneReservation " + name, Since: t0.Add(time.Duration(age) * time.Minute),
			Slot: ledger.Resources{MilliCPU: 1000},
		},
		Zones:        zones,
		Requirements: everywhere,
	}
}

// targetOn returns one of amounts.
func targetOn(name string, age int, amounts map[string]ledger.Resources) Target {
	d := target(name, age)
	d.Claim.Slot, d.Nodes = ledger.Resources{}, amounts
	d.Requirements = floor.NewNodeRequirements(nil, []v1.Toleration{{Operator: v1.TolerationOpExists}}, false)
	return d
}

// cpus is an amount of CPUs, and places for pods.
func cpus(n, pods int64) ledger.Resources { return ledger.Resources{MilliCPU: 1000 * n, Pods: pods} }

// amounts returns what is held on each node.
func (s *scene) amounts(t require.TestingT, name string) map[string]ledger.Resources {
	nodes, ok := s.holds.Status(types.UID(name))
	require.True(t, ok, "no claim %s", name)
	held := map[string]ledger.Resources{}
	for _, n := range nodes {
		held[n.Node] = n.Amount
	}
	return held
}

// slots returns the number of slots on each node.
func (s *scene) slots(t require.TestingT, name string) map[string]int {
	nodes, ok := s.holds.Status(types.UID(name))
	require.True(t, ok, "no claim %s", name)
	got := map[string]int{}
	for _, n := range nodes {
		got[n.Node] = n.Slots()
	}
	return got
}

// report returns how a claim stands.
func (s *scene) report(t require.TestingT, name string) *Report {
	r, ok := s.planner.Report(types.UID(name))
	require.True(t, ok)
	return &r
}

// schedule asks for room for a pod on a node as the view has it, as Filter does, and on success assumes it there, as Reserve does. It
// returns whether the pod uses a part of its claim, and whether it fits.
func (s *scene) schedule(t require.TestingT, view View, node string, pod *v1.Pod, claim types.UID) (uses, fits bool) {
	who := holds.Requester{Claim: claim}
	if w := s.planner.claims[claim]; w != nil {
		who.Use = w.Use
	}
	owned(pod, claim)
	for i := range view.Len() {
		if view.Node(i).Name != node {
			continue
		}
		allocatable, requested := view.Resources(i)
		request := s.ledger.Requests(pod)
		after := requested.Clone()
		if after.Add(&request, 1); after.Exceeds(&allocatable) != "" {
			return false, false
		}
		byClaim := view.Owned(i)
		result := s.holds.Node(node).Fit(&holds.FitInput{
			Requester: &who, Request: &request, Allocatable: &allocatable, Requested: &requested,
			Owned: func(claim types.UID) ledger.Resources { return byClaim[claim] },
		})
		if !result.Fits {
			return false, false
		}
		s.planner.Exclusively(func() {
			if result.Takes.Pods > 0 {
				_, err := s.holds.Take(claim, node, &result.Takes)
				require.NoError(t, err)
			}
			require.NoError(t, s.ledger.AssumePod(pod, node, t0))
		})
		return result.UsesOwn, true
	}
	return false, false
}

// consume lets an owner use a slot on a node and be bound.
func (s *scene) consume(t require.TestingT, name, node, cpu, claim string) {
	uses, fits := s.schedule(t, s.view(), node, makePod(name, "", cpu), types.UID(claim))
	require.True(t, fits)
	require.True(t, uses)
	s.add(t, owned(makePod(name, node, cpu), types.UID(claim)))
}

// end removes a pod.
func (s *scene) end(name string) { s.ledger.RemovePod(types.UID(name)) }
