package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// createPackedNativeGang creates a native gang that must be in one zone. Its pods have the label by which policies count gangs, and are those of
// the app web.
func (c *cluster) createPackedNativeGang(name string, size int) []string {
	c.t.Helper()
	require.NoError(c.t, createNativeGang(c.t.Context(), c.client, name, int32(size)))
	c.editNativeGroup(name, func(group *schedulingv1beta1.PodGroup) {
		group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone}
	})
	var names []string
	for i := range size {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
		c.create(nativeMember(name, names[i]).Label("app", "web").Label(v1alpha1.PodGroupLabel, name))
	}
	return names
}

// TestPoliciesCountNativeGangs by the label, with unit PodGroup: each gang is in one zone, and they are spread over zones as wholes. PermitGate
// proposes the fullest zone for each, which ZoneSpread refuses, until the gang has come to one that it may have.
func TestPoliciesCountNativeGangs(t *testing.T) {
	nativeBubble(t, "all plugins", func(t *testing.T) {
		c := newPackCluster(t, 16, 16, 16)
		c.policies.Put(newPolicy(countGangs))
		c.start(withArgs(guarded))
		for i, size := range []int{4, 1, 3, 2, 5, 3} {
			c.requireBound(c.createPackedNativeGang(fmt.Sprint("n", i), size)...)
		}
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.gangsByZone())
	})
}

// TestHeldRoomIsLeftOutOfTheProofOfNativeGangs: a gang that would fit only on slots of others is refused by the proof, which says so; one whose
// slots they are is placed there.
func TestHeldRoomIsLeftOutOfTheProofOfNativeGangs(t *testing.T) {
	nativeBubble(t, "all plugins", func(t *testing.T) {
		c := newPackCluster(t, 4)
		c.reservations.apply(reservation("r", "train", 3, nil))
		c.start(withArgs(guarded))
		c.requireSlots("r", 3, 0)
		others := c.createNativeGang("n", 2)
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, "no room for 2 members at once")
		c.requireUnbound(others...)
		c.nativeGang("train", 3, 3)
		c.soonEqual(3, func() any { return len(c.bound("train-")) })
		c.requireUnbound(others...)
	})
}
