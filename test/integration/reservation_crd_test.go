package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

func TestZoneReservationCRD(t *testing.T) {
	w := newReservationWorld(t)
	t.Run("defaults", func(t *testing.T) { testReservationDefaults(t, w) })
	t.Run("accepted", func(t *testing.T) { testReservationAccepted(t, w) })
	t.Run("rejected", func(t *testing.T) { testReservationRejected(t, w) })
	t.Run("status subresource", func(t *testing.T) { testReservationStatus(t, w) })
}

const (
	someOwner = "owners: [{namespace: shop, podSelector: {matchLabels: {app: web}}}]\n"
	someSlot  = "slot: {requests: {cpu: '2'}}\n"
)

func testReservationDefaults(t *testing.T, w *world) {
	obj := fromYAML(t, "ZoneReservation", "defaults", someOwner+someSlot+"zones: [{name: a, slots: 10}]")
	require.NoError(t, w.cp.client.Create(w.ctx, obj))
	got := &v1alpha1.ZoneReservation{}
	require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(obj), got))
	require.Equal(t, v1alpha1.ModeHeadroom, got.Spec.Mode)
	require.Equal(t, v1alpha1.OwnerPreferred, got.Spec.OwnerPolicy)
	require.Nil(t, got.Spec.Priority, "it is that of pods without a priority class")
	require.Nil(t, got.Spec.TTL)

	plain := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: "from-go"}, Spec: v1alpha1.ZoneReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: labelled("web")}}},
		Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}},
		Slots:  ptr.To[int32](20),
	}}
	require.NoError(t, w.cp.client.Create(w.ctx, plain))
	require.Equal(t, v1alpha1.ModeHeadroom, plain.Spec.Mode, "an object that was made with the Go type gets the same defaults")
}

func testReservationAccepted(t *testing.T, w *world) {
	for name, spec := range map[string]string{
		"the-full-form": `
owners:
- {namespace: shop, podSelector: {matchLabels: {app: web}}}
- {namespace: api, podSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}}
slot:
  requests: {cpu: 500m, memory: 4Gi, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}
  nodeSelector: {disk: ssd}
  tolerations: [{key: dedicated, operator: Equal, value: shop, effect: NoSchedule}]
slotsPerNode: 2
mode: Guarantee
ownerPolicy: Required
zones: [{name: a, slots: 10}, {name: b, slots: 10}]
priority: 1000
ttl: 24h`,
		"spread":            someOwner + someSlot + "slots: 20",
		"negative-priority": someOwner + someSlot + "slots: 1\npriority: -10",
		"request-of-zero":   someOwner + "slot: {requests: {cpu: 1, memory: 0}}\nslots: 1",
		"most-slots":        someOwner + someSlot + "slots: 5000",
		"short-ttl":         someOwner + someSlot + "slots: 1\nttl: 500ms",
		"number-as-number":  someOwner + "slot: {requests: {cpu: 2, memory: 1000000}}\nslots: 1",
	} {
		t.Run(name, func(t *testing.T) {
			obj := fromYAML(t, "ZoneReservation", name, spec)
			require.NoError(t, w.cp.client.Create(w.ctx, obj))
			require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(obj), &v1alpha1.ZoneReservation{}), "the Go type reads what the server accepts")
		})
	}
}

func testReservationRejected(t *testing.T, w *world) {
	const rest = "slots: 1\n"
	for _, test := range []struct{ name, spec, field, because string }{
		{"no-owners", someSlot + rest, "spec.owners", "Required value"},
		{"empty-owners", "owners: []\n" + someSlot + rest, "spec.owners", "at least 1"},
		{"owner-without-namespace", "owners: [{podSelector: {matchLabels: {app: web}}}]\n" + someSlot + rest, "spec.owners[0].namespace", "Required value"},
		{"owner-without-selector", "owners: [{namespace: shop}]\n" + someSlot + rest, "spec.owners[0].podSelector", "Required value"},
		{"owner-with-empty-selector", "owners: [{namespace: shop, podSelector: {}}]\n" + someSlot + rest, "spec.owners[0].podSelector", "must not be empty"},
		{"second-owner-with-empty-selector", "owners: [{namespace: shop, podSelector: {matchLabels: {a: b}}}, {namespace: api, podSelector: {matchLabels: {}}}]\n" + someSlot + rest, "spec.owners[1].podSelector", "must not be empty"},
		{"bad-namespace", "owners: [{namespace: Shop_1, podSelector: {matchLabels: {app: web}}}]\n" + someSlot + rest, "spec.owners[0].namespace", "should match"},
		{"no-slot", someOwner + rest, "spec.slot", "Required value"},
		{"no-requests", someOwner + "slot: {}\n" + rest, "spec.slot.requests", "Required value"},
		{"empty-requests", someOwner + "slot: {requests: {}}\n" + rest, "spec.slot.requests", "at least 1"},
		{"negative-request", someOwner + "slot: {requests: {cpu: '-1'}}\n" + rest, "spec.slot.requests", "no quantity may be below 0"},
		{"request-of-pods", someOwner + "slot: {requests: {cpu: '1', pods: 1}}\n" + rest, "spec.slot.requests", "pods must not be set"},
		{"malformed-request", someOwner + "slot: {requests: {cpu: two}}\n" + rest, "spec.slot.requests.cpu", ""},
		{"neither-zones-nor-slots", someOwner + someSlot, "spec", "exactly one of zones and slots"},
		{"zones-and-slots", someOwner + someSlot + "zones: [{name: a, slots: 1}]\nslots: 1", "spec", "exactly one of zones and slots"},
		{"empty-zones", someOwner + someSlot + "zones: []", "spec.zones", "at least 1"},
		{"zone-twice", someOwner + someSlot + "zones: [{name: a, slots: 1}, {name: a, slots: 2}]", "spec.zones[1]", "Duplicate value"},
		{"zone-without-slots", someOwner + someSlot + "zones: [{name: a}]", "spec.zones[0].slots", "Required value"},
		{"zone-with-no-slots", someOwner + someSlot + "zones: [{name: a, slots: 0}]", "spec.zones[0].slots", "greater than or equal to 1"},
		{"zone-name", someOwner + someSlot + "zones: [{name: 'zone a', slots: 1}]", "spec.zones[0].name", "should match"},
		{"slots-zero", someOwner + someSlot + "slots: 0", "spec.slots", "greater than or equal to 1"},
		{"slots-too-many", someOwner + someSlot + "slots: 5001", "spec.slots", "less than or equal to 5000"},
		{"zones-with-too-many-slots", someOwner + someSlot + "zones: [{name: a, slots: 2500}, {name: b, slots: 2501}]", "spec", "at most 5000 slots in all"},
		{"no-slots-per-node", someOwner + someSlot + rest + "slotsPerNode: 0", "spec.slotsPerNode", "greater than or equal to 1"},
		{"too-many-slots-per-node", someOwner + someSlot + rest + "slotsPerNode: 5001", "spec.slotsPerNode", "less than or equal to 5000"},
		{"resource-without-domain", someOwner + "slot: {requests: {gpu: 1}}\n" + rest, "spec.slot.requests", "with a domain"},
		{"resource-of-quotas", someOwner + "slot: {requests: {requests.example.com/gpu: 1}}\n" + rest, "spec.slot.requests", "requests."},
		{"mode", someOwner + someSlot + rest + "mode: Always", "spec.mode", "Unsupported value"},
		{"owner-policy", someOwner + someSlot + rest + "ownerPolicy: Never", "spec.ownerPolicy", "Unsupported value"},
		{"priority-of-the-system", someOwner + someSlot + rest + "priority: 2000000000", "spec.priority", "less than or equal to 1000000000"},
		{"ttl-zero", someOwner + someSlot + rest + "ttl: 0s", "spec.ttl", "above 0"},
		{"ttl-negative", someOwner + someSlot + rest + "ttl: -1h", "spec.ttl", "should match"},
		{"ttl-malformed", someOwner + someSlot + rest + "ttl: a day", "spec.ttl", "should match"},
	} {
		t.Run(test.name, func(t *testing.T) {
			requireRejected(t, w.cp.client.Create(w.ctx, fromYAML(t, "ZoneReservation", test.name, test.spec)), test.field, test.because)
		})
	}
	err := w.cp.client.Create(w.ctx, fromYAML(t, "ZoneReservation", "typo", someOwner+someSlot+"slot: 1"), client.FieldValidation(metav1.FieldValidationStrict))
	require.Error(t, err)
	err = w.cp.client.Create(w.ctx, fromYAML(t, "ZoneReservation", "typo", someOwner+someSlot+rest+"zone: a"), client.FieldValidation(metav1.FieldValidationStrict))
	require.ErrorContains(t, err, `unknown field "spec.zone"`)
}

func testReservationStatus(t *testing.T, w *world) {
	obj := fromYAML(t, "ZoneReservation", "status", someOwner+someSlot+"zones: [{name: a, slots: 2}]")
	require.NoError(t, w.cp.client.Create(w.ctx, obj))
	got := &v1alpha1.ZoneReservation{}
	require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(obj), got))
	want := v1alpha1.ZoneReservationStatus{
		ObservedGeneration: 1,
		LastUpdateTime:     metav1.NewMicroTime(time.Unix(1800000000, 123456000)),
		Slots:              v1alpha1.SlotCounts{Desired: 2, Held: 2, Used: 1},
		Zones: []v1alpha1.ReservationZoneStatus{{
			Name: "a", SlotCounts: v1alpha1.SlotCounts{Desired: 2, Held: 2, Used: 1},
			Nodes: []v1alpha1.ReservationNodeStatus{{Name: "a1", Slots: 2, Used: 1}},
		}},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonAllHeld, Message: "all slots are held", LastTransitionTime: metav1.NewTime(time.Unix(1800000000, 0)),
		}},
	}
	got.Status = want
	require.NoError(t, w.cp.client.Status().Update(w.ctx, got))
	require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(obj), got))
	require.True(t, want.LastUpdateTime.Equal(&got.Status.LastUpdateTime), "%s", got.Status.LastUpdateTime)
	want.LastUpdateTime = got.Status.LastUpdateTime
	require.Equal(t, want, got.Status)

	got.Spec.Priority, got.Status.Slots.Held = ptr.To[int32](7), 1000
	require.NoError(t, w.cp.client.Update(w.ctx, got))
	require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(obj), got))
	require.Equal(t, ptr.To[int32](7), got.Spec.Priority)
	require.EqualValues(t, 2, got.Status.Slots.Held, "a write of the object leaves the status alone")
}
