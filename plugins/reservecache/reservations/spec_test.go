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

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reservation holds slots of one CPU for the pods of namespace shop with the label app: web.
func reservation(name string, slots int32, change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(t0)},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestBadSpecsAreRefusedByField(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ZoneReservation)
		err    string
	}{
		"no owners": {func(r *v1alpha1.ZoneReservation) { r.Spec.Owners = nil }, "spec.owners: Required value"},
		"empty selector": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].PodSelector = metav1.LabelSelector{} },
			"spec.owners[0].podSelector: Required value: must not be empty",
		},
		"bad selector": {
			func(r *v1alpha1.ZoneReservation) {
				r.Spec.Owners[0].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near", Values: []string{"b"}}}
			},
			`spec.owners[0].podSelector.matchExpressions[0].operator: Invalid value: "Near"`,
		},
		"no namespace": {func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].Namespace = "" }, "spec.owners[0].namespace: Required value"},
		"no requests":  {func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests = nil }, "spec.slot.requests: Required value"},
		"request of zero": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests[v1.ResourceMemory] = resource.MustParse("0") },
			`spec.slot.requests[memory]: Invalid value: "0": must be above 0`,
		},
		"pods": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests[v1.ResourcePods] = resource.MustParse("1") },
			"spec.slot.requests[pods]: Forbidden: a slot is a place for one pod",
		},
		"unknown resource": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests["gpu"] = resource.MustParse("1") },
			`spec.slot.requests[gpu]: Invalid value: "1": is not a resource that nodes offer`,
		},
		"zones and slots": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Zones = []v1alpha1.ReservationZone{{Name: "a", Slots: 1}} },
			"spec: Forbidden: exactly one of zones and slots must be set",
		},
		"neither": {func(r *v1alpha1.ZoneReservation) { r.Spec.Slots = nil }, "spec: Forbidden: exactly one of zones and slots must be set"},
		"zone twice": {
			func(r *v1alpha1.ZoneReservation) {
				r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 1}, {Name: "a", Slots: 0}}
			},
			`spec.zones[1].name: Duplicate value: "a"; spec.zones[1].slots: Invalid value: 0: must be at least 1`,
		},
		"no slots": {func(r *v1alpha1.ZoneReservation) { r.Spec.Slots = ptr.To[int32](0) }, "spec.slots: Invalid value: 0: must be at least 1"},
		"no time": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{} },
			`spec.ttl: Invalid value: "0s": must be above 0`,
		},
		"mode":         {func(r *v1alpha1.ZoneReservation) { r.Spec.Mode = "Both" }, `spec.mode: Unsupported value: "Both"`},
		"owner policy": {func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = "May" }, `spec.ownerPolicy: Unsupported value: "May"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, tc.change), false)
			require.Nil(t, s)
			require.Contains(t, oneLine(errs), tc.err)
			require.NotContains(t, oneLine(errs), "\n")
		})
	}
}

func TestOneLineIsNotEndless(t *testing.T) {
	_, errs := compile(&v1alpha1.ZoneReservation{Spec: v1alpha1.ZoneReservationSpec{Mode: "x", OwnerPolicy: "y", TTL: &metav1.Duration{}}}, false)
	require.Len(t, errs, 6)
	require.Contains(t, oneLine(errs), "; and 3 more")
}

// TestDefaultsOfObjectsThatSawNoAPIServer: the CustomResourceDefinition gives them to all others.
func TestDefaultsOfObjectsThatSawNoAPIServer(t *testing.T) {
	s, errs := compile(reservation("r", 3, nil), false)
	require.Empty(t, errs)
	require.Equal(t, ledger.Headroom, s.mode)
	require.Equal(t, ledger.UseLast, s.use)
	require.True(t, s.shift)
	require.Zero(t, s.priority)
	require.False(t, s.expired(t0.AddDate(100, 0, 0)))
	require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 1}, s.requests)
}

func TestModes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.ReservationMode
		policy v1alpha1.ReservationOwnerPolicy
		counts ledger.Mode
		use    ledger.Use
	}{
		"headroom":           {v1alpha1.ModeHeadroom, v1alpha1.OwnerPreferred, ledger.Headroom, ledger.UseLast},
		"guarantee":          {v1alpha1.ModeGuarantee, v1alpha1.OwnerPreferred, ledger.Guarantee, ledger.UseFirst},
		"required":           {v1alpha1.ModeGuarantee, v1alpha1.OwnerRequired, ledger.Guarantee, ledger.UseOnly},
		"required, headroom": {v1alpha1.ModeHeadroom, v1alpha1.OwnerRequired, ledger.Guarantee, ledger.UseOnly},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Mode, r.Spec.OwnerPolicy = tc.mode, tc.policy }), false)
			require.Empty(t, errs)
			require.Equal(t, tc.counts, s.mode)
			require.Equal(t, tc.use, s.use)
		})
	}
}

func TestTheTimeToLiveBeginsWithTheCreation(t *testing.T) {
	s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Hour} }), false)
	require.Empty(t, errs)
	require.False(t, s.expired(t0.Add(time.Hour-time.Second)))
	require.True(t, s.expired(t0.Add(time.Hour)))
}
