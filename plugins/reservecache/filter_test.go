package reservecache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/crdtest"
)

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
	plugin, err := f.shared.New(t.Context(), &runtime.Unknown{Raw: []byte(`{"maxHeldFraction": 1}`)}, f.handle)
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
	f.generation++
	info := snapshotOf(f.generation, makeNode("n1"), pods...)
	f.node = info
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
	f := reserving(t, 1, headroom)
	require.Nil(t, f.filter(t, makePod("p", ""), onN1(6, 0)...))
	status := f.filter(t, makePod("p", ""), onN1(7, 0)...)
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code(), "no pod has a lower priority")
	require.Equal(t, "node(s) had room only in what is held for ZoneReservation web", status.Message())
}

// TestFilterTellsPreemptionWhereToLook: victims help where their room is not held.
func TestFilterTellsPreemptionWhereToLook(t *testing.T) {
	priority, protection := int32(10), int32(1000)
	high := makePod("high", "")
	high.Spec.Priority = &priority
	protected := func(s *v1alpha1.ZoneReservationSpec) { s.Priority = &protection }

	f := reserving(t, 1, protected)
	require.Equal(t, fwk.Unschedulable, f.filter(t, high, onN1(7, 0)...).Code())

	f = reserving(t, 8, protected)
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high).Code())

	// The victim's slot is held, too, once it is gone.
	f = reserving(t, 8, func(s *v1alpha1.ZoneReservationSpec) { guarantee(s); protected(s) })
	victim := owner("victim")
	victim.Spec.NodeName = "n1"
	require.Equal(t, fwk.UnschedulableAndUnresolvable, f.filter(t, high, victim).Code())
}

// TestFilterReadsTheNodeThatItIsGiven, whatever the cycle began with: in a dry run of preemption an owner of a
// Guarantee that is a victim counts as held again, and one that has come to the node takes up a slot.
func TestFilterReadsTheNodeThatItIsGiven(t *testing.T) {
	f := reserving(t, 2, guarantee)
	on := append(onN1(6, 0), onNode(owner("one")))
	state := &cycleState{}
	require.NotNil(t, f.cycle(t, state, makePod("p", ""), on...), "a slot is unused")
	without := snapshotOf(99, makeNode("n1"), on[:6]...)
	require.NotNil(t, f.plugin.Filter(t.Context(), state, makePod("p", ""), without), "the victim's slot is its claim's")
	with := snapshotOf(100, makeNode("n1"), append(onN1(5, 0), onNode(owner("one")), onNode(owner("two")))...)
	require.Nil(t, f.plugin.Filter(t.Context(), state, makePod("p", ""), with), "both slots are taken up")
}

// TestMembersOfAPodGroup are counted in the NodeInfos of the run, whose generation does not change.
func TestMembersOfAPodGroup(t *testing.T) {
	f := reserving(t, 2, required)
	on := onN1(6, 0)
	require.Nil(t, f.cycle(t, &cycleState{}, owner("before"), on...))
	rehearse := func(name string) *fwk.Status {
		state := &cycleState{podGroup: true}
		info := snapshotOf(f.generation, makeNode("n1"), on...)
		_, status := f.plugin.PreFilter(t.Context(), state, owner(name), []fwk.NodeInfo{info})
		require.Nil(t, status)
		return f.plugin.Filter(t.Context(), state, owner(name), info)
	}
	for _, name := range []string{"one", "two"} {
		require.Nil(t, rehearse(name))
		on = append(on, onNode(owner(name)))
	}
	require.NotNil(t, rehearse("three"), "both slots are taken up")
	on = on[:7]
	require.Nil(t, rehearse("three"), "what one gives back is the next one's")
}

// TestKept: what slots keep from a pod, and of an owner that has to run in slots all room but these.
func TestKept(t *testing.T) {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourcePods}
	kept := func(f *fixture, pod *v1.Pod) []int64 {
		require.Nil(t, f.cycle(t, &cycleState{}, owner("any"), onN1(2, 0)...))
		amounts := make([]int64, 2)
		f.shared.Kept(pod, f.node, names, amounts)
		return amounts
	}
	require.Equal(t, []int64{3000, 3}, kept(reserving(t, 3, headroom), makePod("p", "")))
	require.Equal(t, []int64{0, 0}, kept(reserving(t, 3, headroom), owner("p")))
	require.EqualValues(t, 3000, kept(reserving(t, 3, required), owner("p"))[0], "six CPUs are free, and three are slots")
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
			f := reserving(t, 8, headroom)
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
