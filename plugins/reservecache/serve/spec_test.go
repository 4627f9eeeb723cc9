package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestBadSpecsAreRefusedByField(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ZoneReservation)
		err    string
	}{
		"request below zero": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests[v1.ResourceMemory] = resource.MustParse("-1") },
			`spec.slot.requests[memory]: Invalid value: "-1": must not be below 0`,
		},
		"too many slots": {
			func(r *v1alpha1.ZoneReservation) {
				r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 5000}, {Name: "b", Slots: 1}}
			},
			"spec: Invalid value: 5001: a reservation has at least one slot, and at most 5000",
		},
		"unknown resource": {
			func(r *v1alpha1.ZoneReservation) { r.Spec.Slot.Requests["gpu"] = resource.MustParse("1") },
			`spec.slot.requests[gpu]: Invalid value: "1": is not a resource that nodes offer`,
		},
		"no slots": {func(r *v1alpha1.ZoneReservation) { r.Spec.Slots = nil }, "spec: Invalid value: 0: a reservation has at least one slot"},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, tc.change))
			require.Nil(t, s)
			require.Contains(t, oneLine(errs), tc.err)
			require.NotContains(t, oneLine(errs), "\n")
		})
	}
}

// TestASelectorThatCannotBeRead selects no pods, and the slots stay.
func TestASelectorThatCannotBeRead(t *testing.T) {
	for name, selector := range map[string]metav1.LabelSelector{
		"empty":    {},
		"operator": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near", Values: []string{"b"}}}},
		"value":    {MatchLabels: map[string]string{"a": "b c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].PodSelector = selector }))
			require.Empty(t, errs)
			require.Contains(t, oneLine(s.unreadable), "spec.owners[0].podSelector")
			require.Nil(t, indexOwners([]*spec{s}).of(podWith("shop", map[string]string{"a": "b", "app": "web"})))
		})
	}
}

func TestOneLineIsNotEndless(t *testing.T) {
	_, errs := compile(reservation("r", 0, func(r *v1alpha1.ZoneReservation) {
		for _, name := range []v1.ResourceName{"a", "b", "c", "d"} {
			r.Spec.Slot.Requests[name] = resource.MustParse("1")
		}
	}))
	require.Len(t, errs, 5)
	require.Contains(t, oneLine(errs), "; and 2 more")
}

// TestDefaultsOfObjectsThatSawNoAPIServer: the CustomResourceDefinition gives them to all others.
func TestDefaultsOfObjectsThatSawNoAPIServer(t *testing.T) {
	s, errs := compile(reservation("r", 3, nil))
	require.Empty(t, errs)
	require.False(t, s.inclusive)
	require.Nil(t, s.priority)
	require.False(t, s.expired(t0.AddDate(100, 0, 0)))
	require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 1}, s.slot)
	require.Zero(t, s.claim(5).PerNode)
	require.EqualValues(t, 5, s.claim(5).Priority)
}

// TestQuantitiesOfZeroAreIgnored, as if they were not there.
func TestQuantitiesOfZeroAreIgnored(t *testing.T) {
	s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slot.Requests[v1.ResourceMemory] = resource.MustParse("0")
		r.Spec.Slot.Requests["example.com/gpu"] = resource.MustParse("0")
	}))
	require.Empty(t, errs)
	require.True(t, s.slot.Equal(&ledger.Resources{MilliCPU: 1000, Pods: 1}))
}

func TestModes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.ReservationMode
		policy v1alpha1.ReservationOwnerPolicy
		want   [2]bool // inclusive, required
	}{
		"headroom":           {v1alpha1.ModeHeadroom, v1alpha1.OwnerPreferred, [2]bool{false, false}},
		"guarantee":          {v1alpha1.ModeGuarantee, v1alpha1.OwnerPreferred, [2]bool{true, false}},
		"required":           {v1alpha1.ModeGuarantee, v1alpha1.OwnerRequired, [2]bool{true, true}},
		"required, headroom": {v1alpha1.ModeHeadroom, v1alpha1.OwnerRequired, [2]bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Mode, r.Spec.OwnerPolicy = tc.mode, tc.policy }))
			require.Empty(t, errs)
			require.Equal(t, tc.want, [2]bool{s.inclusive, s.required})
		})
	}
}

func TestTheTimeToLiveBeginsWithTheCreation(t *testing.T) {
	s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Hour} }))
	require.Empty(t, errs)
	require.False(t, s.expired(t0.Add(time.Hour-time.Second)))
	require.True(t, s.expired(t0.Add(time.Hour)))
}
