package reservecache

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

var web = holds.Claim{UID: "web", Name: "ZoneReservation web", Slot: ledger.Resources{MilliCPU: 1000, Pods: 1}}

// hold has slots of one CPU held on n1, which has eight CPUs.
func (f *fixture) hold(claim holds.Claim, slots int) {
	f.shared.Holds().SetClaim(claim)
	f.shared.Holds().Change(claim.UID, []holds.Change{{Node: "n1", Add: claim.SlotsAmount(slots)}})
}

// reserving is a fixture with n1 and a reservation of slots for pods with the label app: web.
func reserving(t *testing.T, slots int32, change func(*v1alpha1.ZoneReservationSpec)) *fixture {
	t.Helper()
	reservation := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "web", CreationTimestamp: metav1.NewTime(t0)},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	change(&reservation.Spec)
	f := newFixture(t, nil, makeNode("n1"))
	f.shared = NewShared(WithClock(f.clock), WithSource(crdtest.New(reservation)))
	plugin, err := f.shared.New(t.Context(), nil, f.handle)
	require.NoError(t, err)
	f.plugin = plugin.(*ReserveCache)
	f.start(t)
	f.plugin.running.server.AwaitStart(t.Context())
	return f
}

func headroom(*v1alpha1.ZoneReservationSpec)    {}
func guarantee(s *v1alpha1.ZoneReservationSpec) { s.Mode = v1alpha1.ModeGuarantee }
func required(s *v1alpha1.ZoneReservationSpec)  { s.OwnerPolicy = v1alpha1.OwnerRequired }

func owner(name string) *v1.Pod {
	pod := makePod(name, "")
	pod.Labels = map[string]string{"app": "web"}
	return pod
}

// cycle runs PreFilter and Filter for a pod on n1 with the given pods.
func (f *fixture) cycle(t *testing.T, state *cycleState, pod *v1.Pod, pods ...*v1.Pod) *fwk.Status {
	t.Helper()
	info := snapshotOf(1, makeNode("n1"), pods...)
	f.handle.snapshot = map[string]fwk.NodeInfo{"n1": info}
	_, status := f.plugin.PreFilter(t.Context(), state, pod, []fwk.NodeInfo{info})
	if status.IsSkip() {
		return nil
	}
	require.Nil(t, status)
	return f.plugin.Filter(t.Context(), state, pod, info)
}

func (f *fixture) filter(t *testing.T, pod *v1.Pod, pods ...*v1.Pod) *fwk.Status {
	t.Helper()
	return f.cycle(t, &cycleState{}, pod, pods...)
}

// onN1 makes pods that are on n1.
func onN1(n int, priority int32) []*v1.Pod {
	pods := make([]*v1.Pod, 0, n)
	for i := range n {
		p := makePod(fmt.Sprintf("pod-%d", i), "n1")
		p.Spec.Priority = &priority
		pods = append(pods, p)
	}
	return pods
}

func TestFilterNamesWhoHoldsTheRoom(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(web, 1)
	require.Nil(t, f.filter(t, makePod("p", ""), onN1(6, 0)...))
	status := f.filter(t, makePod("p", ""), onN1(7, 0)...)
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "no pod has a lower priority")
	require.Equal(t, "node(s) had room only in what is held for ZoneReservation web", status.Message())
}

// TestFilterTellsPreemptionWhereToLook: victims help where their room is not held.
func TestFilterTellsPreemptionWhereToLook(t *testing.T) {
	priority := int32(10)
	high := makePod("high", "")
	high.Spec.Priority = &priority
	protected := web
	protected.Priority = 1000

	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(protected, 1)
	require.Equal(t, fwk.Unschedulable, f.filter(t, high, onN1(7, 0)...).Code())

	f = newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(protected, 8)
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high).Code())

	// The victim's slot is held, too, once it is gone.
	f = reserving(t, 8, func(s *v1alpha1.ZoneReservationSpec) { guarantee(s); s.Priority = &protected.Priority })
	victim := owner("victim")
	victim.Spec.NodeName = "n1"
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high, victim).Code())
}

// TestWhoIsNotKeptOff, and who only says so: an owner reference is written by whoever creates the pod.
func TestWhoIsNotKeptOff(t *testing.T) {
	critical, higher := int32(2_000_000_000), int32(1)
	daemon := func(apiVersion string, pin bool) func(*v1.Pod) {
		yes := true
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "DaemonSet", Name: "agent", Controller: &yes}}
			if pin {
				p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n1"}}}}},
				}}}
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		kept   bool
	}{
		"a pod of a DaemonSet":             {change: daemon("apps/v1", true)},
		"a DaemonSet of another group":     {change: daemon("example.com/v1", true), kept: true},
		"a DaemonSet's pod for any node":   {change: daemon("apps/v1", false), kept: true},
		"a pod that is pinned and no more": {change: func(p *v1.Pod) { daemon("", true)(p); p.OwnerReferences = nil }, kept: true},
		"a critical pod":                   {change: func(p *v1.Pod) { p.Spec.Priority = &critical }},
		"a pod of higher priority":         {change: func(p *v1.Pod) { p.Spec.Priority = &higher }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil, makeNode("n1")).start(t)
			f.hold(web, 8)
			pod := makePod("p", "")
			require.NotNil(t, f.filter(t, pod))
			pod = pod.DeepCopy() // the worker reads the other one
			tc.change(pod)
			require.Equal(t, tc.kept, f.filter(t, pod) != nil)
			if !tc.kept {
				require.Nil(t, f.plugin.Reserve(t.Context(), &cycleState{}, pod, "n1"))
			}
		})
	}
}

// TestReserveChecksOnceMore: a slot that was placed after PreFilter sends the pod back, and nothing is assumed.
func TestReserveChecksOnceMore(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	pod, state := makePod("p", ""), &cycleState{}
	require.Nil(t, f.cycle(t, state, pod))
	f.hold(web, 8)
	status := f.plugin.Reserve(t.Context(), state, pod, "n1")
	require.Equal(t, fwk.Error, status.Code())
	require.Contains(t, status.Message(), "the room is held for ZoneReservation web")
	require.False(t, f.shared.Ledger().IsAssumedPod("p"))
}

// TestTwoPodsNeverWinTheSameSlot: the slot that Filter found may be another's by Reserve.
func TestTwoPodsNeverWinTheSameSlot(t *testing.T) {
	f := reserving(t, 1, required)
	full := onN1(7, 0)
	first, second := &cycleState{}, &cycleState{}
	require.Nil(t, f.cycle(t, first, owner("one"), full...))
	require.Nil(t, f.cycle(t, second, owner("two"), full...))
	require.Nil(t, f.plugin.Reserve(t.Context(), first, owner("one"), "n1"))
	f.handle.snapshot["n1"] = snapshotOf(2, makeNode("n1"), append(full, onNode(owner("one")))...)
	status := f.plugin.Reserve(t.Context(), second, owner("two"), "n1")
	require.Equal(t, fwk.Error, status.Code(), status.Message())
	require.False(t, f.shared.Ledger().IsAssumedPod("two"))

	// The first one's binding fails: the slot is the second one's.
	f.plugin.Unreserve(t.Context(), first, owner("one"), "n1")
	third := &cycleState{}
	require.Nil(t, f.cycle(t, third, owner("two"), full...))
	require.Nil(t, f.plugin.Reserve(t.Context(), third, owner("two"), "n1"))
}

// TestMembersOfANativePodGroup rehearse one after the other: n members find n slots on a full node, and what one gives back
// is the next one's. The real Reserve comes when the snapshot shows none of them.
func TestMembersOfANativePodGroup(t *testing.T) {
	f := reserving(t, 2, required)
	on := onN1(6, 0)
	states := map[string]*cycleState{}
	rehearse := func(name string) *fwk.Status {
		states[name] = &cycleState{podGroup: true}
		return f.cycle(t, states[name], owner(name), on...)
	}
	assume := func(name string) {
		on = append(on, onNode(owner(name)))
		require.Nil(t, f.plugin.Reserve(t.Context(), states[name], owner(name), "n1"))
	}
	require.Nil(t, rehearse("one"))
	assume("one")
	require.Nil(t, rehearse("two"))
	assume("two")
	require.NotNil(t, rehearse("three"))
	f.plugin.Unreserve(t.Context(), states["two"], owner("two"), "n1")
	on = on[:len(on)-1]
	require.Nil(t, rehearse("three"))
	assume("three")
	require.Empty(t, f.shared.Ledger().PodsOn("n1"), "it was a rehearsal")
	require.NotNil(t, rehearse("four"))
	on = on[:6]
	require.Nil(t, rehearse("four"), "another placement has its own")

	for _, name := range []string{"one", "three"} {
		f.plugin.Unreserve(t.Context(), states[name], owner(name), "n1")
		states[name].podGroup = false
	}
	f.handle.snapshot["n1"] = snapshotOf(9, makeNode("n1"), on...)
	require.Nil(t, f.plugin.Reserve(t.Context(), states["one"], owner("one"), "n1"))
	require.Nil(t, f.plugin.Reserve(t.Context(), states["three"], owner("three"), "n1"))
	require.Len(t, f.shared.Ledger().PodsOn("n1"), 2)
}

// TestMembersOfANativePodGroupTakeHeadroom: each takes what it lacks beside the members that were reserved before it.
func TestMembersOfANativePodGroupTakeHeadroom(t *testing.T) {
	f := reserving(t, 2, headroom)
	var on []*v1.Pod
	for _, pod := range onN1(6, 0) {
		on = append(on, pod)
		_, err := f.shared.Ledger().AddPod(pod)
		require.NoError(t, err)
	}
	without, states := slices.Clone(on), map[string]*cycleState{}
	for _, name := range []string{"one", "two"} {
		states[name] = &cycleState{podGroup: true}
		info := snapshotOf(1, makeNode("n1"), on...)
		_, status := f.plugin.PreFilter(t.Context(), states[name], owner(name), []fwk.NodeInfo{info})
		require.Nil(t, status)
		cycleDataOf(states[name]).betterNode.once.Do(func() {}) // there is no other node
		require.Nil(t, f.plugin.Filter(t.Context(), states[name], owner(name), info))
		require.Nil(t, f.plugin.Reserve(t.Context(), states[name], owner(name), "n1"))
		on = append(on, onNode(owner(name)))
	}
	f.handle.snapshot = map[string]fwk.NodeInfo{"n1": snapshotOf(9, makeNode("n1"), without...)}
	for i, name := range []string{"one", "two"} {
		states[name].podGroup = false
		require.Nil(t, f.plugin.Reserve(t.Context(), states[name], owner(name), "n1"))
		left := f.shared.Holds().StatusOn("web", "n1")
		require.Equal(t, 1-i, left.Slots())
	}
}

// onNode has a pod on n1.
func onNode(pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName = "n1"
	return pod
}

// TestANominatedOwnerIsCountedOnce: its request is in the NodeInfo, and what is held includes it.
func TestANominatedOwnerIsCountedOnce(t *testing.T) {
	f := reserving(t, 1, guarantee)
	with := func(n int) fwk.NodeInfo {
		return snapshotOf(1, makeNode("n1"), append(onN1(n, 0), owner("nominated"))...)
	} // as the framework adds it
	state := &cycleState{}
	_, status := f.plugin.PreFilter(t.Context(), state, makePod("p", ""), []fwk.NodeInfo{with(6)})
	require.Nil(t, status)
	require.Nil(t, f.plugin.Filter(t.Context(), state, makePod("p", ""), with(6)))
	require.NotNil(t, f.plugin.Filter(t.Context(), state, makePod("p", ""), snapshotOf(1, makeNode("n1"), onN1(7, 0)...)))
}

// TestKept: what unused slots keep from a pod on a node, by the pods that the node is shown with.
func TestKept(t *testing.T) {
	NewShared().Kept(makePod("p", ""), nil, nil, nil) // no profile has the plugin
	f := reserving(t, 2, guarantee)
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	kept := func(pod *v1.Pod, pods ...*v1.Pod) []int64 {
		amounts := []int64{1, 1, 1}
		f.shared.Kept(pod, snapshotOf(1, makeNode("n1"), pods...), names, amounts)
		return amounts
	}
	require.Equal(t, []int64{2001, 1, 3}, kept(makePod("p", "")))
	require.Equal(t, []int64{1, 1, 1}, kept(owner("o")))
	require.Equal(t, []int64{1001, 1, 2}, kept(makePod("p", ""), onNode(owner("o"))))
	require.Equal(t, []int64{2001, 1, 3}, kept(makePod("p", "")), "the owner is a victim in somebody's search")
	other := snapshotOf(1, makeNode("n2"))
	amounts := []int64{1, 1, 1}
	f.shared.Kept(makePod("p", ""), other, names, amounts)
	require.Equal(t, []int64{1, 1, 1}, amounts)
}

// TestHintsAreForThoseWhomRoomWasMadeFor: the others are woken by the plugin itself.
func TestHintsAreForThoseWhomRoomWasMadeFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, makeNode("n1")).start(t)
		f.hold(web, 8)
		pod, nominated := makePod("p", ""), makePod("nominated", "")
		nominated.Status.NominatedNodeName = "n1"
		require.NotNil(t, f.filter(t, pod))
		left, grown := makePod("left", "n1"), makeNode("n1")
		hints := func(pod *v1.Pod) [2]fwk.QueueingHint {
			byPod, err := f.plugin.podLeft(klog.Background(), pod, left, nil)
			require.NoError(t, err)
			byNode, err := f.plugin.nodeGrew(klog.Background(), pod, nil, grown)
			require.NoError(t, err)
			return [2]fwk.QueueingHint{byPod, byNode}
		}
		require.Equal(t, [2]fwk.QueueingHint{fwk.QueueSkip, fwk.QueueSkip}, hints(pod))
		require.Equal(t, [2]fwk.QueueingHint{fwk.Queue, fwk.Queue}, hints(nominated))

		// It is woken for room on n1 and refused again: the scheduler may not have heard yet.
		held := true
		eventually(t, func() bool {
			// The worker sees room that is freed once it has seen that there was none. Between two looks it rests, on this clock.
			if held {
				f.shared.Holds().Release("web")
			} else {
				f.hold(web, 8)
			}
			held = !held
			f.plugin.running.server.RequestPass()
			f.clock.Step(time.Second)
			synctest.Wait()
			return len(f.handle.woken()) > 0
		})
		require.Equal(t, []string{"default/p"}, f.handle.woken())
		f.hold(web, 8)
		require.NotNil(t, f.filter(t, pod))
		require.Equal(t, [2]fwk.QueueingHint{fwk.Queue, fwk.Queue}, hints(pod))
	})
}

func TestFilterAllocatesNothing(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	guaranteed := web
	guaranteed.Use = holds.UseFirst
	f.hold(guaranteed, 4)
	info := snapshotOf(1, makeNode("n1"), onN1(3, 0)...)
	data := &cycleData{request: ledger.Resources{MilliCPU: 1000, Pods: 1}, refusalRecorded: &atomic.Bool{}}
	f.plugin.running.view.Update()
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

// TestNominatedPodsDoNotHideWhatAnOwnerNeeds: the framework runs Filter with the pods that are nominated to a node, and then without
// them. The owner needs its slot beside them.
func TestNominatedPodsDoNotHideWhatAnOwnerNeeds(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu  string
		pods int // on the node; with those that are nominated to it there are 6
		left int
	}{
		"nothing without them":     {cpu: "1", pods: 2, left: 1},
		"fewer slots without them": {cpu: "2", pods: 5, left: 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := reserving(t, 2, headroom)
			pod := owner("o")
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(tc.cpu)
			state := &cycleState{}
			without, with := snapshotOf(1, makeNode("n1"), onN1(tc.pods, 0)...), snapshotOf(1, makeNode("n1"), onN1(6, 0)...)
			f.handle.snapshot = map[string]fwk.NodeInfo{"n1": without}
			_, status := f.plugin.PreFilter(t.Context(), state, pod, []fwk.NodeInfo{without})
			require.Nil(t, status)
			cycleDataOf(state).betterNode.once.Do(func() {}) // there is no other node
			require.Nil(t, f.plugin.Filter(t.Context(), state, pod, with))
			require.Nil(t, f.plugin.Filter(t.Context(), state, pod, without))
			require.Nil(t, f.plugin.Reserve(t.Context(), state, pod, "n1"))
			left := f.shared.Holds().StatusOn("web", "n1")
			require.Equal(t, tc.left, left.Slots(), "it is in the room of a nominated pod")
		})
	}
}

// TestHypotheticalPodsLeaveNoTrace: what a gang would find is asked about pods that are in no cycle, and about some that do not exist.
func TestHypotheticalPodsLeaveNoTrace(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(web, 1)
	waits := makePod("waits", "")
	require.NotNil(t, f.filter(t, waits, onN1(7, 0)...))

	state := &cycleState{}
	hypothetical.Mark(state)
	require.NotNil(t, f.cycle(t, state, waits, onN1(7, 0)...))
	require.False(t, f.plugin.running.waiting.AttemptBegins("waits"), "it is the last pod that was tried")
	f.plugin.running.waiting.Gone("waits")
	state = &cycleState{}
	hypothetical.Mark(state)
	require.NotNil(t, f.cycle(t, state, makePod("probe", ""), onN1(7, 0)...))
	require.True(t, f.plugin.running.waiting.Empty(), "no event would end its waiting")
}

// TestABoundPodIsNotKeptOff: with preemption for in-place resizes a pod goes through cycles for the node on which it is.
func TestABoundPodIsNotKeptOff(t *testing.T) {
	f := newFixture(t, nil, makeNode("n1")).start(t)
	f.hold(web, 1)
	pods := onN1(7, 0)
	require.Nil(t, f.filter(t, pods[0], pods...))
}
