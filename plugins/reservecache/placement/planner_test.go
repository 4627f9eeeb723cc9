package placement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestSlotsGoWhereTheyFitBest(t *testing.T) {
	s := cluster(3, "a", "b")
	s.add(t, makePod("p1", "a2", "2"), makePod("p2", "a3", "3"), makePod("p3", "b1", "1"))
	require.Equal(t, []types.UID{"r"}, s.reconcile(t, target("r", 0, Zone{"a", 4}, Zone{"b", 2})))
	// The fullest node that has room comes first.
	require.Equal(t, map[string]int{"a3": 1, "a2": 2, "a1": 1, "b1": 2}, s.slots(t, "r"))
	require.Empty(t, s.reconcile(t), "what is in its place stays there")
}

func TestASpreadIsEven(t *testing.T) {
	s := cluster(2, "c", "a", "b")
	d := target("r", 0)
	d.Slots = 8
	s.reconcile(t, d)
	r := s.report(t, "r")
	require.Equal(t, []int64{3, 3, 2}, []int64{r.Zones[0].Held.Pods, r.Zones[1].Held.Pods, r.Zones[2].Held.Pods})

	// A full zone's share goes to the others, and home when there is room again.
	s = cluster(1, "a", "b", "c")
	s.add(t, makePod("big", "b1", "3500m"))
	d.Slots = 6
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 3, "c1": 3}, s.slots(t, "r"))
	s.end("big")
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2, "c1": 2}, s.slots(t, "r"))
}

func TestSlotsLeaveNodesThatMayNotHaveThem(t *testing.T) {
	taint := func(key string, effect v1.TaintEffect) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: effect}} }
	}
	for name, change := range map[string]func(*v1.Node){
		"cordoned":    func(n *v1.Node) { n.Spec.Unschedulable = true },
		"not ready":   func(n *v1.Node) { notReady(n) },
		"unreachable": taint(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute),
		"tainted":     taint("gpu", v1.TaintEffectNoSchedule),
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(2, "a")
			s.reconcile(t, target("r", 0, Zone{"a", 3}))
			require.Equal(t, map[string]int{"a1": 3}, s.slots(t, "r"))
			n := makeNode("a1", "a", "4")
			change(n)
			s.ledger.UpdateNode(n)
			s.reconcile(t)
			require.Equal(t, map[string]int{"a2": 3}, s.slots(t, "r"))
			// No need to go back.
			s.ledger.UpdateNode(makeNode("a1", "a", "4"))
			require.Empty(t, s.reconcile(t))
		})
	}
}

func TestAZoneIsLost(t *testing.T) {
	for _, policy := range []LossPolicy{Shift, Keep} {
		s := cluster(2, "a", "b", "c")
		d := target("r", 0, Zone{"a", 2}, Zone{"b", 2}, Zone{"c", 3})
		d.OnZoneLoss = policy
		s.reconcile(t, d)
		s.ledger.RemoveNode(makeNode("c1", "c", "4"))
		s.ledger.RemoveNode(makeNode("c2", "c", "4"))
		s.reconcile(t)
		r := s.report(t, "r")
		if policy == Keep {
			require.Equal(t, map[string]int{"a1": 2, "b1": 2}, s.slots(t, "r"))
			require.Equal(t, "zone c: 0 of 3 slots: no nodes", r.Shortfalls())
			require.Equal(t, []string{"c1"}, r.Away)
		} else {
			require.Equal(t, map[string]int{"a1": 4, "b1": 3}, s.slots(t, "r"))
			require.Empty(t, r.Shortfalls())
			require.Empty(t, r.Away)
		}
		require.True(t, r.Zones[2].Lost)

		s.ledger.AddNode(makeNode("c1", "c", "4"))
		s.reconcile(t)
		got := s.slots(t, "r")
		require.Equal(t, map[string]int{"a1": 2, "b1": 2, "c1": 3}, got, "the slots are home")
		require.Empty(t, s.report(t, "r").Away)
	}
}

// TestALostNodeIsNotNamedForEver: once other slots have been placed, those that are missing are not of that node.
func TestALostNodeIsNotNamedForEver(t *testing.T) {
	s := cluster(2, "a")
	s.reconcile(t, target("r", 0, Zone{"a", 10}))
	s.ledger.RemoveNode(makeNode("a2", "a", "4"))
	s.reconcile(t)
	require.Equal(t, []string{"a2"}, s.report(t, "r").Away)
	s.ledger.AddNode(makeNode("a3", "a", "3"))
	s.reconcile(t)
	require.Equal(t, []string{"a2"}, s.report(t, "r").Away, "one of four is still missing")
	s.ledger.UpdateNode(makeNode("a3", "a", "5"))
	s.reconcile(t)
	r := s.report(t, "r")
	require.Empty(t, r.Away)
	require.Equal(t, int64(1), r.Missing.Pods)
}

// TestALostZoneIsRemembered by newer versions of a claim that is spread over all zones, as long as these are the same.
func TestALostZoneIsRemembered(t *testing.T) {
	s := cluster(2, "a", "b", "c")
	d := target("r", 0)
	d.Slots, d.OnZoneLoss = 6, Keep
	s.reconcile(t, d)
	s.ledger.RemoveNode(makeNode("c1", "c", "4"))
	s.ledger.RemoveNode(makeNode("c2", "c", "4"))
	s.reconcile(t)
	d.Claim.Priority = 1
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2}, s.slots(t, "r"))
	require.Equal(t, []string{"c1"}, s.report(t, "r").Away)

	d.Zones = []Zone{{"a", 3}, {"b", 3}}
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 3, "b1": 3}, s.slots(t, "r"))
	d.Zones = nil
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 3, "b1": 3}, s.slots(t, "r"), "c is none of its zones any more")
}

// TestOwnersOutliveTheirNode: a node that goes, or is not ready, and comes back with its pods has their slots again, and
// the slots that stood in for theirs are given up.
func TestOwnersOutliveTheirNode(t *testing.T) {
	for name, lose := range map[string]func(s *scene){
		"deleted":   func(s *scene) { s.ledger.RemoveNode(makeNode("a1", "a", "4")) },
		"not ready": func(s *scene) { s.ledger.UpdateNode(notReady(makeNode("a1", "a", "4"))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(2, "a")
			d := target("r", 0, Zone{"a", 2})
			d.Claim.Use = holds.UseFirst
			s.reconcile(t, d)
			s.consume(t, "w1", "a1", "1", "r")
			s.consume(t, "w2", "a1", "1", "r")
			lose(s)
			s.reconcile(t)
			require.Equal(t, map[string]int{"a2": 2}, s.slots(t, "r"), "others are ready for those that come in their place")
			r := s.report(t, "r")
			require.Equal(t, []int64{2, 0, 0}, []int64{r.Held.Pods, r.Used.Pods, r.Missing.Pods})

			s.ledger.UpdateNode(makeNode("a1", "a", "4"))
			s.reconcile(t)
			require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"), "two are held, not four")
			r = s.report(t, "r")
			require.Equal(t, []int64{2, 2, 0}, []int64{r.Held.Pods, r.Used.Pods, r.Missing.Pods})
		})
	}
}

// TestAGuaranteeIncludesWhoRuns: one that is new, or is enlarged, holds nothing beside the owners that run already, wherever their nodes
// have no room for a slot more.
func TestAGuaranteeIncludesWhoRuns(t *testing.T) {
	s := cluster(3, "a")
	for _, node := range []string{"a1", "a2"} {
		s.add(t, owned(makePod("w-"+node, node, "1"), "r"), makePod("full-"+node, node, "3"))
	}
	d := target("r", 0, Zone{"a", 1})
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 1}, s.slots(t, "r"))
	d.Zones[0].Slots = 3
	d.SameTerms = true
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 1, "a2": 1, "a3": 1}, s.slots(t, "r"))
	r := s.report(t, "r")
	require.Equal(t, []int64{3, 2, 0}, []int64{r.Held.Pods, r.Used.Pods, r.Missing.Pods})

	// Its slots follow an owner that came to run outside of them, and stay when it leaves.
	s.add(t, owned(makePod("outside", "a3", "1"), "r"))
	s.end("full-a2")
	s.add(t, owned(makePod("beside", "a2", "1"), "r"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1, "a2": 1, "a3": 1}, s.slots(t, "r"), "all are used")
	s.end("outside")
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1, "a2": 2}, s.slots(t, "r"))
	s.end("beside")
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1, "a2": 2}, s.slots(t, "r"))
}

// TestAZoneThatIsNotReadyShiftsAllItsSlots, those that owners use among them: their pods are about to come elsewhere.
func TestAZoneThatIsNotReadyShiftsAllItsSlots(t *testing.T) {
	s := cluster(1, "a", "b")
	d := target("r", 0, Zone{"a", 2})
	d.Zones = append(d.Zones, Zone{"b", 1})
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	s.consume(t, "w", "a1", "1", "r")
	s.ledger.UpdateNode(notReady(makeNode("a1", "a", "4")))
	s.reconcile(t)
	require.Equal(t, map[string]int{"b1": 3}, s.slots(t, "r"))
	s.ledger.UpdateNode(makeNode("a1", "a", "4"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 2, "b1": 1}, s.slots(t, "r"))
	require.Equal(t, int64(1), s.report(t, "r").Used.Pods)
}

// TestACordonedZoneKeepsItsOwners: only what is not used is shifted, so that nothing is held twice when the cordon ends.
func TestACordonedZoneKeepsItsOwners(t *testing.T) {
	s := cluster(1, "a", "b")
	d := target("r", 0, Zone{"a", 3})
	d.Zones = append(d.Zones, Zone{"b", 1})
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	s.consume(t, "w1", "a1", "1", "r")
	s.consume(t, "w2", "a1", "1", "r")
	cordoned := makeNode("a1", "a", "4")
	cordoned.Spec.Unschedulable = true
	s.ledger.UpdateNode(cordoned)
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2}, s.slots(t, "r"))
	s.ledger.UpdateNode(makeNode("a1", "a", "4"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 3, "b1": 1}, s.slots(t, "r"))
	require.Equal(t, int64(2), s.report(t, "r").Used.Pods)
}

func TestShortfallsAreInWords(t *testing.T) {
	s := cluster(5, "a")
	for _, name := range []string{"a1", "a2", "a3"} {
		s.add(t, makePod("p-"+name, name, "3900m"))
	}
	n := makeNode("a4", "a", "4")
	n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}
	s.ledger.UpdateNode(n)
	d := target("r", 0, Zone{"a", 5}, Zone{"mars", 1})
	d.OnZoneLoss = Keep
	s.reconcile(t, d)
	r := s.report(t, "r")
	require.Equal(t, "zone a: 4 of 5 slots: 4 nodes short of cpu, 1 tainted; zone mars: 0 of 1 slots: no nodes", r.Shortfalls())
	require.Equal(t, []int64{6, 4, 2}, []int64{r.Desired.Pods, r.Held.Pods, r.Missing.Pods})
	require.True(t, r.Zones[1].Unknown)
	require.False(t, r.FitsNoNode)

	big := target("big", 1, Zone{"a", 1})
	big.Claim.Slot.MilliCPU = 8000
	s.reconcile(t, big)
	r = s.report(t, "big")
	require.True(t, r.FitsNoNode)
	require.Equal(t, "zone a: 0 of 1 slots: 4 nodes too small: cpu, 1 tainted", r.Shortfalls())
}

// TestARollingUpdateDoesNotDrainTheHeadroom: batch pods fill all but the slots and want more. A new replica takes a slot, an old
// one leaves, and its room is collected before a batch pod can have it.
func TestARollingUpdateDoesNotDrainTheHeadroom(t *testing.T) {
	s := cluster(1, "a", "b")
	for _, name := range []string{"a1", "b1"} {
		s.add(t, makePod("old-"+name, name, "1"), makePod("batch-"+name, name, "2"))
	}
	s.reconcile(t, target("r", 0, Zone{"a", 1}, Zone{"b", 1}))
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, s.slots(t, "r"))
	require.Empty(t, s.collect())

	s.consume(t, "new-1", "a1", "1", "r")
	require.Empty(t, s.collect(), "there is no room")
	require.Equal(t, int64(1), s.report(t, "r").Missing.Pods)

	// An old replica of the other zone leaves: its room takes the place of the slot that is used.
	s.end("old-b1")
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]int{"b1": 2}, s.slots(t, "r"))
	r := s.report(t, "r")
	require.Equal(t, []int64{0, 0}, []int64{r.Missing.Pods, r.Used.Pods}, "the new replica is an ordinary pod now")

	// The next pair brings the slots home.
	s.consume(t, "new-2", "b1", "1", "r")
	s.end("old-a1")
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, s.slots(t, "r"))
	require.Empty(t, s.collect())
	require.Empty(t, s.reconcile(t))
}

// TestManyNodesAreRepairedAtOnce: slots leave all nodes that are too full in one pass, those of the lowest priority and the
// youngest claims first.
func TestManyNodesAreRepairedAtOnce(t *testing.T) {
	s := cluster(4, "a")
	older, younger, low := target("older", 0, Zone{"a", 2}), target("younger", 1, Zone{"a", 2}), target("low", -1, Zone{"a", 2})
	older.Claim.Priority, younger.Claim.Priority = 1, 1
	for _, d := range []*Target{&older, &younger, &low} {
		d.PerNode = 1
	}
	s.reconcile(t, older, younger, low)
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, s.slots(t, "older"))
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, s.slots(t, "low"))
	s.add(t, makePod("b1", "a1", "2"), makePod("b2", "a2", "3"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, s.slots(t, "older"))
	require.Equal(t, map[string]int{"a1": 1, "a3": 1}, s.slots(t, "younger"))
	require.Equal(t, map[string]int{"a3": 1, "a4": 1}, s.slots(t, "low"))
	for _, name := range []string{"older", "younger", "low"} {
		r := s.report(t, name)
		require.True(t, r.Missing.IsZero())
		require.Empty(t, r.Full, "all have another place")
	}
}

// TestANodeOfWhichTheViewLagsIsLeftAlone: slots that a cycle placed where it saw room are not given up because the ledger has
// not heard of it yet.
func TestANodeOfWhichTheViewLagsIsLeftAlone(t *testing.T) {
	s := cluster(1, "a")
	s.add(t, makePod("gone", "a1", "4"))
	s.reconcile(t, target("r", 0, Zone{"a", 2}))
	require.Empty(t, s.slots(t, "r"))
	behind := s.view()
	s.end("gone")
	cycleHasMore := s.view()
	require.Equal(t, []types.UID{"r"}, s.planner.Collect(cycleHasMore).Changed)
	lags := func(string) bool { return true }
	require.Empty(t, s.planner.Reconcile(reads(behind), lags).Changed)
	require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"))
	// It is looked at again in the next pass, whatever has changed.
	result := s.planner.Reconcile(reads(behind), func(string) bool { return false })
	require.Equal(t, []GivenUp{{Claim: "r", Node: "a1", Amount: ledger.Resources{MilliCPU: 2000, Pods: 2}}}, result.GivenUp)
	require.Empty(t, s.slots(t, "r"))
	require.Equal(t, []string{"a1"}, s.report(t, "r").Full)
	s.reconcile(t)
	require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"))
}

// TestASlotOnANodeThatTheLedgerDoesNotKnowYet: a cycle may see a new node first. What it placed there is not given up by a pass that
// does not see the node.
func TestASlotOnANodeThatTheLedgerDoesNotKnowYet(t *testing.T) {
	s := cluster(1, "a")
	s.add(t, makePod("full", "a1", "4"))
	s.reconcile(t, target("r", 0, Zone{"a", 1}))
	before := s.view()
	s.ledger.AddNode(makeNode("a2", "a", "4"))
	after := s.view()
	require.Equal(t, []types.UID{"r"}, s.planner.Collect(after).Changed)
	for range 3 {
		require.Empty(t, s.planner.Reconcile(reads(before), nil).Changed)
		require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "r"))
		require.False(t, s.planner.Collect(after).More)
	}
	require.Empty(t, s.reconcile(t), "the ledger knows the node")
	require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "r"))
	require.Empty(t, s.report(t, "r").Missing)
}

// TestASlotOnANodeThatTheLedgerNeverKnew: a node that a cycle saw, and that was gone before the ledger looked, keeps no slot.
func TestASlotOnANodeThatTheLedgerNeverKnew(t *testing.T) {
	s := cluster(1, "a")
	s.add(t, makePod("full", "a1", "4"))
	s.reconcile(t, target("r", 0, Zone{"a", 1}))
	n := makeNode("a2", "a", "4")
	s.ledger.AddNode(n)
	with := s.view()
	s.ledger.RemoveNode(n)
	require.Equal(t, []types.UID{"r"}, s.planner.Collect(with).Changed)
	require.Empty(t, s.reconcile(t))
	require.True(t, s.planner.Collect(s.view()).More)
	require.Equal(t, []types.UID{"r"}, s.reconcile(t))
	require.Empty(t, s.slots(t, "r"))
	require.False(t, s.planner.Collect(s.view()).More)
}

// TestANodeEventLeavesNewSlotsAlone: slots that a cycle has just placed on a pod's room stay, whatever the API server says of the node
// before it says that the pod is gone.
func TestANodeEventLeavesNewSlotsAlone(t *testing.T) {
	for name, change := range map[string]func(*v1.Node){
		"a heartbeat": func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		},
		"a label":      func(n *v1.Node) { n.Labels["some"] = "label" },
		"a soft taint": func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectPreferNoSchedule}} },
		"more CPUs":    func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("4500m") },
		"fewer CPUs":   func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("3500m") },
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster(1, "a")
			gone := makePod("gone", "a1", "4")
			s.add(t, gone)
			s.reconcile(t, target("r", 0, Zone{"a", 2}))
			s.end("gone")
			require.Equal(t, []types.UID{"r"}, s.planner.Collect(s.view()).Changed)

			s.add(t, gone) // the ledger has it still
			node := makeNode("a1", "a", "4")
			change(node)
			s.ledger.UpdateNode(node)
			for range 3 {
				require.Empty(t, s.planner.Reconcile(reads(s.view()), func(string) bool { return true }).Changed)
				require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"))
			}
			s.end("gone")
			require.Empty(t, s.reconcile(t))
			require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"))
		})
	}
}

// TestPerNode: a node has no more slots and owners together than that.
func TestPerNode(t *testing.T) {
	s := cluster(3, "a")
	d := target("r", 0, Zone{"a", 3})
	d.PerNode = 1
	s.add(t, owned(makePod("first", "a1", "1"), "r")) // it runs there already
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a2": 1, "a3": 1}, s.slots(t, "r"))
	require.Equal(t, "zone a: 2 of 3 slots: 3 nodes with as many slots and owners as slotsPerNode allows", s.report(t, "r").Shortfalls())

	s.add(t, owned(makePod("second", "a3", "1"), "r"))
	s.reconcile(t)
	require.Equal(t, map[string]int{"a2": 1}, s.slots(t, "r"))
	s.end("first")
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, s.slots(t, "r"))
	s.add(t, owned(makePod("second", "a3", "1"), "another"))
	require.Equal(t, []types.UID{"r"}, s.collect(), "it is no longer an owner")
	require.Equal(t, map[string]int{"a1": 1, "a2": 1, "a3": 1}, s.slots(t, "r"))

	// The slots of a Guarantee include its owners.
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	s.consume(t, "third", "a2", "1", "r")
	require.Empty(t, s.reconcile(t))
	require.Equal(t, int64(1), s.report(t, "r").Used.Pods)
}

// TestMaxHeldFraction: unused slots take no more of a zone than that, the oldest first; what is used does not count.
func TestMaxHeldFraction(t *testing.T) {
	s := newScene(0.5)
	for _, name := range []string{"a1", "a2"} {
		s.ledger.AddNode(makeNode(name, "a", "4"))
	}
	younger, older := target("younger", 1, Zone{"a", 3}), target("older", 0, Zone{"a", 3})
	older.Claim.Use = holds.UseFirst
	s.reconcile(t, younger, older)
	require.Equal(t, int64(3), s.report(t, "older").Held.Pods)
	r := s.report(t, "younger")
	require.Equal(t, int64(1), r.Held.Pods)
	require.Equal(t, []string{"a"}, r.Capped)
	require.Equal(t, "zone a: 1 of 3 slots: 1 node short of cpu, 1 with room that maxHeldFraction leaves to pods", r.Shortfalls())
	require.Empty(t, s.collect())

	for node, n := range s.slots(t, "older") {
		require.Equal(t, 3, n)
		s.consume(t, "w", node, "1", "older")
	}
	s.reconcile(t)
	require.Equal(t, int64(2), s.report(t, "younger").Held.Pods)
	s.ledger.AddNode(makeNode("a3", "a", "4"))
	s.reconcile(t)
	r = s.report(t, "younger")
	require.Equal(t, int64(3), r.Held.Pods)
	require.Empty(t, r.Capped)
}

// TestManyNominatedPods: however many of the best nodes are promised, the slot finds the one that is not.
func TestManyNominatedPods(t *testing.T) {
	s := cluster(3*tries, "a")
	for i := 1; i < 3*tries; i++ {
		s.nominated[fmt.Sprintf("a%d", i)] = ledger.Resources{MilliCPU: 4000, Pods: 1}
	}
	s.reconcile(t, target("r", 0, Zone{"a", 1}))
	require.Equal(t, map[string]int{fmt.Sprintf("a%d", 3*tries): 1}, s.slots(t, "r"))
}

// TestCycleWaitsForADraft: a cycle that begins while Reconcile asks for nominated pods goes on when the draft is recorded. Else its pod
// would take room that the reservation is about to take.
func TestCycleWaitsForADraft(t *testing.T) {
	s := newScene(1)
	s.ledger.AddNode(makeNode("a1", "a", "4"))
	s.add(t, makePod("all", "a1", "4"))
	s.reconcile(t, target("r", 0, Zone{"a", 1}))
	s.end("all")
	view := s.view()
	cycle := make(chan []holds.NodeStatus)
	s.planner.nominatedOn = func(string) ledger.Resources {
		s.planner.nominatedOn = func(string) ledger.Resources { return ledger.Resources{} }
		require.False(t, s.planner.mu.TryLock())
		begun := make(chan struct{})
		go func() {
			close(begun)
			result := s.planner.Collect(view)
			assert.Empty(t, result.Changed)
			status, _ := s.holds.Status("r")
			cycle <- status
		}()
		<-begun
		return ledger.Resources{}
	}
	s.reconcile(t)
	status := <-cycle
	require.Len(t, status, 1)
	require.Equal(t, 1, status[0].Slots())
}

// TestRoomOfNominatedPodsIsTheirs: room that was promised to a pod of any priority is not taken, and is once the promise ends.
func TestRoomOfNominatedPodsIsTheirs(t *testing.T) {
	s := cluster(1, "a")
	d := target("r", 0, Zone{"a", 4})
	d.Claim.Priority = 5
	s.nominated["a1"] = ledger.Resources{MilliCPU: 2000, Pods: 1}
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 2}, s.slots(t, "r"))
	require.Empty(t, s.collect())
	delete(s.nominated, "a1")
	require.Equal(t, []types.UID{"r"}, s.collect())
	require.Equal(t, map[string]int{"a1": 4}, s.slots(t, "r"))
}

// TestASlotOfAnotherSize: slots get the new size where there is room for it.
func TestASlotOfAnotherSize(t *testing.T) {
	s := cluster(2, "a")
	d := target("r", 0, Zone{"a", 3})
	s.reconcile(t, d)
	d.Claim.Slot = ledger.Resources{MilliCPU: 2000}
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 2, "a2": 1}, s.slots(t, "r"))
	require.Equal(t, int64(4000), s.holds.Node("a1").Of("r").Amount.MilliCPU)
	d.Claim.Slot = ledger.Resources{MilliCPU: 1000}
	s.reconcile(t, d)
	require.Equal(t, map[string]int{"a1": 2, "a2": 1}, s.slots(t, "r"), "nothing moves without a need")

	// Of a slot that an owner uses the rest has to have room, too.
	s = cluster(1, "a")
	d = target("g", 0, Zone{"a", 1})
	d.Claim.Use = holds.UseFirst
	s.reconcile(t, d)
	s.consume(t, "w", "a1", "1", "g")
	s.add(t, makePod("full", "a1", "3"))
	d.Claim.Slot = ledger.Resources{MilliCPU: 2000}
	s.reconcile(t, d)
	require.Empty(t, s.slots(t, "g"))
	require.Equal(t, int64(1), s.report(t, "g").Missing.Pods)
}
