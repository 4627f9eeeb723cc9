package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

var (
	shop  = Claim{ID: ClaimID{Reservation, "shop"}, Name: "ZoneReservation shop", Since: t0, Wanted: 2}
	train = Claim{ID: ClaimID{Gang, "train"}, Name: "PodGroup ml/train", Since: t0.Add(time.Hour), Mode: Guarantee}
)

// cpus returns n slots of that many CPUs each.
func cpus(node string, cpus int64, n int) Slot {
	return Slot{Node: node, Requests: Resources{MilliCPU: cpus * 1000}, Count: n}
}

func forPod(s Slot, uid types.UID) Slot {
	s.For = uid
	return s
}

// mustPlace places slots that have room.
func mustPlace(t *testing.T, l *Ledger, c Claim, slots ...Slot) {
	t.Helper()
	_, err := l.PlaceHolds(c, slots)
	require.NoError(t, err)
}

// admit is Reserve in a cycle that sees what the ledger does.
func admit(l *Ledger, uid types.UID, node, cpu string, who Asker) (ClaimID, error) {
	s := NewSnapshot()
	l.UpdateSnapshot(s)
	n := s.Node(node)
	return l.AssumePodOnHold(makePod(string(uid), "", cpu, "1Gi"), node, &Admission{
		Asker: who, Requested: n.Requested, Allocatable: n.Allocatable,
		Present: func(uid types.UID) bool {
			for _, pod := range n.Pods {
				if pod.UID == uid {
					return true
				}
			}
			return false
		},
	}, t0)
}

// on returns what a claim holds on a node: slots and used ones.
func on(t *testing.T, l *Ledger, c Claim, node string) [2]int {
	t.Helper()
	s, ok := l.Claim(c.ID)
	require.True(t, ok)
	for _, h := range s.Holds {
		if h.Node == node {
			return [2]int{h.Slots, len(h.Consumers)}
		}
	}
	return [2]int{}
}

func twoNodes() *Ledger {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	l.AddNode(makeNode("n2", "b"))
	return l
}

func TestHoldsAreAllOrNone(t *testing.T) {
	l := twoNodes()
	mustAdd(t, l, makePod("p", "n2", "30", "1Gi"), PodAdded)
	_, err := l.PlaceHolds(shop, []Slot{cpus("n1", 2, 2), cpus("n2", 2, 2)})
	require.ErrorIs(t, err, ErrNoRoom)
	require.EqualError(t, err, `no room for the slot of ZoneReservation shop: node "n2" lacks cpu`)
	require.Empty(t, l.Claims())

	for _, c := range []struct {
		slots []Slot
		want  string
	}{
		{[]Slot{cpus("n3", 1, 1)}, `no room for the slot of ZoneReservation shop: node "n3" is gone`},
		{[]Slot{cpus("n1", 1, 1), cpus("n1", 2, 1)}, `invalid hold: ZoneReservation shop names node "n1" twice`},
		{[]Slot{cpus("n1", -1, 1)}, `invalid hold: ZoneReservation shop wants less than nothing of cpu`},
		{[]Slot{cpus("n1", 1, -1)}, `invalid hold: ZoneReservation shop wants -1 slots on node "n1"`},
		{[]Slot{forPod(cpus("n1", 1, 2), "m")}, `invalid hold: ZoneReservation shop wants 2 slots on node "n1"`},
		{[]Slot{forPod(cpus("n1", 1, 1), "m"), forPod(cpus("n2", 1, 1), "m")}, `invalid hold: ZoneReservation shop wants a second slot for the pod m`},
	} {
		_, err := l.PlaceHolds(shop, c.slots)
		require.EqualError(t, err, c.want)
	}
	_, err = l.PlaceHolds(Claim{Name: "nobody"}, nil)
	require.EqualError(t, err, `invalid hold: the claim "nobody" has no identity`)
}

func TestRoomIsWhatPodsAndOthersLeave(t *testing.T) {
	l := twoNodes()
	mustPlace(t, l, shop, cpus("n1", 10, 2))
	_, err := l.PlaceHolds(train, []Slot{cpus("n1", 13, 1)})
	require.ErrorIs(t, err, ErrNoRoom)
	mustPlace(t, l, train, cpus("n1", 12, 1))

	// A gang of a higher priority stands for its pods, which may take the space. The reservation is told.
	l.TakeNews()
	urgent := train
	urgent.Priority = 1
	mustPlace(t, l, urgent, cpus("n1", 13, 1))
	s, _ := l.Claim(shop.ID)
	require.Equal(t, 1, s.Holds[0].Excess)
	require.Equal(t, []News{{Claim: train.ID, Changed: true}, {Claim: shop.ID, Changed: true}}, l.TakeNews())

	// A reservation never takes what another one holds.
	other := Claim{ID: ClaimID{Reservation, "other"}, Name: "other", Priority: 9}
	_, err = l.PlaceHolds(other, []Slot{cpus("n1", 1, 1)})
	require.ErrorIs(t, err, ErrNoRoom)
	// One that gives up some of its slots needs no room for the rest.
	_, err = l.PlaceHolds(shop, []Slot{cpus("n1", 10, 1)})
	require.NoError(t, err)
}

func TestTheCycleJudgesTheRoom(t *testing.T) {
	l := twoNodes()
	mustAdd(t, l, makePod("gone", "n1", "31", "1Gi"), PodAdded)
	slot := cpus("n1", 4, 1)
	_, err := l.PlaceHolds(shop, []Slot{slot})
	require.ErrorIs(t, err, ErrNoRoom)
	// The cycle sees already that the pod has left.
	slot.Seen = &Seen{Allocatable: Resources{MilliCPU: 32000, Pods: 110}, Present: func(types.UID) bool { return false }}
	mustPlace(t, l, shop, slot)
}

func TestConsumersStayWithTheirSlots(t *testing.T) {
	l := twoNodes()
	mustPlace(t, l, shop, cpus("n1", 4, 3))
	owner := Asker{Claims: []ClaimID{shop.ID}, Use: UseFirst}
	for _, name := range []types.UID{"p1", "p2", "p3"} {
		got, err := admit(l, name, "n1", "4", owner)
		require.NoError(t, err)
		require.Equal(t, shop.ID, got)
	}
	mustAdd(t, l, makePod("p1", "n1", "4", "1Gi"), PodConfirmed)
	require.Equal(t, [2]int{3, 3}, on(t, l, shop, "n1"), "Add keeps the consumer")

	mustPlace(t, l, shop, cpus("n1", 4, 3), cpus("n2", 4, 1))
	require.Equal(t, [2]int{3, 3}, on(t, l, shop, "n1"))

	// Fewer slots than consumers: the oldest become ordinary pods.
	mustPlace(t, l, shop, cpus("n1", 4, 2))
	require.Equal(t, [2]int{2, 2}, on(t, l, shop, "n1"))
	p, _ := l.GetPod("p1")
	require.Zero(t, p.Claim)
	_, err := l.ChangeHolds(shop.ID, []Slot{{Node: "n1", Requests: cpus("", 4, 0).Requests, Count: 2, Settle: 1}})
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 1}, on(t, l, shop, "n1"))
	p, _ = l.GetPod("p3")
	require.Equal(t, shop.ID, p.Claim)

	// A consumer that moves, is forgotten or removed makes its slot unused again.
	mustAdd(t, l, makePod("p3", "n2", "4", "1Gi"), PodMoved)
	require.Equal(t, [2]int{2, 0}, on(t, l, shop, "n1"))
	for name, leave := range map[types.UID]func(){
		"forgotten": func() { l.ForgetPod("forgotten", "n1") },
		"removed":   func() { l.RemovePod("removed") },
		"finished": func() {
			pod := makePod("finished", "n1", "4", "1Gi")
			pod.Status.Phase = "Succeeded"
			mustAdd(t, l, pod, PodRemoved)
		},
		"replaced": func() {
			_, err := l.UpdatePod(makePod("replaced", "n1", "4", "1Gi"), makePod("another", "", "4", "1Gi"))
			require.NoError(t, err)
		},
	} {
		_, err := admit(l, name, "n1", "4", owner)
		require.NoError(t, err)
		require.Equal(t, [2]int{2, 1}, on(t, l, shop, "n1"))
		leave()
		require.Equal(t, [2]int{2, 0}, on(t, l, shop, "n1"), name)
	}
}

func TestASlotOfItsOwnIsTheMembersByBeingThere(t *testing.T) {
	l := twoNodes()
	mustAdd(t, l, makePod("m1", "n1", "4", "1Gi"), PodAdded)
	mustPlace(t, l, train, forPod(cpus("n1", 30, 1), "m1"), forPod(cpus("n2", 30, 1), "m2"))
	require.Equal(t, [2]int{1, 1}, on(t, l, train, "n1"), "the member was there before its slot, which needs no room then")

	// Another member of the gang has no right to it, and the member itself has.
	gang := Asker{Claims: []ClaimID{train.ID}}
	_, err := admit(l, "m3", "n2", "4", gang)
	require.ErrorIs(t, err, ErrHeld)
	require.EqualError(t, err, `the room is held by PodGroup ml/train: node "n2" lacks cpu`)
	got, err := admit(l, "m2", "n2", "30", gang)
	require.NoError(t, err)
	require.Equal(t, train.ID, got)
	require.Equal(t, [2]int{1, 1}, on(t, l, train, "n2"))
	l.ForgetPod("m2", "n2")

	// However it comes there.
	mustAdd(t, l, makePod("m2", "n2", "4", "1Gi"), PodAdded)
	require.Equal(t, [2]int{1, 1}, on(t, l, train, "n2"))
	_, err = l.PlaceHolds(Claim{ID: ClaimID{Gang, "other"}, Name: "other"}, []Slot{forPod(cpus("n1", 1, 1), "m2")})
	require.ErrorIs(t, err, ErrBadSlot)
	require.Equal(t, []string(nil), l.ReleaseMember(train.ID, "m2"), "nothing was held beside the pod")
	l.RemovePod("m1")
	require.Equal(t, []string{"n1"}, l.ReleaseHolds(train.ID))
}

func TestANodeGoesWithItsHolds(t *testing.T) {
	l := twoNodes()
	mustPlace(t, l, shop, cpus("n1", 4, 2), cpus("n2", 4, 1))
	_, err := admit(l, "p", "n1", "4", Asker{Claims: []ClaimID{shop.ID}, Use: UseFirst})
	require.NoError(t, err)
	l.TakeNews()
	l.RemoveNode(makeNode("n1", "a"))
	require.Equal(t, []News{{Claim: shop.ID, Lost: []Loss{{Node: "n1", Zone: "a", Slots: 2, Used: 1}}}}, l.TakeNews())
	require.Empty(t, l.TakeNews())
	s, _ := l.Claim(shop.ID)
	require.Equal(t, []int{1, 0, 1}, []int{s.Slots, s.Used, s.Missing})
	require.Equal(t, Stats{Pods: 1, AssumedPods: 1, Nodes: 1, Ghosts: 1, OldestAssumed: t0}, l.Stats(), "the pod stays")

	// Neither the node nor the pod brings the slots back.
	l.AddNode(makeNode("n1", "a"))
	mustAdd(t, l, makePod("p", "n1", "4", "1Gi"), PodConfirmed)
	require.Equal(t, [2]int{}, on(t, l, shop, "n1"))
}

func TestOvercommittedNodesAreReported(t *testing.T) {
	low := Claim{ID: ClaimID{Reservation, "low"}, Name: "low", Priority: -1, Since: t0.Add(-time.Hour), Wanted: 1}
	fill := map[string]func(l *Ledger){
		"a pod bound by hand": func(l *Ledger) { mustAdd(t, l, makePod("p", "n1", "26", "1Gi"), PodAdded) },
		"a higher priority": func(l *Ledger) {
			got, err := admit(l, "p", "n1", "26", Asker{Priority: 1})
			require.NoError(t, err)
			require.Zero(t, got)
		},
		"the node shrinks": func(l *Ledger) {
			n := makeNode("n1", "a")
			n.Status.Allocatable = list("cpu", "6", "memory", "64Gi", "pods", "110")
			l.UpdateNode(n)
		},
	}
	for name, event := range fill {
		t.Run(name, func(t *testing.T) {
			l := twoNodes()
			mustPlace(t, l, shop, cpus("n1", 4, 2))
			mustPlace(t, l, low, cpus("n1", 4, 1))
			l.TakeNews()
			event(l)
			// 6 CPUs are left for 12: the one of lower priority has no room, and one of two of the other.
			s, _ := l.Claim(shop.ID)
			require.Equal(t, 1, s.Holds[0].Excess)
			s, _ = l.Claim(low.ID)
			require.Equal(t, 1, s.Holds[0].Excess)
			require.Equal(t, []News{{Claim: low.ID, Changed: true}, {Claim: shop.ID, Changed: true}}, l.TakeNews())
			l.RemovePod("p")
			l.UpdateNode(makeNode("n1", "a"))
			s, _ = l.Claim(shop.ID)
			require.Zero(t, s.Holds[0].Excess)
			require.Len(t, l.TakeNews(), 2)
		})
	}
}

func TestTheQueueIsByAge(t *testing.T) {
	l := twoNodes()
	starving := train
	starving.Filling, starving.Wanted = true, 2
	require.NoError(t, l.SetClaim(shop))
	require.NoError(t, l.SetClaim(starving))
	young := Claim{ID: ClaimID{Gang, "young"}, Name: "PodGroup ml/young", Since: t0.Add(2 * time.Hour), Mode: Guarantee, Wanted: 2, Filling: true}
	late := Claim{ID: ClaimID{Reservation, "late"}, Name: "late", Since: t0.Add(3 * time.Hour), Wanted: 1}
	require.NoError(t, l.SetClaim(young))
	require.NoError(t, l.SetClaim(late))
	require.Equal(t, []ClaimID{shop.ID, train.ID, young.ID, late.ID}, l.Queue())

	// The older gang may take what there is; the younger gets all that it wants or nothing.
	_, err := l.ChangeHolds(train.ID, []Slot{forPod(cpus("n1", 4, 1), "m1")})
	require.NoError(t, err)
	_, err = l.ChangeHolds(young.ID, []Slot{forPod(cpus("n1", 4, 1), "y1")})
	require.ErrorIs(t, err, ErrNotItsTurn)
	require.EqualError(t, err, "an older claim collects capacity: PodGroup ml/train")
	require.True(t, l.MayCollect(shop.ID))
	require.False(t, l.MayCollect(late.ID))
	require.Equal(t, "PodGroup ml/train", l.WaitsFor(late.ID))
	_, err = l.ChangeHolds(young.ID, []Slot{forPod(cpus("n1", 4, 1), "y1"), forPod(cpus("n1", 4, 1), "y2")})
	require.NoError(t, err)

	// Once it has all, nobody waits for it.
	_, err = l.ChangeHolds(train.ID, []Slot{forPod(cpus("n2", 4, 1), "m2")})
	require.NoError(t, err)
	require.Equal(t, []ClaimID{shop.ID, late.ID}, l.Queue())
	require.True(t, l.MayCollect(late.ID))
	require.Empty(t, l.WaitsFor(late.ID))
}

func TestHoldsEnd(t *testing.T) {
	l := twoNodes()
	ends := train
	ends.Deadline = t0.Add(time.Minute)
	mustPlace(t, l, ends, cpus("n1", 4, 1), cpus("n2", 4, 1))
	mustPlace(t, l, shop, cpus("n1", 4, 1))
	next, ok := l.NextDeadline()
	require.True(t, ok)
	require.Equal(t, ends.Deadline, next)
	require.Empty(t, l.ExpireHolds(t0.Add(59*time.Second)))
	require.Equal(t, []Released{{Claim: ends, Nodes: []string{"n1", "n2"}}}, l.ExpireHolds(ends.Deadline))
	_, ok = l.NextDeadline()
	require.False(t, ok)
	require.Equal(t, []string{"n1"}, l.ReleaseNode(shop.ID, "n1"))
	require.Empty(t, l.ReleaseHolds(ClaimID{Gang, "unknown"}))
	var v HoldsView
	l.UpdateHoldsView(&v)
	require.True(t, v.Empty())
}

// TestAForgottenNodeLeavesTheView: its holds went first, then the node, and no view was taken in between.
func TestAForgottenNodeLeavesTheView(t *testing.T) {
	l := twoNodes()
	mustPlace(t, l, shop, cpus("n1", 4, 1), cpus("n2", 4, 1))
	var v HoldsView
	require.Equal(t, 2, l.UpdateHoldsView(&v))
	require.ElementsMatch(t, []string{"n1", "n2"}, v.Changed())
	l.ReleaseNode(shop.ID, "n1")
	l.RemoveNode(makeNode("n1", "a"))
	require.Equal(t, 1, l.UpdateHoldsView(&v))
	require.Nil(t, v.Node("n1"))
	require.Equal(t, []string{"n1"}, v.Changed())
	require.NotNil(t, v.Node("n2"))
	require.Zero(t, l.UpdateHoldsView(&v))
}
