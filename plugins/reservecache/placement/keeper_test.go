package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
)

func TestSlotsGoWhereTheyFitBest(t *testing.T) {
	l := cluster(3, "a", "b")
	add(t, l, makePod("p1", "a2", "2"), makePod("p2", "a3", "3"), makePod("p3", "b1", "1"))
	k := keeper(t, l, demand("r", 0, Zone{"a", 4}, Zone{"b", 2}))
	result := k.Reconcile(nil)
	require.Equal(t, []ledger.ClaimID{id("r")}, result.Changed)
	require.Empty(t, result.Freed)
	// The fullest node that has room comes first.
	require.Equal(t, map[string]int{"a3": 1, "a2": 2, "a1": 1, "b1": 2}, slots(t, l, "r"))
	require.Empty(t, k.Reconcile(nil).Changed, "what is in its place stays there")
}

func TestASpreadIsEven(t *testing.T) {
	l := cluster(2, "c", "a", "b")
	d := demand("r", 0)
	d.Slots = 8
	k := keeper(t, l, d)
	k.Reconcile(nil)
	r, _ := k.Report(id("r"))
	require.Equal(t, []int{3, 3, 2}, []int{r.Zones[0].Held, r.Zones[1].Held, r.Zones[2].Held})

	// A full zone's share goes to the others, and home when there is room again.
	l = cluster(1, "a", "b", "c")
	add(t, l, makePod("big", "b1", "3500m"))
	d.Slots = 6
	k = keeper(t, l, d)
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 3, "c1": 3}, slots(t, l, "r"))
	l.RemovePod("big")
	require.Equal(t, []string{"a1", "c1"}, k.Reconcile(nil).Freed)
	require.Equal(t, map[string]int{"a1": 2, "b1": 2, "c1": 2}, slots(t, l, "r"))
}

func TestSlotsLeaveNodesThatAreUnfit(t *testing.T) {
	taint := func(key string, effect v1.TaintEffect) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: effect}} }
	}
	for name, change := range map[string]func(*v1.Node){
		"cordoned": func(n *v1.Node) { n.Spec.Unschedulable = true },
		"not ready": func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
		},
		"unreachable": taint(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute),
		"tainted":     taint("gpu", v1.TaintEffectNoSchedule),
	} {
		t.Run(name, func(t *testing.T) {
			l := cluster(2, "a")
			k := keeper(t, l, demand("r", 0, Zone{"a", 3}))
			k.Reconcile(nil)
			require.Equal(t, map[string]int{"a1": 3}, slots(t, l, "r"))
			n := makeNode("a1", "a", "4")
			change(n)
			l.UpdateNode(n)
			require.Equal(t, []string{"a1"}, k.Reconcile(nil).Freed)
			require.Equal(t, map[string]int{"a2": 3}, slots(t, l, "r"))
			// No need to go back.
			l.UpdateNode(makeNode("a1", "a", "4"))
			require.Empty(t, k.Reconcile(nil).Changed)
		})
	}
}

func TestAZoneIsLost(t *testing.T) {
	for _, policy := range []LossPolicy{Shift, Keep} {
		l := cluster(2, "a", "b", "c")
		d := demand("r", 0, Zone{"a", 2}, Zone{"b", 2}, Zone{"c", 3})
		d.OnZoneLoss = policy
		k := keeper(t, l, d)
		k.Reconcile(nil)
		l.RemoveNode(makeNode("c1", "c", "4"))
		l.RemoveNode(makeNode("c2", "c", "4"))
		k.Reconcile(nil)
		r, _ := k.Report(id("r"))
		if policy == Keep {
			require.Equal(t, map[string]int{"a1": 2, "b1": 2}, slots(t, l, "r"))
			require.Equal(t, "zone c: 0 of 3 slots: no nodes", r.Shortfalls())
		} else {
			require.Equal(t, map[string]int{"a1": 4, "b1": 3}, slots(t, l, "r"))
			require.Empty(t, r.Shortfalls())
		}
		require.True(t, r.Zones[2].Lost)

		l.AddNode(makeNode("c1", "c", "4"))
		k.Reconcile(nil)
		got := slots(t, l, "r")
		require.Equal(t, 3, got["c1"], "the slots are home")
		require.Equal(t, 2, got["a1"])
		require.Equal(t, 2, got["b1"])
	}
}

func TestShortfallsAreInWords(t *testing.T) {
	l := cluster(5, "a")
	for _, name := range []string{"a1", "a2", "a3"} {
		add(t, l, makePod("p-"+name, name, "3900m"))
	}
	n := makeNode("a4", "a", "4")
	n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}
	l.UpdateNode(n)
	d := demand("r", 0, Zone{"a", 5}, Zone{"mars", 1})
	d.OnZoneLoss = Keep
	k := keeper(t, l, d)
	k.Reconcile(nil)
	r, ok := k.Report(id("r"))
	require.True(t, ok)
	require.Equal(t, "zone a: 4 of 5 slots: 4 nodes short of cpu, 1 tainted; zone mars: 0 of 1 slots: no nodes", r.Shortfalls())
	require.Equal(t, 6, r.Desired)
	require.Equal(t, 4, r.Held)
	require.Equal(t, 2, r.Missing)
	require.True(t, r.Zones[1].Unknown)
	require.False(t, r.FitsNoNode)

	big := demand("big", 1, Zone{"a", 1})
	big.Slot.MilliCPU = 8000
	require.NoError(t, k.Set(big))
	k.Reconcile(nil)
	r, _ = k.Report(id("big"))
	require.True(t, r.FitsNoNode)
	require.Equal(t, "zone a: 0 of 1 slots: 4 nodes too small: cpu, 1 tainted", r.Shortfalls())
}

// TestARollingUpdateDoesNotDrainTheHeadroom: batch pods fill all but the slots and want more. A new replica
// takes a slot, an old one leaves, and its room is collected before a batch pod can have it.
func TestARollingUpdateDoesNotDrainTheHeadroom(t *testing.T) {
	l := cluster(1, "a", "b")
	for _, name := range []string{"a1", "b1"} {
		add(t, l, makePod("old-"+name, name, "1"), makePod("batch-"+name, name, "2"))
	}
	k := keeper(t, l, demand("r", 0, Zone{"a", 1}, Zone{"b", 1}))
	k.Reconcile(nil)
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, slots(t, l, "r"))
	require.Empty(t, k.Refill(cycle(l), nil).Changed)

	consume(t, l, "new-1", "a1", "1", "r")
	require.Empty(t, k.Refill(cycle(l), nil).Changed, "there is no room")
	status, _ := l.Claim(id("r"))
	require.Equal(t, 1, status.Missing)

	// An old replica of the other zone leaves: its room takes the place of the slot that is used.
	l.RemovePod("old-b1")
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"b1": 2}, slots(t, l, "r"))
	status, _ = l.Claim(id("r"))
	require.Zero(t, status.Missing)
	require.Zero(t, status.Used, "the new replica is an ordinary pod now")
	p, _ := l.GetPod("new-1")
	require.Zero(t, p.Claim)

	// The next pair brings the slots home.
	consume(t, l, "new-2", "b1", "1", "r")
	l.RemovePod("old-a1")
	require.Equal(t, []ledger.ClaimID{id("r")}, k.Refill(cycle(l), nil).Changed)
	require.Equal(t, map[string]int{"a1": 1, "b1": 1}, slots(t, l, "r"))
	require.Empty(t, k.Refill(cycle(l), nil).Changed)
	require.Empty(t, k.Reconcile(nil).Changed)
}
