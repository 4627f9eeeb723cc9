package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// TestPolicyWeights: ten replicas over weights of 7 and 3, hard and soft; what is written into the status.
func TestPolicyWeights(t *testing.T) {
	t.Parallel()
	for file, action := range map[string]v1alpha1.UnsatisfiableAction{
		"zonespread.yaml": v1alpha1.DoNotSchedule, "zonewise.yaml": v1alpha1.ScheduleAnyway,
	} {
		t.Run(string(action)+" "+file, func(t *testing.T) {
			w := newPolicyWorld(t)
			w.needControllers()
			w.addNodes("16", "a1", "a2", "b1", "b2", "c1")
			p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
				s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-a", Weight: ptr.To[int32](7)}, {Name: "zone-b", Weight: ptr.To[int32](3)}}
				s.DefaultWeight = ptr.To[int32](0)
				s.WhenUnsatisfiable = action
			})
			w.startScheduler(configured(file))
			w.deploy(10, "100m", nil)
			w.waitBoundCount(10, labelled("web"))
			require.Equal(t, map[string]int{"zone-a": 7, "zone-b": 3}, w.byZone(labelled("web")))
			w.waitStatus(p, "complete", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
				return s.Replicas == 10 && s.Pods == 10 && len(s.Zones) == 3 && s.Zones[0].Pods == 7 && s.Zones[0].Desired == 7 &&
					hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue) &&
					hasCondition(s, v1alpha1.ConditionSatisfied, metav1.ConditionTrue) &&
					hasCondition(s, v1alpha1.ConditionInfeasible, metav1.ConditionFalse)
			})
		})
	}
}

// TestPolicyRollout: a cap of 40% with 10 replicas and quorumSafe with 3 stand through a rolling update and a scale-up, and
// block neither.
func TestPolicyRollout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas int32
		most     int
		edit     func(*v1alpha1.ZoneSpreadPolicySpec)
	}{
		"40% of 10": {10, 4, func(s *v1alpha1.ZoneSpreadPolicySpec) {
			s.MaxPerZone = ptr.To(intstr.FromString("40%"))
			s.MaxSkew = 10
		}},
		"quorumSafe of 3": {3, 1, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.QuorumSafe = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPolicyWorld(t)
			w.needControllers()
			w.addNodes("100", "a1") // the best by every score
			w.addNodes("16", "b1", "c1")
			w.spreadBy("web", c.edit)
			w.startScheduler()
			web := w.deploy(c.replicas, "100m", surgeOnly(1))
			w.waitBoundCount(int(c.replicas), labelled("web"))
			check := func() {
				t.Helper()
				for zone, n := range w.byZone(labelled("web")) {
					require.LessOrEqual(t, n, c.most, zone)
				}
			}
			check()
			w.rollOut(web)
			check()
			w.scale(2*c.replicas + 1)
			w.waitBoundCount(int(2*c.replicas+1), labelled("web"))
		})
	}
}

// TestPolicyRolloutCountsOneRevision: the pods of the old revision do not count, so that the new one is even when they are gone.
func TestPolicyRolloutCountsOneRevision(t *testing.T) {
	w := newPolicyWorld(t)
	w.needControllers()
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

// TestPolicyDrain: the drain of a declared zone, by evictions that a PodDisruptionBudget limits, goes on after downAfter: until
// then the replacements wait for the zone, and the budget for the replacements.
func TestPolicyDrain(t *testing.T) {
	const downAfter = 5 * time.Second
	w := newPolicyWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "b1", "c1", "c2")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-a"}, {Name: "zone-b"}, {Name: "zone-c"}}
		s.UnavailableZones = failover(downAfter, time.Hour)
	})
	require.NoError(t, w.cp.client.Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labelled("web")},
		},
	}))
	w.startScheduler()
	w.deploy(9, "100m", nil)
	w.waitBoundCount(9, labelled("web"))
	require.Equal(t, 3, w.byZone(labelled("web"))["zone-c"])

	began := time.Now()
	for _, name := range []string{"c1", "c2"} {
		w.patchNode(name, `{"spec":{"unschedulable":true}}`)
	}
	w.eventually("zone-c is drained", func() (bool, string) {
		for _, pod := range w.pods(labelled("web")) {
			if strings.HasPrefix(pod.Spec.NodeName, "c") && pod.DeletionTimestamp == nil {
				eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
				err := w.cp.kube.PolicyV1().Evictions(pod.Namespace).Evict(w.ctx, eviction)
				if !apierrors.IsTooManyRequests(err) {
					require.NoError(t, client.IgnoreNotFound(err))
				}
			}
		}
		counts := w.byZone(labelled("web"))
		return counts["zone-c"] == 0, fmt.Sprint(counts)
	})
	w.waitBoundCount(9, labelled("web"))
	require.Greater(t, time.Since(began), downAfter, "the replacements did not wait for the zone")
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "zone-c is closed", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-c") == v1alpha1.ZoneClosed && hasCondition(s, v1alpha1.ConditionSatisfied, metav1.ConditionTrue)
	})
}

// TestPolicyCRDComesLater: without the CustomResourceDefinition pods are placed as before; once it is there, policies hold.
func TestPolicyCRDComesLater(t *testing.T) {
	w := newPolicyWorldWithout(t)
	w.uninstallCRD(policyCRD)
	w.addNodes("16", "a1", "b1")
	w.startScheduler()
	w.waitBound(w.create(
		newPod("before-a", "100m", withLabel("app", "web"), onNode("a1")),
		newPod("before-b", "100m", withLabel("app", "web"), onNode("b1")))...)

	w.installCRD(policyCRD)
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(1)) })
	bad := w.spreadBy("bad", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}}
	})
	w.waitStatus(bad, "rejected", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	})
	w.waitStatus(p, "seen", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return hasCondition(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue)
	})
	w.waitUnschedulable("policy "+w.namespace+"/web", w.create(newPod("after", "100m", withLabel("app", "web")))...)
	w.waitBound(w.create(newPod("other", "100m"))...)
}
