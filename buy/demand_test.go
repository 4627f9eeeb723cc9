package buy

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

func node(name, zone string, ready bool) *v1.Node {
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelTopologyZone: zone}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}},
	}
}

// waits is a pod of app web without a node.
func waits(name string, age time.Duration, options ...func(*v1.Pod)) *v1.Pod {
	pod := build.Pod(name, "1", build.Namespace("shop"), build.App("web"))
	pod.CreationTimestamp = metav1.NewTime(start.Add(-age))
	for _, option := range options {
		option(pod)
	}
	return pod
}

func reservation(change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{
				{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			},
			Slot: v1alpha1.ReservationSlot{
				Requests: v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("0")},
			},
			Zones: []v1alpha1.ReservationZone{{Name: "a", Slots: 3}, {Name: "b", Slots: 2}},
			Buy:   &v1alpha1.Buy{Namespace: "buffers", Max: 10},
		},
	}
	change(r)
	return r
}

func zoneStatus(name string, desired, held, used int64) v1alpha1.ReservationZoneStatus {
	return v1alpha1.ReservationZoneStatus{
		Name: name, SlotCounts: v1alpha1.SlotCounts{Desired: desired, Held: held, Used: used},
	}
}

func used(zone, size string, n, used int32) Want {
	return Want{Zone: zone, Requests: cpu(size), Pods: n, Used: used}
}

// TestReservationWants: held and unused plus missing is what the spec names less what owners use; without zones in the
// spec the scheduler's shares count.
func TestReservationWants(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(r *v1alpha1.ZoneReservation)
		want   []Want
	}{
		{"nothing is held yet", func(*v1alpha1.ZoneReservation) {}, []Want{want("a", "2", 3), want("b", "2", 2)}},
		{"a headroom uses nothing", func(r *v1alpha1.ZoneReservation) {
			r.Status.Zones = []v1alpha1.ReservationZoneStatus{zoneStatus("a", 3, 3, 0), zoneStatus("b", 2, 1, 0)}
		}, []Want{want("a", "2", 3), want("b", "2", 2)}},
		{"used slots have their nodes", func(r *v1alpha1.ZoneReservation) {
			r.Status.Zones = []v1alpha1.ReservationZoneStatus{zoneStatus("a", 3, 3, 1), zoneStatus("b", 2, 2, 2)}
		}, []Want{used("a", "2", 2, 1), used("b", "2", 0, 2)}},
		{"slots that are held elsewhere for now are wanted where they belong", func(r *v1alpha1.ZoneReservation) {
			r.Status.Zones = []v1alpha1.ReservationZoneStatus{zoneStatus("a", 5, 5, 4), zoneStatus("b", 0, 0, 0)}
		}, []Want{used("a", "2", 0, 3), want("b", "2", 2)}},
		{"slots over all zones", func(r *v1alpha1.ZoneReservation) {
			r.Spec.Zones, r.Spec.Slots = nil, ptr.To[int32](5)
			r.Status.Zones = []v1alpha1.ReservationZoneStatus{zoneStatus("a", 3, 3, 1), zoneStatus("c", 2, 0, 0)}
		}, []Want{used("a", "2", 2, 1), want("c", "2", 2)}},
		{"slots over zones that are not known yet", func(r *v1alpha1.ZoneReservation) {
			r.Spec.Zones, r.Spec.Slots = nil, ptr.To[int32](5)
		}, []Want{want("", "2", 5)}},
		{"a zone where no slot can be", func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slot.NodeSelector = map[string]string{v1.LabelTopologyZone: "b"}
		}, []Want{want("b", "2", 2)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, ReservationDemand(reservation(tc.change), &Cluster{Now: start}).Wants)
		})
	}
}

// TestReservationFreezes: by a zone whose nodes are all unusable, not by one without nodes; where the zones share the
// slots, altogether.
func TestReservationFreezes(t *testing.T) {
	cluster := &Cluster{Now: start, Nodes: []*v1.Node{
		node("a1", "a", false), node("a2", "a", true), node("b1", "b", false), node("b2", "b", true),
		node("none", "", false),
	}}
	cluster.Nodes[3].Spec.Unschedulable = true
	d := ReservationDemand(reservation(func(*v1alpha1.ZoneReservation) {}), cluster)
	require.Equal(t, []string{"b"}, d.Lost)
	require.Empty(t, d.Frozen)
	d = ReservationDemand(reservation(func(r *v1alpha1.ZoneReservation) {
		r.Spec.Zones, r.Spec.Slots = nil, ptr.To[int32](5)
	}), cluster)
	require.Equal(t, "no node is ready and not cordoned in zone b", d.Frozen)
	d = ReservationDemand(reservation(func(r *v1alpha1.ZoneReservation) {
		r.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: "spec.slot: is wrong"},
		}
	}), &Cluster{Now: start})
	require.Equal(t, "the spec is invalid: spec.slot: is wrong", d.Frozen)
	require.Empty(t, d.Wants)
}

// TestWaitingOwners: those that may be placed at any moment.
func TestWaitingOwners(t *testing.T) {
	cluster := &Cluster{Now: start, Pods: []*v1.Pod{
		waits("young", time.Minute),
		waits("old", PlacedWithin),
		waits("bound", time.Minute, func(p *v1.Pod) { p.Spec.NodeName = "a1" }),
		waits("gated", time.Minute, func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }),
		waits("going", time.Minute, func(p *v1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }),
		waits("other", time.Minute, func(p *v1.Pod) { p.Labels = nil }),
		waits("elsewhere", time.Minute, func(p *v1.Pod) { p.Namespace = "other" }),
	}}
	require.Equal(t, 1, ReservationDemand(reservation(func(*v1alpha1.ZoneReservation) {}), cluster).Waiting)
}

// TestSurvivalWants: each reservation's slots that no pod uses, for pods of the workload's shape.
func TestSurvivalWants(t *testing.T) {
	s := &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: "services", UID: "1"},
		Spec: v1alpha1.ZoneSurvivalSpec{
			Workloads: []v1alpha1.SurvivalWorkload{
				{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			},
			Hold: true, Buy: &v1alpha1.Buy{Namespace: "buffers", Max: 10},
		},
		Status: v1alpha1.ZoneSurvivalStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionFalse}},
		},
	}
	affinity := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "kind", Operator: v1.NodeSelectorOpIn, Values: []string{"large", "huge"}}},
	}}}
	cluster := &Cluster{Now: start, Nodes: []*v1.Node{node("a1", "a", true), node("b1", "b", true)}, Pods: []*v1.Pod{
		waits("one", time.Hour, func(p *v1.Pod) {
			p.Labels = map[string]string{"app": "db"}
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinity}}
		}),
	}}
	slots := func(app, size string, in map[string][2]int64) *v1alpha1.ZoneReservation {
		r := &v1alpha1.ZoneReservation{Spec: v1alpha1.ZoneReservationSpec{
			Mode:   v1alpha1.ModeGuarantee,
			Slot:   v1alpha1.ReservationSlot{Requests: cpu(size), NodeSelector: map[string]string{"pool": app}},
			Owners: []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
		}}
		for _, zone := range slices.Sorted(maps.Keys(in)) {
			r.Spec.Zones = append(r.Spec.Zones, v1alpha1.ReservationZone{Name: zone, Slots: int32(in[zone][0])}) //nolint:gosec // a few
			r.Status.Zones = append(r.Status.Zones, v1alpha1.ReservationZoneStatus{
				Name: zone, SlotCounts: v1alpha1.SlotCounts{Desired: in[zone][0], Held: in[zone][0], Used: in[zone][1]},
			})
		}
		return r
	}
	web, db := &Placing{NodeSelector: map[string]string{"pool": "web"}}, &Placing{NodeSelector: map[string]string{"pool": "db"}, Affinity: affinity}
	d := SurvivalDemand(s, []*v1alpha1.ZoneReservation{
		slots("web", "2", map[string][2]int64{"a": {3, 2}, "b": {3, 3}}), slots("db", "4", map[string][2]int64{"a": {1, 0}, "c": {2, 0}}),
	}, cluster)
	require.ElementsMatch(t, []Want{
		{Zone: "a", Requests: cpu("2"), Placing: web, Pods: 1, Used: 2},
		{Zone: "b", Requests: cpu("2"), Placing: web, Used: 3},
		{Zone: "a", Requests: cpu("4"), Placing: db, Pods: 1},
		{Zone: "c", Requests: cpu("4"), Placing: db, Pods: 2},
	}, d.Wants, "each workload's slots that its pods do not use, where its pods may be")
	require.Empty(t, d.Frozen)

	s.Status.Conditions[0].Status, s.Status.Conditions[0].Message = metav1.ConditionUnknown, "pods may not be listed"
	require.Equal(t, "it is not known what is missing: pods may not be listed", SurvivalDemand(s, nil, cluster).Frozen)
	s.Status.Conditions = nil
	require.Equal(t, "it is not known yet what is missing", SurvivalDemand(s, nil, cluster).Frozen)
	cluster.Nodes[0] = node("a1", "a", false)
	require.Equal(t, "no node is ready and not cordoned in zone a", SurvivalDemand(s, nil, cluster).Frozen)
}
