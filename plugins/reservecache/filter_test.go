package reservecache

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// holdingState is the state of a cycle with the plugin's data.
type holdingState struct {
	cycleState

	data fwk.StateData
}

func (s *holdingState) Read(fwk.StateKey) (fwk.StateData, error) {
	if s.data == nil {
		return nil, fwk.ErrNotFound
	}
	return s.data, nil
}

func (s *holdingState) Write(_ fwk.StateKey, data fwk.StateData) { s.data = data }

var (
	web   = ledger.Claim{ID: ledger.ClaimID{Kind: ledger.Reservation, UID: "web"}, Name: "ZoneReservation web"}
	train = ledger.Claim{ID: ledger.ClaimID{Kind: ledger.Gang, UID: "train"}, Name: "PodGroup ml/train"}
)

// hold has slots of one CPU held on n1, which has eight CPUs.
func (f *fixture) hold(t testing.TB, claim ledger.Claim, slots int, member types.UID) {
	t.Helper()
	_, err := f.plugin.running.ledger.PlaceHolds(claim, []ledger.Slot{{Node: "n1", Requests: ledger.Resources{MilliCPU: 1000}, Count: slots, For: member}})
	require.NoError(t, err)
}

// filter runs PreFilter and Filter for a pod on n1 with the given pods.
func (f *fixture) filter(t *testing.T, pod *v1.Pod, pods ...*v1.Pod) *fwk.Status {
	t.Helper()
	info := snapshotOf(1, makeNode("n1"), pods...)
	state := &holdingState{}
	_, status := f.plugin.PreFilter(t.Context(), state, pod, []fwk.NodeInfo{info})
	if status.IsSkip() {
		return nil
	}
	require.Nil(t, status)
	return f.plugin.Filter(t.Context(), state, pod, info)
}

// onN1 makes pods that are on n1 and takes them into the ledger.
func (f *fixture) onN1(t *testing.T, n int, priority int32) []*v1.Pod {
	t.Helper()
	pods := make([]*v1.Pod, 0, n)
	for i := range n {
		p := makePod(fmt.Sprintf("pod-%d", i), "n1")
		p.Spec.Priority = &priority
		_, err := f.plugin.running.ledger.AddPod(p)
		require.NoError(t, err)
		pods = append(pods, p)
	}
	return pods
}

func TestFilterNamesWhoHoldsTheRoom(t *testing.T) {
	for _, claim := range []ledger.Claim{web, train} {
		t.Run(claim.Name, func(t *testing.T) {
			f := newFixture(t, nil, makeNode("n1")).start(t)
			f.hold(t, claim, 1, "")
			pods := f.onN1(t, 6, 0)
			require.Nil(t, f.filter(t, makePod("p", ""), pods...))

			seventh := makePod("seventh", "n1")
			status := f.filter(t, makePod("p", ""), append(pods, seventh)...)
			require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "no pod has a lower priority")
			require.Equal(t, "node(s) had room only in what is held for "+claim.Name, status.Message())
		})
	}
}

// TestFilterTellsPreemptionWhereToLook: victims help where their room is not held.
func TestFilterTellsPreemptionWhereToLook(t *testing.T) {
	priority := int32(10)
	high := makePod("high", "")
	high.Spec.Priority = &priority
	protected := web
	protected.Priority = 1000

	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, protected, 1, "")
	require.Equal(t, fwk.Unschedulable, f.filter(t, high, f.onN1(t, 7, 0)...).Code())

	f = newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, protected, 8, "")
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high).Code())

	// The victim's slot is held, too, once it is gone.
	f = newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, protected, 8, "")
	victim := makePod("victim", "")
	require.NoError(t, f.assumeInSlot(victim, protected.ID))
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high, victim).Code())
}

// assumeInSlot assumes a pod on n1 in a slot.
func (f *fixture) assumeInSlot(pod *v1.Pod, claim ledger.ClaimID) error {
	_, err := f.plugin.running.ledger.AssumePodOnHold(pod, "n1", &ledger.Admission{
		Asker:       ledger.Asker{Claims: []ledger.ClaimID{claim}, Use: ledger.UseOnly},
		Allocatable: ledger.Resources{MilliCPU: 8000, Pods: 110},
		Present:     func(types.UID) bool { return false },
	}, t0)
	return err
}

func TestWhoIsNotKeptOff(t *testing.T) {
	yes, critical, higher := true, systemCriticalPriority, int32(1)
	for name, change := range map[string]func(*v1.Pod){
		"a pod of a DaemonSet": func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: &yes}}
		},
		"a critical pod":           func(p *v1.Pod) { p.Spec.Priority = &critical },
		"a pod of higher priority": func(p *v1.Pod) { p.Spec.Priority = &higher },
		"the member":               func(p *v1.Pod) { p.UID = "member" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil, makeNode("n1")).start(t)
			f.hold(t, web, 7, "")
			f.hold(t, train, 1, "member")
			pod := makePod("p", "")
			require.NotNil(t, f.filter(t, pod))
			change(pod)
			require.Nil(t, f.filter(t, pod))
			require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, pod, "n1"))
		})
	}
}

// TestASlotOfAMemberIsClosedToItsSiblings until it is theirs.
func TestASlotOfAMemberIsClosedToItsSiblings(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, web, 7, "")
	f.hold(t, train, 1, "member")
	sibling, member := makePod("sibling", ""), makePod("member", "")
	require.NotNil(t, f.filter(t, sibling))
	require.Nil(t, f.filter(t, member))
	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, member, "n1"))
	status, _ := f.plugin.running.ledger.Claim(train.ID)
	require.Equal(t, 1, status.Used)
}

// TestReserveChecksOnceMore: a slot that was placed after PreFilter sends the pod back, and nothing is assumed.
func TestReserveChecksOnceMore(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	pod := makePod("p", "")
	require.Nil(t, f.filter(t, pod))
	f.hold(t, web, 8, "")
	status := f.plugin.Reserve(t.Context(), &cycleState{}, pod, "n1")
	require.Equal(t, fwk.Error, status.Code())
	require.Contains(t, status.Message(), "ZoneReservation web")
	require.False(t, f.plugin.running.ledger.IsAssumedPod("p"))
}

// TestARehearsalUsesNoSlot: the Reserve of a pod-group cycle changes nothing.
func TestARehearsalUsesNoSlot(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, train, 1, "member")
	require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{podGroup: true}, makePod("member", ""), "n1"))
	status, _ := f.plugin.running.ledger.Claim(train.ID)
	require.Zero(t, status.Used)
}

func TestBlockedPodsAreWokenOnce(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, web, 8, "")
	for range 3 {
		require.NotNil(t, f.filter(t, makePod("p", "")))
	}
	require.NotNil(t, f.filter(t, makePod("gone", "")))
	f.plugin.running.blocked.forget("gone")

	f.handle.activated = nil
	f.shared.HoldsFreed(t.Context())
	require.Equal(t, []string{"default/p"}, f.handle.activated)
	f.shared.HoldsFreed(t.Context())
	require.Equal(t, []string{"default/p"}, f.handle.activated, "it has not been refused since")
}

// TestHoldsPastTheirDeadlineAreReleased, should the gang's keeper have forgotten them, and wake whom they kept out.
func TestHoldsPastTheirDeadlineAreReleased(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	claim := train
	claim.Deadline = t0.Add(time.Minute)
	f.hold(t, claim, 8, "")
	require.NotNil(t, f.filter(t, makePod("p", "")))
	f.plugin.running.expireHolds(t.Context(), t0.Add(59*time.Second))
	require.Empty(t, f.handle.activated)
	f.plugin.running.expireHolds(t.Context(), t0.Add(time.Minute))
	require.Equal(t, []string{"default/p"}, f.handle.activated)
	require.Nil(t, f.filter(t, makePod("p", "")))
}

func TestFilterAllocatesNothing(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(t, web, 3, "")
	f.hold(t, train, 1, "member")
	pods := f.onN1(t, 3, 0)
	info := snapshotOf(1, makeNode("n1"), pods...)
	data := &cycleData{asker: ledger.Asker{UID: "p"}, request: ledger.Resources{MilliCPU: 1000, Pods: 1}, refused: &atomic.Bool{}}
	f.plugin.running.ledger.UpdateHoldsView(f.plugin.running.view)
	ctx, pod := t.Context(), makePod("p", "")
	// The framework's own types convert to interfaces without a copy; the test's do not.
	boxed := &boxedInfo{NodeInfo: info, requested: info.GetRequested(), allocatable: info.GetAllocatable()}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if f.plugin.filter(ctx, data, pod, boxed) != nil {
			t.Fatal("the pod fits")
		}
	}))
}

// boxedInfo returns the same interface values at each call.
type boxedInfo struct {
	fwk.NodeInfo

	requested, allocatable fwk.Resource
}

func (b *boxedInfo) GetRequested() fwk.Resource   { return b.requested }
func (b *boxedInfo) GetAllocatable() fwk.Resource { return b.allocatable }
