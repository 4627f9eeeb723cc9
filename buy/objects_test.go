package buy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestObjects: the autoscaler is asked for room in which a slot can be.
func TestObjects(t *testing.T) {
	r := reservation(func(r *v1alpha1.ZoneReservation) {
		r.Spec.Slot.Requests["example.com/gpu"] = resource.MustParse("1")
		r.Spec.Slot.NodeSelector = map[string]string{"pool": "web"}
		r.Spec.Slot.Tolerations = []v1.Toleration{{Key: "web", Operator: v1.TolerationOpExists}}
		r.Spec.SlotsPerNode = ptr.To[int32](1)
		r.Spec.Buy.PriorityClassName, r.Spec.Buy.Labels = "buffers", map[string]string{"team": "shop"}
	})
	d := ReservationDemand(r, &Cluster{Now: start})
	buffers, _ := d.Plan(nil, start)
	require.Len(t, buffers, 2)

	template := d.PodTemplate(&buffers[0])
	require.Equal(t, "buffers", template.Namespace)
	require.Equal(t, map[string]string{"team": "shop", OwnerLabel: "1", zoneLabel: "a"}, template.Labels)
	require.True(t, metav1.IsControlledBy(template, r))
	spec := &template.Template.Spec
	require.Equal(t, map[string]string{"pool": "web", v1.LabelTopologyZone: "a"}, spec.NodeSelector)
	require.Equal(t, r.Spec.Slot.Tolerations, spec.Tolerations)
	require.Equal(t, "buffers", spec.PriorityClassName)
	require.Equal(t, v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("2"), "example.com/gpu": resource.MustParse("1")},
		Limits:   v1.ResourceList{"example.com/gpu": resource.MustParse("1")},
	}, spec.Containers[0].Resources, "of what nodes do not overcommit the API server demands limits")
	require.Equal(t, map[string]string{"team": "shop", OwnerLabel: "1"}, template.Template.Labels)
	require.Equal(t, []v1.PodAffinityTerm{
		{
			TopologyKey:   v1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{OwnerLabel: "1"}},
		},
		{
			TopologyKey:   v1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Namespaces:    []string{"shop"},
		},
	}, spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, "neither another slot nor an owner is on the node")
	require.Equal(t, map[string]string{"pool": "web"}, r.Spec.Slot.NodeSelector, "the object is not modified")

	d.PerNode, d.Apart = 3, nil
	spec = &d.PodTemplate(&buffers[0]).Template.Spec
	require.Nil(t, spec.Affinity)
	require.Equal(t, int32(3), spec.TopologySpreadConstraints[0].MaxSkew)

	buffers[1].Fall = &Fall{Since: start, Most: 7}
	for _, version := range Versions() {
		u := d.CapacityBuffer(&buffers[1], version)
		require.Equal(t, "autoscaling.x-k8s.io/"+version.Version, u.GetAPIVersion())
		require.Equal(
			t, map[string]any{"replicas": int64(2), "podTemplateRef": map[string]any{"name": buffers[1].Name}},
			u.Object["spec"],
		)
		require.Equal(
			t, Buffer{Name: buffers[1].Name, Zone: "b", Asked: 2, Promised: buffers[1].Promised, Fall: buffers[1].Fall}, Read(u),
			"it can be continued from",
		)
	}
}

// TestNames: an object created again under an old name has buffers of its own, one size has one name, and long names
// leave room for those that autoscalers make of them.
func TestNames(t *testing.T) {
	d := demand(1)
	d.Owner.Name = "Web." + strings.Repeat("x", 145) + ".end"
	name := d.name("a", cpu("2"), nil)
	require.Len(t, name, 149+1+10)
	require.Equal(
		t, name,
		d.name("a", v1.ResourceList{"cpu": resource.MustParse("2000m"), "memory": resource.MustParse("0")}, nil),
	)
	other := *d
	other.Owner.UID = "2"
	require.Len(t, map[string]bool{
		name: true, d.name("b", cpu("2"), nil): true, d.name("a", cpu("3"), nil): true,
		other.name("a", cpu("2"), nil): true,
	}, 4)
}

// TestRead: what somebody has made of a CapacityBuffer does not stop the part.
func TestRead(t *testing.T) {
	u := demand(1).CapacityBuffer(&Buffer{Name: "web", Asked: 3}, Versions()[0])
	for _, falls := range []string{"", "now", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z many", "yesterday 3"} {
		u.SetAnnotations(map[string]string{fallAnnotation: falls})
		require.Equal(t, Buffer{Name: "web", Asked: 3, Promised: 3}, Read(u), falls)
	}
	u.SetAnnotations(map[string]string{fallAnnotation: "2026-01-01T12:00:00Z 3"})
	require.Equal(t, &Fall{Since: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Most: 3}, Read(u).Fall)
	require.NoError(t, unstructured.SetNestedField(u.Object, "many", "spec", "replicas"))
	require.Zero(t, Read(u).Asked)
	require.NoError(t, unstructured.SetNestedSlice(u.Object, []any{"ready", map[string]any{
		"type": "Provisioning", "status": "False", "reason": "NoRoom", "message": "no pool has zone z",
	}}, "status", "conditions"))
	require.Equal(t, "Provisioning=False (NoRoom): no pool has zone z", Answer(Conditions(u)))
}
