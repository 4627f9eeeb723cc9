package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// scale changes how many replicas the Deployment web has.
func (w *policyWorld) scale(replicas int32) {
	w.t.Helper()
	web := newDeployment(w.namespace, "web", 0, newPod("web", "1m"))
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	require.NoError(w.t, cp.client.Patch(w.ctx, web, client.RawPatch("application/merge-patch+json", patch)))
}

// waiting lists the pods of the app web that are not bound.
func (w *policyWorld) waiting() []*v1.Pod {
	w.t.Helper()
	var waiting []*v1.Pod
	for _, pod := range w.pods(labelled("web")) {
		if pod.Spec.NodeName == "" {
			waiting = append(waiting, &pod)
		}
	}
	return waiting
}

// hasReason reports whether a condition has a reason, whatever its status is.
func hasReason(s *v1alpha1.ZoneSpreadPolicyStatus, kind, reason string) bool {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Reason == reason
		}
	}
	return false
}

// TestPolicyZoneCap: a cap of one zone holds through a scale-up, and the others take its share.
func TestPolicyZoneCap(t *testing.T) {
	needControllers(t)
	w := newPolicyWorld(t)
	w.addNodes("100", "a1") // the best by every score
	w.addNodes("16", "b1", "c1")
	w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-a", MaxPods: ptr.To[int32](2)}}
	})
	w.startScheduler()
	w.deploy(8, "100m", nil)
	w.waitBoundCount(8, labelled("web"))
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 3, "zone-c": 3}, w.byZone(labelled("web")))
	w.scale(12)
	w.waitBoundCount(12, labelled("web"))
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 5, "zone-c": 5}, w.byZone(labelled("web")))
}

// TestPolicyMinZones: while there are fewer zones than wanted no zone takes more than maxSkew; the status says why, and a
// node of a third zone wakes the pods that wait.
func TestPolicyMinZones(t *testing.T) {
	needControllers(t)
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MinZones = ptr.To[int32](3) })
	w.startScheduler()
	w.deploy(6, "100m", nil)
	w.waitPlaced(2)
	w.waitStatus(p, "infeasible for want of zones", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionInfeasible, metav1.ConditionTrue) &&
			hasReason(s, v1alpha1.ConditionInfeasible, v1alpha1.ReasonMinZonesAboveZones)
	})
	w.waitUnschedulable("policy "+w.namespace+"/web", w.waiting()...)
	require.Equal(t, map[string]int{"zone-a": 1, "zone-b": 1}, w.byZone(labelled("web")))

	w.addNodes("16", "c1")
	w.waitBoundCount(6, labelled("web"))
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
	w.waitStatus(p, "satisfied", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionInfeasible, metav1.ConditionFalse) && hasCondition(s, v1alpha1.ConditionSatisfied, metav1.ConditionTrue)
	})
}

// TestPolicyDeclaredZone: pods wait for a declared zone that has no node yet, rather than crowd the others. So they do for a
// zone that nobody knows; the status names it, and other pods are not affected.
func TestPolicyDeclaredZone(t *testing.T) {
	needControllers(t)
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-z"}}
	})
	w.startScheduler()
	w.deploy(6, "100m", nil)
	w.waitPlaced(2)
	w.waitStatus(p, "zone-z is empty", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-z") == v1alpha1.ZoneEmpty && hasReason(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonZonesWithoutNodes)
	})
	w.waitUnschedulable("policy "+w.namespace+"/web", w.waiting()...)
	require.Equal(t, map[string]int{"zone-a": 1, "zone-b": 1}, w.byZone(labelled("web")))
	w.waitBound(w.create(newPods(3, "other", "100m")...)...)

	w.addNodes("16", "z1")
	w.waitBoundCount(6, labelled("web"))
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-z": 2}, w.byZone(labelled("web")))
	w.waitStatus(p, "zone-z takes part", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-z") == v1alpha1.ZoneAvailable && hasReason(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted)
	})
}

// TestPolicySeveral: a pod that two policies select goes where both let it go, and is told what either says.
func TestPolicySeveral(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	w.spreadBy("not-in-a", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-a", Weight: ptr.To[int32](0)}}
		s.MaxSkew = 100
	})
	w.spreadBy("two-each", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.MaxPerZone = ptr.To(intstr.FromInt32(2))
		s.MaxSkew = 100
	})
	w.startScheduler()
	w.create(newPods(6, "web", "100m", withLabel("app", "web"))...)
	w.waitPlaced(4)
	require.Equal(t, map[string]int{"zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
	require.Len(t, w.waiting(), 2)
	w.waitUnschedulable("policy "+w.namespace+"/not-in-a: zone zone-a has weight 0", w.waiting()...)
	w.waitUnschedulable("policy "+w.namespace+"/two-each: zone zone-b holds 2", w.waiting()...)
}

// TestPolicyRolloutCountsOneRevision: the pods of the old revision do not count, so that the new one is even when they are gone.
func TestPolicyRolloutCountsOneRevision(t *testing.T) {
	needControllers(t)
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	w.spreadBy("web", nil)
	w.startScheduler()
	web := w.deploy(6, "100m", surgeOnly(2))
	w.waitBoundCount(6, labelled("web"))
	for range 2 {
		w.rollOut(web)
		require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
	}
}

// TestPolicyScheduleAnywayIsStrong: zones that are better by every other score do not get more than their share, however many
// replicas there are.
func TestPolicyScheduleAnywayIsStrong(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("100", "a1")
	w.addNodes("10", "b1", "c1")
	w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway })
	w.startScheduler()
	w.waitBound(w.create(newPods(60, "web", "100m", withLabel("app", "web"))...)...)
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b", "zone-c")
}
