package placement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// seen is what a cycle sees when its cache is ahead of the ledger: some pods have left already.
type seen struct {
	View
	left map[types.UID]ledger.Resources
	node string
}

func (s seen) Generation(i int) int64 {
	if s.Node(i).Name == s.node {
		return s.View.Generation(i) + 1000
	}
	return s.View.Generation(i)
}

func (s seen) Resources(i int) (allocatable, requested ledger.Resources) {
	allocatable, requested = s.View.Resources(i)
	if s.Node(i).Name == s.node {
		for _, r := range s.left {
			requested.Add(&r, -1)
		}
	}
	return allocatable, requested
}

func (s seen) Present(i int, uid types.UID) bool {
	_, left := s.left[uid]
	return !left && s.View.Present(i, uid)
}

// TestRefillBelievesTheCycle: the scheduler's cache has heard of a pod's end and the ledger has not.
func TestRefillBelievesTheCycle(t *testing.T) {
	l := cluster(1, "a", "b")
	add(t, l, makePod("batch-a", "a1", "3"), makePod("leaving", "a1", "1"), makePod("batch-b", "b1", "3"))
	k := keeper(t, l, demand("r", 0, Zone{"a", 2}, Zone{"b", 1}))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"b1": 1}, slots(t, l, "r"))
	require.Empty(t, k.Refill(cycle(l), nil).Changed)

	leaving, _ := l.GetPod("leaving")
	view := seen{View: cycle(l), node: "a1", left: map[types.UID]ledger.Resources{"leaving": leaving.Requests}}
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(view, nil).Changed)
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, slots(t, l, "r"))

	// To the ledger the node is overcommitted until it hears of it, too. No cycle gives the slot up for that,
	// though the reservation lacks another slot.
	for range 3 {
		require.Empty(t, k.Refill(view, nil).Changed)
		// Something happens to another claim, so that the next cycle looks again.
		require.NoError(t, l.SetClaim(ledger.Claim{ID: ledger.ClaimID{Kind: ledger.Gang, UID: "g"}, Name: "PodGroup ml/g"}))
	}
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, slots(t, l, "r"))
	require.NoError(t, k.Set(demand("r", 0, Zone{"a", 1}, Zone{"b", 1})))
	l.RemovePod("leaving")
	require.Empty(t, k.Reconcile(nil).Changed)
	l.RemovePod("batch-a")

	// A consumer that has left for the cycle only is no reason for a second slot in the same room.
	consume(t, l, "user", "b1", "1", "r")
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed, "there is room in the other zone meanwhile")
	require.Equal(t, map[string]int{"a1": 2}, slots(t, l, "r"))
}

// TestAnOlderGangCollectsFirst: a reservation gets no more while an older gang collects, and all that it missed
// once the gang has what it wants.
func TestAnOlderGangCollectsFirst(t *testing.T) {
	l := cluster(2, "a")
	add(t, l, makePod("batch-1", "a1", "4"), makePod("batch-2", "a2", "4"))
	k := keeper(t, l, demand("r", 0, Zone{"a", 1}))
	gang := ledger.Claim{ID: ledger.ClaimID{Kind: ledger.Gang, UID: "g"}, Name: "PodGroup ml/g", Since: t0.Add(-time.Hour), Mode: ledger.Guarantee, Wanted: 1, Filling: true}
	require.NoError(t, l.SetClaim(gang))
	require.Empty(t, k.Reconcile(nil).Changed)
	l.RemovePod("batch-1")
	require.Empty(t, k.Refill(cycle(l), nil).Changed)
	require.Empty(t, k.Reconcile(nil).Changed)
	r, _ := k.Report(id("r"))
	require.Equal(t, "PodGroup ml/g", r.WaitsFor)
	require.Equal(t, "zone a: 0 of 1 slots: 1 node short of cpu, 1 with room that is yet to be taken", r.Shortfalls())

	_, err := l.ChangeHolds(gang.ID, []ledger.Slot{{Node: "a1", Requests: ledger.Resources{MilliCPU: 2000}, Count: 1, For: "m"}})
	require.NoError(t, err)
	// No node has changed since the last look, and there is room all the same.
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"a1": 1}, slots(t, l, "r"))
	r, _ = k.Report(id("r"))
	require.Empty(t, r.WaitsFor)
}

// TestTheOldestTakesWhatItCan, and a younger one what is of no use to it.
func TestTheOldestTakesWhatItCan(t *testing.T) {
	l := cluster(1, "a", "b")
	add(t, l, makePod("batch-a", "a1", "4"), makePod("batch-b", "b1", "4"))
	large := demand("large", 0, Zone{"a", 1})
	large.Slot.MilliCPU = 3000
	k := keeper(t, l, demand("young", 2, Zone{"a", 4}), demand("old", 1, Zone{"a", 1}), large)
	k.Reconcile(nil)
	require.Empty(t, k.Refill(cycle(l), nil).Changed)
	add(t, l, makePod("batch-a", "a1", "2"))
	require.Equal(t, []ledger.ClaimID{id("old"), id("young")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"a1": 1}, slots(t, l, "young"))
	require.Empty(t, slots(t, l, "large"))
}

func TestNominatedPodsKeepTheirRoom(t *testing.T) {
	l := cluster(1, "a")
	add(t, l, makePod("batch", "a1", "3"))
	k := keeper(t, l, demand("r", 0, Zone{"a", 1}))
	nominated := Nominated{"a1": {MilliCPU: 500, Pods: 1}, "unknown": {MilliCPU: 1}}
	require.Empty(t, k.Reconcile(nominated).Changed)
	require.Empty(t, k.Refill(cycle(l), nominated).Changed)
	// The nomination ends, and nothing else happens.
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
}

// TestARestartFindsTheSameNodes: pods have come and gone since the slots were placed, so that the rule alone
// would choose other nodes.
func TestARestartFindsTheSameNodes(t *testing.T) {
	l := cluster(3, "a")
	d := demand("r", 0, Zone{"a", 3})
	d.Prefer = map[string]int{"a3": 2, "a2": 1, "gone": 1}
	k := keeper(t, l, d)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a3": 2, "a2": 1}, slots(t, l, "r"))

	l = cluster(3, "a")
	add(t, l, makePod("batch", "a3", "3"))
	k = keeper(t, l, d)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a3": 1, "a2": 1, "a1": 1}, slots(t, l, "r"), "as far as there is room, and the rest where it fits best")
}

// TestKeepRemembersTheZone: slots without zones are not spread over the zones that are left.
func TestKeepRemembersTheZone(t *testing.T) {
	l := cluster(1, "a", "b", "c")
	d := demand("r", 0)
	d.Slots, d.OnZoneLoss = 6, Keep
	k := keeper(t, l, d)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2, "c1": 2}, slots(t, l, "r"))
	l.RemoveNode(makeNode("c1", "c", "4"))
	require.Empty(t, k.Reconcile(nil).Changed)
	r, _ := k.Report(id("r"))
	require.Equal(t, "zone c: 0 of 2 slots: no nodes", r.Shortfalls())
	require.Equal(t, 2, r.Missing)
	l.AddNode(makeNode("c1", "c", "4"))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2, "c1": 2}, slots(t, l, "r"))
}

func TestADemandChanges(t *testing.T) {
	l := cluster(2, "a", "b")
	d := demand("r", 0, Zone{"a", 4}, Zone{"b", 4})
	k := keeper(t, l, d)
	k.Reconcile(nil)
	consume(t, l, "user", "b1", "1", "r")
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Reconcile(nil).Changed)

	// Fewer, and one zone less: pods that used a slot there become ordinary ones.
	consume(t, l, "other", "b2", "1", "r")
	d.Zones = []Zone{{"a", 2}}
	require.NoError(t, k.Set(d))
	require.Equal(t, []string{"a1", "b1"}, k.Reconcile(nil).Freed, "nothing was unused on b2")
	require.Equal(t, map[string]int{"a1": 2}, slots(t, l, "r"))
	p, _ := l.GetPod("other")
	require.Zero(t, p.Claim)

	// Larger slots stay where there is room for them.
	d.Slot.MilliCPU = 3000
	require.NoError(t, k.Set(d))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, slots(t, l, "r"))

	// It ends: by its deadline, which the Keeper finds out, or by its removal.
	d.Claim.Deadline = t0
	require.NoError(t, k.Set(d))
	require.Len(t, l.ExpireHolds(t0), 1)
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Reconcile(nil).Gone)
	_, known := k.Report(id("r"))
	require.False(t, known)
	d.Claim.Deadline = time.Time{}
	require.NoError(t, k.Set(d))
	k.Reconcile(nil)
	require.Equal(t, []string{"a1", "a2"}, k.Remove(id("r")))
	require.Empty(t, l.Claims())
}

func TestDemandsThatMakeNoSense(t *testing.T) {
	gang := demand("r", 0, Zone{"a", 1})
	gang.Claim.ID.Kind = ledger.Gang
	noFit := demand("r", 0, Zone{"a", 1})
	noFit.Fit = nil
	both := demand("r", 0, Zone{"a", 1})
	both.Slots = 1
	less := demand("r", 0)
	less.Slots = -1
	for want, d := range map[string]Demand{
		"invalid demand: ZoneReservation r is not a reservation's claim":                  gang,
		"invalid demand: ZoneReservation r has no fit":                                    noFit,
		"invalid demand: ZoneReservation r names zones and a number of slots for all":     both,
		"invalid demand: ZoneReservation r wants -1 slots":                                less,
		`invalid demand: ZoneReservation r wants 1 slots in zone "a", or names it twice`:  demand("r", 0, Zone{"a", 2}, Zone{"a", 1}),
		`invalid demand: ZoneReservation r wants -1 slots in zone "a", or names it twice`: demand("r", 0, Zone{"a", -1}),
	} {
		require.EqualError(t, NewKeeper(cluster(1, "a")).Set(d), want)
	}
}

// TestOvercommittedSlotsMove: a pod bound by hand takes the room of slots.
func TestOvercommittedSlotsMove(t *testing.T) {
	l := cluster(2, "a")
	k := keeper(t, l, demand("old", 0, Zone{"a", 2}), demand("young", 1, Zone{"a", 2}))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 2}, slots(t, l, "young"))
	add(t, l, makePod("by-hand", "a1", "1"))
	r, _ := k.Report(id("young"))
	require.Equal(t, []string{"a1"}, r.Overcommitted)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 2}, slots(t, l, "old"), "the older one stays")
	require.Equal(t, map[string]int{"a1": 1, "a2": 1}, slots(t, l, "young"))
	r, _ = k.Report(id("young"))
	require.Empty(t, r.Overcommitted)
}

var _ View = seen{}

// TestMovedNodesCountForTheirNewZone: a node is relabelled.
func TestMovedNodesCountForTheirNewZone(t *testing.T) {
	l := cluster(1, "a", "b")
	l.AddNode(makeNode("a2", "a", "4"))
	k := keeper(t, l, demand("r", 0, Zone{"a", 2}, Zone{"b", 1}))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 2, "b1": 1}, slots(t, l, "r"))
	n := makeNode("a1", "a", "4")
	n.Labels = map[string]string{v1.LabelTopologyZone: "b"}
	l.UpdateNode(n)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a2": 2, "a1": 1}, slots(t, l, "r"), "two move, and the emptiest node gives up first")
}

// TestAZoneThatWasNotSearchedIsSearched: while one zone lacks slots for good, another one comes to lack some,
// and has had room all the time.
func TestAZoneThatWasNotSearchedIsSearched(t *testing.T) {
	l := cluster(2, "b")
	d := demand("r", 0, Zone{"a", 1}, Zone{"b", 1})
	d.OnZoneLoss = Keep
	k := keeper(t, l, d)
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"b1": 1}, slots(t, l, "r"))
	require.Empty(t, k.Refill(cycle(l), nil).Changed)
	consume(t, l, "user", "b1", "4", "r")
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"b1": 1, "b2": 1}, slots(t, l, "r"))
}
