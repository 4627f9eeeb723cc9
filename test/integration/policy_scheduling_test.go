package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// TestPolicyWeights: ten replicas over weights of 7 and 3, hard and soft; what is written into the status.
func TestPolicyWeights(t *testing.T) {
	needControllers(t)
	for _, action := range []v1alpha1.UnsatisfiableAction{v1alpha1.DoNotSchedule, v1alpha1.ScheduleAnyway} {
		for _, file := range []string{"zonespread.yaml", "zonewise.yaml"} {
			t.Run(string(action)+" "+file, func(t *testing.T) {
				w := newPolicyWorld(t)
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
}

// TestPolicyRollout: a cap of 40% with 10 replicas and quorumSafe with 3 stand through a rolling update and a scale-up, and
// block neither.
func TestPolicyRollout(t *testing.T) {
	needControllers(t)
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
			patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 2*c.replicas+1)
			require.NoError(t, cp.client.Patch(w.ctx, web, client.RawPatch("application/merge-patch+json", patch)))
			w.waitBoundCount(int(2*c.replicas+1), labelled("web"))
		})
	}
}

// TestPolicyMessage: the event says what an operator wants to know.
func TestPolicyMessage(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(2)) })
	w.startScheduler()
	pods := w.create(newPods(5, "web", "100m", withLabel("app", "web"))...)
	w.waitPlaced(4)
	for _, pod := range pods {
		if w.pod(pod).Spec.NodeName == "" {
			w.waitEvent("Pod", pod.Name, "policy "+w.namespace+"/web: zone zone-a holds 2 of 5, share 2.5, cap 2 (maxPerZone 2)")
		}
	}
	// Other pods are untouched.
	w.waitBound(w.create(newPod("other", "100m"))...)
}

// TestPolicyFullZone: with one of three zones full, all nine replicas are bound within 10 s after fullAfter.
func TestPolicyFullZone(t *testing.T) {
	needControllers(t)
	const fullAfter = 6 * time.Second
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	w.addNodes("50m", "c1", "c2")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.UnavailableZones = failover(time.Hour, fullAfter) })
	w.startScheduler()
	began := time.Now()
	w.deploy(9, "100m", nil)
	w.waitPlaced(2)
	w.waitBoundCount(9, labelled("web"))
	took := time.Since(began)
	require.Greater(t, took, fullAfter, "not before the grace period is over")
	require.Less(t, took, fullAfter+10*time.Second)
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "zone-c is full", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-c") == v1alpha1.ZoneFull && s.Pods == 9
	})

	// It has room again: new pods fill it first, and nothing is blocked.
	w.addNodes("16", "c3")
	patch := []byte(`{"spec":{"replicas":12}}`)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
	require.NoError(t, cp.client.Patch(w.ctx, web, client.RawPatch("application/merge-patch+json", patch)))
	w.waitBoundCount(12, labelled("web"))
	require.Equal(t, 3, w.byZone(labelled("web"))["zone-c"], "%v", w.byZone(labelled("web")))
}

// TestPolicyDeadZone: every replica that fits elsewhere is bound within 10 s after downAfter; when the zone is back new pods
// fill it first.
func TestPolicyDeadZone(t *testing.T) {
	needControllers(t)
	const downAfter = 6 * time.Second
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1", "c1", "c2")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.UnavailableZones = failover(downAfter, time.Hour) })
	w.startScheduler()
	w.waitStatus(p, "the zones are known", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return len(s.Zones) == 3 })
	struck := time.Now()
	w.strike("c1", "c2")
	web := w.deploy(9, "100m", nil)
	w.waitPlaced(2)
	w.waitBoundCount(9, labelled("web"))
	took := time.Since(struck)
	require.Greater(t, took, downAfter-time.Second, "the condition's time has whole seconds")
	require.Less(t, took, downAfter+10*time.Second)
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "zone-c is down", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return stateOf(s, "zone-c") == v1alpha1.ZoneDown })

	w.heal("c1", "c2")
	w.waitStatus(p, "zone-c is recovering", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-c") == v1alpha1.ZoneRecovering
	})
	patch := []byte(`{"spec":{"replicas":12}}`)
	require.NoError(t, cp.client.Patch(w.ctx, web, client.RawPatch("application/merge-patch+json", patch)))
	w.waitBoundCount(12, labelled("web"))
	require.Equal(t, 3, w.byZone(labelled("web"))["zone-c"], "%v", w.byZone(labelled("web")))
}

// TestPolicyRestart: a scheduler that is restarted in the middle of a grace period goes on with it: the zone has been full since the
// first scheduler saw it.
func TestPolicyRestart(t *testing.T) {
	needControllers(t)
	const fullAfter = 10 * time.Second
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	w.addNodes("50m", "c1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.UnavailableZones = failover(time.Hour, fullAfter) })
	first := w.startScheduler()
	began := time.Now()
	w.deploy(9, "100m", nil)
	var refused *metav1.Time
	w.waitStatus(p, "the refusal is remembered", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		refused = troubleOf(s, "zone-c")
		return refused != nil
	})
	w.stopScheduler(first)
	// Times in the status have whole seconds: a period that begins anew has another beginning.
	w.eventually("another second", func() (bool, string) { return time.Since(refused.Time) > 2*time.Second, "" })
	require.Equal(t, 2, w.placed())
	require.Less(t, time.Since(began), fullAfter)
	w.startScheduler()
	w.waitBoundCount(9, labelled("web"))
	require.Greater(t, time.Since(began), fullAfter)
	w.waitStatus(p, "zone-c is full", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return stateOf(s, "zone-c") == v1alpha1.ZoneFull })
	got := &v1alpha1.ZoneSpreadPolicy{}
	require.NoError(t, w.policies.Get(w.ctx, client.ObjectKeyFromObject(p), got))
	require.True(t, sinceOf(&got.Status, "zone-c").Equal(refused), "full since %s, the first scheduler said %s", sinceOf(&got.Status, "zone-c"), refused)
}

// TestPolicyWakesWaitingPods: a policy that is made, changed and deleted while pods wait.
func TestPolicyWakesWaitingPods(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1")
	first := w.spreadBy("first", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(1)) })
	w.startScheduler()
	pods := w.create(newPods(6, "web", "100m", withLabel("app", "web"))...)
	w.waitPlaced(2)
	w.waitStatus(first, "four wait", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return s.Pods == 2 && hasCondition(s, v1alpha1.ConditionSatisfied, metav1.ConditionFalse) && hasCondition(s, v1alpha1.ConditionInfeasible, metav1.ConditionTrue)
	})

	w.respec(first, `{"spec":{"maxPerZone":2}}`)
	w.waitPlaced(4)

	second := w.spreadBy("second", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(2)) })
	w.waitStatus(second, "seen", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return s.ObservedGeneration > 0 })
	require.NoError(t, w.policies.Delete(w.ctx, first))
	waiting := func() (still []*v1.Pod) {
		for _, pod := range pods {
			if w.pod(pod).Spec.NodeName == "" {
				still = append(still, pod)
			}
		}
		return still
	}
	w.waitUnschedulable("policy "+w.namespace+"/second", waiting()...)
	require.Len(t, waiting(), 2)
	require.NoError(t, w.policies.Delete(w.ctx, second))
	w.waitBound(pods...)
}

// TestPolicyAndConstraint: a pod with both obeys both.
func TestPolicyAndConstraint(t *testing.T) {
	w := newPolicyWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "zone-a", Weight: ptr.To[int32](0)}}
		s.MaxSkew = 100
	})
	w.startScheduler()
	pods := w.create(newPods(3, "web", "100m", ofApp("web", 1, hard))...)
	w.waitPlaced(2)
	var third *v1.Pod
	for _, pod := range pods {
		if w.pod(pod).Spec.NodeName == "" {
			third = pod
		}
	}
	w.waitUnschedulable("policy "+w.namespace+"/web: zone zone-a has weight 0", third)
	w.waitUnschedulable("2 node(s) didn't match pod topology spread constraints", third)
	require.Equal(t, map[string]int{"zone-b": 1, "zone-c": 1}, w.byZone(labelled("web")))
}

// TestPolicyCRDComesLater: without the CustomResourceDefinition pods are placed as ever; once it is there, policies hold.
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
