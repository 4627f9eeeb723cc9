package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

func TestBadSpecsAreRefusedByField(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ZoneReservation)
		err    string
	}{
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
		"node twice": {
			amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes = onNodes("n1", "1", "n1", "2") }), `spec.nodes[1].name: Duplicate value: "n1"`,
		},
		"bad amount": {
			amountsOn(func(r *v1alpha1.ZoneReservation) {
				r.Spec.Nodes[0].Amount[v1.ResourceMemory] = resource.MustParse("-1")
			}),
			`spec.nodes[0].amount[memory]: Invalid value: "-1": must not be below 0`,
		},
		"too many nodes": {
			amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes = make([]v1alpha1.ReservationNode, 5001) }), "spec.nodes: Too many: 5001: must have at most 5000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, tc.change))
			require.Nil(t, s)
			require.Contains(t, oneLine(errs), tc.err)
			require.NotContains(t, oneLine(errs), "\n")
		})
	}
}

func TestOneLineIsNotEndless(t *testing.T) {
	_, errs := compile(reservation("r", 1, amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes = onNodes("n", "-1", "n", "-1", "n", "-1") })))
	require.Len(t, errs, 5)
	require.Contains(t, oneLine(errs), "; and 2 more")
}

// TestDefaultsOfObjectsThatSawNoAPIServer: the CustomResourceDefinition gives them to all others.
func TestDefaultsOfObjectsThatSawNoAPIServer(t *testing.T) {
	s, errs := compile(reservation("r", 3, nil))
	require.Empty(t, errs)
	require.Equal(t, holds.UseLast, s.use)
	require.True(t, s.shift)
	require.Nil(t, s.priority)
	require.False(t, s.expired(t0.AddDate(100, 0, 0)))
	require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 1}, s.slot)
	require.Zero(t, s.target(5).PerNode)
	require.EqualValues(t, 5, s.target(5).Claim.Priority)
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

// TestAmounts: what is held on each node, with the places for pods, on any node that is ready.
func TestAmounts(t *testing.T) {
	s, errs := compile(reservation("r", 0, amountsOn(func(r *v1alpha1.ZoneReservation) {
		r.Spec.Nodes[1].Pods, r.Spec.Nodes[1].Amount["example.com/gpu"] = 3, resource.MustParse("0")
	})))
	require.Empty(t, errs)
	require.Equal(t, 4, s.slots)
	d := s.target(5)
	require.False(t, d.Claim.HasSlots())
	require.Zero(t, d.Slots)
	require.Equal(t, map[string]ledger.Resources{"n1": {MilliCPU: 3000, Pods: 1}, "n2": {MilliCPU: 500, Pods: 3}}, d.Nodes)
	cordoned := makeNode("n1", "4")
	cordoned.Spec.Unschedulable, cordoned.Spec.Taints = true, []v1.Taint{{Key: "only", Effect: v1.TaintEffectNoExecute}}
	require.Empty(t, d.Requirements.Unmet(cordoned), "who may go there is the writer's matter")
}

func TestModes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.ReservationMode
		policy v1alpha1.ReservationOwnerPolicy
		use    holds.Use
	}{
		"headroom":           {v1alpha1.ModeHeadroom, v1alpha1.OwnerPreferred, holds.UseLast},
		"guarantee":          {v1alpha1.ModeGuarantee, v1alpha1.OwnerPreferred, holds.UseFirst},
		"required":           {v1alpha1.ModeGuarantee, v1alpha1.OwnerRequired, holds.UseOnly},
		"required, headroom": {v1alpha1.ModeHeadroom, v1alpha1.OwnerRequired, holds.UseOnly},
	} {
		t.Run(name, func(t *testing.T) {
			s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.Mode, r.Spec.OwnerPolicy = tc.mode, tc.policy }))
			require.Empty(t, errs)
			require.Equal(t, tc.use, s.use)
		})
	}
}

func TestTheTimeToLiveBeginsWithTheCreation(t *testing.T) {
	s, errs := compile(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Hour} }))
	require.Empty(t, errs)
	require.False(t, s.expired(t0.Add(time.Hour-time.Second)))
	require.True(t, s.expired(t0.Add(time.Hour)))
}
