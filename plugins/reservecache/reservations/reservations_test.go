package reservations

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestAStandbyPlacesNothing(t *testing.T) {
	w := newWorld(t, nil, node("n1", "a", "4"))
	w.api.apply(reservation("r", 2, nil))
	require.NotNil(t, w.OwnerOf(pod("p", "", "1")), "it knows whom pods belong to")
	require.Never(t, func() bool {
		w.clock.Step(time.Second)
		return len(w.slots("r")) > 0 || w.api.stored("uid-r").Status.Conditions != nil
	}, 200*time.Millisecond, 5*time.Millisecond)

	close(w.lead)
	w.until(t, func() bool { return w.slots("r")["n1"] == 2 })
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	require.Equal(t, v1alpha1.SlotCounts{Desired: 2, Held: 2}, w.api.stored("uid-r").Status.Slots)
}

// TestTheFirstCycleFindsTheSlotsPlaced: a process that runs a scheduling cycle leads, whether it has been told or not.
func TestTheFirstCycleFindsTheSlotsPlaced(t *testing.T) {
	objects := map[types.UID]*v1alpha1.ZoneReservation{"uid-r": reservation("r", 1, nil)}
	w := newWorld(t, objects, node("n1", "a", "4"))
	w.AwaitStart(t.Context())
	require.Equal(t, map[string]int{"n1": 1}, w.slots("r"))
}

func TestTheFirstCycleWaitsWithABound(t *testing.T) {
	w := newWorld(t, nil, node("n1", "a", "4"))
	w.api.settled = false
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.AwaitStart(t.Context())
	}()
	w.until(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	require.GreaterOrEqual(t, w.clock.Since(t0), startBound)
}

// TestSlotsComeBackToTheirNodes: after a restart the slots are where the status says, not where they would go else.
func TestSlotsComeBackToTheirNodes(t *testing.T) {
	obj := reservation("r", 2, nil)
	nodes := []*v1.Node{node("n1", "a", "4"), node("n2", "a", "8"), node("n3", "a", "8")}
	w := newWorld(t, map[types.UID]*v1alpha1.ZoneReservation{obj.UID: obj}, nodes...)
	w.AwaitStart(t.Context())
	require.Equal(t, map[string]int{"n1": 2}, w.slots("r"), "by itself it takes the smallest")

	obj = obj.DeepCopy()
	obj.Status.Zones = []v1alpha1.ReservationZoneStatus{{Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n2", Slots: 1}, {Name: "n3", Slots: 1}}}}
	w = newWorld(t, map[types.UID]*v1alpha1.ZoneReservation{obj.UID: obj}, nodes...)
	w.AwaitStart(t.Context())
	require.Equal(t, map[string]int{"n2": 1, "n3": 1}, w.slots("r"))
}

func TestWithoutTheDefinitionNothingIsHeld(t *testing.T) {
	w := leading(t, node("n1", "a", "4"))
	w.api.apply(reservation("r", 2, nil))
	w.until(t, func() bool { return w.slots("r")["n1"] == 2 })
	w.api.onChange(false)
	w.until(t, func() bool { return len(w.slots("r")) == 0 })
	require.False(t, w.Any())
	require.Nil(t, w.OwnerOf(pod("p", "", "1")))
	w.api.onChange(true)
	w.until(t, func() bool { return w.slots("r")["n1"] == 2 })
}

func TestADeletedReservationFreesAndWakes(t *testing.T) {
	w := leading(t, node("n1", "a", "4"))
	w.api.apply(reservation("r", 2, nil))
	w.until(t, func() bool { return w.slots("r")["n1"] == 2 })
	before, _ := w.woken.counts()
	w.api.delete("uid-r")
	w.until(t, func() bool { freed, _ := w.woken.counts(); return freed > before && len(w.slots("r")) == 0 })
}

func TestExpiryFreesAndWakesAtItsTime(t *testing.T) {
	w := leading(t, node("n1", "a", "4"))
	w.api.apply(reservation("r", 2, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Minute} }))
	w.until(t, func() bool { return w.slots("r")["n1"] == 2 })
	w.untilCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionFalse, v1alpha1.ReasonNotExpired)
	before, _ := w.woken.counts()
	w.until(t, func() bool { freed, _ := w.woken.counts(); return freed > before && len(w.slots("r")) == 0 })
	require.WithinDuration(t, t0.Add(time.Minute), w.clock.Now(), 15*time.Second)
	require.Contains(t, w.untilCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionTrue, v1alpha1.ReasonExpired), "2026-03-01T12:01:00Z")
	require.Nil(t, w.OwnerOf(pod("p", "", "1")))
}

func TestATimeToLiveThatIsOver(t *testing.T) {
	w := leading(t, node("n1", "a", "4"))
	w.api.apply(reservation("r", 2, func(r *v1alpha1.ZoneReservation) {
		r.CreationTimestamp.Time = t0.Add(-time.Hour)
		r.Spec.TTL = &metav1.Duration{Duration: time.Minute}
	}))
	w.untilCondition(t, "r", v1alpha1.ConditionExpired, metav1.ConditionTrue, v1alpha1.ReasonExpired)
	require.Empty(t, w.slots("r"))
}

func TestConditionsOfWhatCanNotBe(t *testing.T) {
	w := leading(t, node("n1", "a", "4"))
	w.api.apply(reservation("invalid", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Owners = nil }))
	w.api.apply(reservation("large", 1, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slot.Requests[v1.ResourceCPU] = resource.MustParse("5")
		r.Spec.Owners[0].Namespace = "large"
	}))
	w.api.apply(reservation("mars", 0, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "mars", Slots: 1}}
		r.Spec.OnZoneLoss = v1alpha1.ZoneLossKeep
		r.Spec.Owners[0].Namespace = "mars"
	}))
	w.api.apply(reservation("one", 1, nil))
	w.api.apply(reservation("two", 1, nil))

	require.Contains(t, w.untilCondition(t, "invalid", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid), "spec.owners")
	require.Equal(t, metav1.ConditionFalse, w.condition("invalid", v1alpha1.ConditionReady).Status)
	require.Contains(t, w.untilCondition(t, "large", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFitsNoNode), "spec.slot")
	require.Contains(t, w.untilCondition(t, "mars", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonZonesWithoutNodes), "mars")
	require.Equal(t, metav1.ConditionFalse, w.condition("mars", v1alpha1.ConditionReady).Status)
	require.Contains(t, w.untilCondition(t, "two", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonOwnersOverlap), "one")
	w.untilCondition(t, "one", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	for _, name := range []string{"one", "two"} {
		w.untilCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	}

	// What was wrong with one reservation ends with the other.
	w.api.delete("uid-one")
	w.untilCondition(t, "two", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}

func TestOvercommitmentIsSaidAndMended(t *testing.T) {
	w := leading(t, node("n1", "a", "2"))
	w.api.apply(reservation("r", 2, nil))
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)

	// Another scheduler binds a pod, and there is no other place.
	_, err := w.ledger.AddPod(pod("stranger", "n1", "1"))
	require.NoError(t, err)
	w.PodsChanged(false)
	w.until(t, func() bool { return w.slots("r")["n1"] == 1 })
	require.Contains(t, w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling), "zone a: 1 of 2 slots: 1 node short of cpu")
	require.Contains(t, w.untilCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonOvercommitted), "node n1")
	require.InDelta(t, 0, w.unfilledFor(ptr.To(w.api.stored("uid-r").Status)).Seconds(), 60)
	w.clock.Step(time.Hour)
	require.InDelta(t, 3600, w.unfilledFor(ptr.To(w.api.stored("uid-r").Status)).Seconds(), 60)

	w.ledger.AddNode(node("n2", "a", "2"))
	w.NodesChanged()
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	require.Equal(t, map[string]int{"n1": 1, "n2": 1}, w.slots("r"))
	w.untilCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsDesired)
	require.Zero(t, w.unfilledFor(ptr.To(w.api.stored("uid-r").Status)))

	// Where there is room elsewhere, an Event is all that tells.
	_, err = w.ledger.AddPod(pod("another", "n1", "1"))
	require.NoError(t, err)
	w.PodsChanged(false)
	w.until(t, func() bool { return w.slots("r")["n2"] == 2 })
	w.until(t, func() bool {
		select {
		case e := <-w.events.Events:
			return e == "Warning Overcommitted 1 of 1 slots on node n1 have lost their room to pods of a higher priority or of another scheduler, or the node has shrunk"
		default:
			return false
		}
	})
}

// emptyNode is a cycle's view of one node without pods.
type emptyNode struct{ node *v1.Node }

func (emptyNode) Len() int                    { return 1 }
func (emptyNode) Generation(int) int64        { return 1 }
func (n emptyNode) Node(int) *v1.Node         { return n.node }
func (emptyNode) Present(int, types.UID) bool { return false }
func (n emptyNode) Resources(int) (allocatable, requested ledger.Resources) {
	return ledger.ResourcesOf(n.node.Status.Allocatable), ledger.Resources{}
}

// TestASlotThatTheLedgerTrailsStays: a cycle sees that a pod has gone before the ledger hears of it. A slot in its place
// is overcommitted in the ledger for a moment, and must not be given up to a pod that waits.
func TestASlotThatTheLedgerTrailsStays(t *testing.T) {
	n1 := node("n1", "a", "1")
	w := leading(t, n1)
	_, err := w.ledger.AddPod(pod("leaving", "n1", "1"))
	require.NoError(t, err)
	w.api.apply(reservation("r", 1, nil))
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
	w.Refill(emptyNode{n1})
	require.Equal(t, map[string]int{"n1": 1}, w.slots("r"))
	status, _ := w.ledger.Claim(ledger.ClaimID{Kind: ledger.Reservation, UID: "uid-r"})
	require.Equal(t, 1, status.Holds[0].Excess)

	began := w.clock.Now()
	w.until(t, func() bool {
		w.PodsChanged(true)
		require.Equal(t, map[string]int{"n1": 1}, w.slots("r"))
		return w.clock.Since(began) > settle/2
	})
	w.ledger.RemovePod("leaving")
	w.PodsChanged(true)
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	require.Equal(t, map[string]int{"n1": 1}, w.slots("r"))
	require.Equal(t, metav1.ConditionFalse, w.condition("r", v1alpha1.ConditionDegraded).Status)
}

// TestAStandbyFollowsTheLeader: what it prefers when it takes over is what the leader held last.
func TestAStandbyFollowsTheLeader(t *testing.T) {
	obj := reservation("r", 1, nil)
	w := newWorld(t, map[types.UID]*v1alpha1.ZoneReservation{obj.UID: obj}, node("n1", "a", "4"), node("n2", "a", "8"))
	w.api.mu.Lock()
	moved := w.api.objects["uid-r"].DeepCopy()
	moved.Status.Zones = []v1alpha1.ReservationZoneStatus{{Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n2", Slots: 1}}}}
	w.api.storeLocked(moved)
	w.api.mu.Unlock()
	close(w.lead)
	w.until(t, func() bool { return len(w.slots("r")) > 0 })
	require.Equal(t, map[string]int{"n2": 1}, w.slots("r"))
}

func TestAConflictIsTriedAgain(t *testing.T) {
	w := leading(t, node("n1", "a", "2"))
	w.api.mu.Lock()
	w.api.conflict = true
	w.api.mu.Unlock()
	w.api.apply(reservation("r", 1, nil))
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
	w.until(t, func() bool { return len(w.events.Events) == 1 })
	require.Equal(t, "Normal AllSlotsHeld 1 unused slots are held", <-w.events.Events)

	// Once it is right, nobody writes.
	w.api.mu.Lock()
	writes := w.api.writes
	w.api.mu.Unlock()
	require.Never(t, func() bool {
		w.clock.Step(time.Second)
		w.PodsChanged(true)
		w.api.mu.Lock()
		defer w.api.mu.Unlock()
		return w.api.writes > writes
	}, 200*time.Millisecond, 5*time.Millisecond)
}

// TestSlotsAreBesideWhatIsNominated: the room that victims of preemption leave belongs to the pod for which they went.
func TestSlotsAreBesideWhatIsNominated(t *testing.T) {
	w := newWorld(t, nil, node("n1", "a", "1"))
	nominated := pod("nominated", "", "1")
	nominated.Status.NominatedNodeName = "n1"
	w.PodSeen(nominated)
	close(w.lead)
	w.api.apply(reservation("r", 1, nil))
	w.untilCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
	require.Empty(t, w.slots("r"))

	// It is assumed, and waits to be bound: it is in the ledger then and counts once.
	require.NoError(t, w.ledger.AssumePod(nominated, "n1", t0))
	require.Empty(t, w.nominated.onNodes(w.ledger))
	require.True(t, w.ledger.ForgetPod("nominated", "n1"))
	require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 1}, w.nominated.onNodes(w.ledger)["n1"])
	w.PodGone("nominated")
	w.PodsChanged(true)
	w.until(t, func() bool { return w.slots("r")["n1"] == 1 })
}

func TestWhichChangesOfNodesMatter(t *testing.T) {
	base := node("n1", "a", "2")
	base.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	for name, tc := range map[string]struct {
		change func(*v1.Node)
		want   bool
	}{
		"heartbeat": {func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(t0) }, false},
		"images":    {func(n *v1.Node) { n.Status.Images = []v1.ContainerImage{{Names: []string{"x"}}} }, false},
		"not ready": {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown }, true},
		"cordoned":  {func(n *v1.Node) { n.Spec.Unschedulable = true }, true},
		"tainted":   {func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}} }, true},
		"relabeled": {func(n *v1.Node) { n.Labels["disk"] = "ssd" }, true},
		"smaller":   {func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("1") }, true},
		"deleted":   {func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: t0} }, true},
		"replaced":  {func(n *v1.Node) { n.UID = "other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := base.DeepCopy()
			tc.change(changed)
			require.Equal(t, tc.want, TellsOfSlots(base, changed))
		})
	}
}
