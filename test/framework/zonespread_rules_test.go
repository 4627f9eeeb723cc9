package framework

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// zoneA declares zone a and leaves the others open.
func zoneA(edit func(*v1alpha1.ZoneSpreadZone)) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		zone := v1alpha1.ZoneSpreadZone{Name: "a"}
		edit(&zone)
		s.Zones = []v1alpha1.ZoneSpreadZone{zone}
	}
}

func notInA(s *v1alpha1.ZoneSpreadPolicySpec) {
	zoneA(func(z *v1alpha1.ZoneSpreadZone) { z.Weight = ptr.To[int32](0) })(s)
	s.MaxSkew = 100
}

// waitReason waits until every pod that is not bound was refused for a reason that contains each of the texts.
func (c *cluster) waitReason(texts ...string) {
	c.t.Helper()
	c.eventually(strings.Join(texts, "; "), func() bool {
		for _, pod := range c.listPods("") {
			for _, text := range texts {
				if pod.Spec.NodeName == "" && !strings.Contains(refusal(&pod), text) {
					return false
				}
			}
		}
		return true
	})
}

// refusal is what the scheduler says about a pod that waits.
func refusal(pod *v1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodScheduled {
			return condition.Message
		}
	}
	return ""
}

// TestSeveralPolicies: a pod that two policies select goes where both let it go, and its condition says what either of
// them objects to.
func TestSeveralPolicies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		c.policies.Put(newPolicy(notInA))
		twoEach := newPolicy(maxPerZone("2", 100))
		twoEach.Name = "two-each"
		c.policies.Put(twoEach)
		c.start()
		c.createPods(newPods(6, "web", "100m")...)
		c.waitZones("", map[string]int{"b": 2, "c": 2})
		c.waitReason("policy default/web: zone a has weight 0", "policy default/two-each: zone b holds 2, cap 2 (maxPerZone 2)")
	})
}

// TestPolicyAndConstraint: a pod with both keeps to both.
func TestPolicyAndConstraint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		c.policies.Put(newPolicy(notInA))
		c.start()
		c.createPods(newPods(3, "web", "100m", func(pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{overZones()}
		})...)
		c.waitZones("", map[string]int{"b": 1, "c": 1})
		c.waitReason("policy default/web: zone a has weight 0", "2 node(s) didn't match pod topology spread constraints")
	})
}

// TestScheduleAnywayIsStrong: zones that are better by every other score do not get more than their share, however many
// pods there are.
func TestScheduleAnywayIsStrong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("100", "a1")
		c.addNodes("10", "b1", "c1")
		c.policies.Put(newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.WhenUnsatisfiable = v1alpha1.ScheduleAnyway }))
		c.start()
		c.createPods(newPods(60, "web", "100m")...)
		c.waitZones("", map[string]int{"a": 20, "b": 20, "c": 20})
	})
}

// ofReplicas has caps refer to a number.
func ofReplicas(n int32) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.Replicas = ptr.To(intstr.FromInt32(n)) }
}

func maxPerZone(limit string, maxSkew int32) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.MaxPerZone, s.MaxSkew = ptr.To(intstr.Parse(limit)), maxSkew
	}
}

// TestEachWorkloadHasTheCapsForItself: of each of two workloads of ten under one policy with 40% no zone gets more than
// four pods, though there is room in one zone only.
func TestEachWorkloadHasTheCapsForItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		web, api := deployment("web", 10), deployment("api", 10)
		webSet, apiSet := revision(web, "1", 10), revision(api, "2", 10)
		c := newSpreadCluster(t, web, api, webSet, apiSet)
		c.addNodes("100", "a1")
		c.addNodes("200m", "b1", "c1")
		c.policies.Put(newPolicy(maxPerZone("40%", 100)))
		c.start()
		c.createPods(newPods(10, "web", "100m", ofSet(webSet))...)
		c.createPods(newPods(10, "api", "100m", ofSet(apiSet))...)
		c.waitZones("", map[string]int{"a": 8, "b": 2, "c": 2})
		c.pass(30 * time.Second)
		require.Equal(t, 4, c.byZone("web")["a"])
		require.Equal(t, 4, c.byZone("api")["a"])
	})
}

// TestPolicyEvents: the pods that a policy refused, and no others, go on when it is changed, deleted, or its
// CustomResourceDefinition taken away; when that is back, the policy counts what came meanwhile.
func TestPolicyEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("10", "a1", "b1")
		one := newPolicy(maxPerZone("1", 100))
		c.policies.Put(one)
		c.start()
		c.createPods(newPods(6, "web", "100m")...)
		c.createPods(newPod("other", "100", func(pod *v1.Pod) { pod.Labels["app"] = "other" }))
		c.waitBound("", 2)
		c.policies.Put(newPolicy(maxPerZone("2", 100)))
		c.waitBound("", 4)
		c.pass(20 * time.Second)
		c.policies.Serve(&v1alpha1.ZoneSpreadPolicy{}, false)
		c.waitBound("", 6)
		c.createPods(newPods(2, "meanwhile", "100m")...)
		c.waitBound("", 8)

		c.policies.Serve(&v1alpha1.ZoneSpreadPolicy{}, true)
		c.eventually("all pods are counted", func() bool { return c.status().Pods == 8 })
		c.policies.Put(newPolicy(maxPerZone("5", 100)))
		c.createPods(newPods(4, "again", "100m")...)
		c.waitZones("", map[string]int{"a": 5, "b": 5})
		c.pass(20 * time.Second)
		require.Len(t, c.bound("again"), 2)
		c.policies.Delete(one)
		c.waitBound("again", 4)
		require.Equal(t, 1, c.mishap.tried("other"), "nothing of this is about the other pod")
	})
}

// TestPolicyOfAnotherNamespace: a policy that forbids every zone binds the pods of its own namespace alone.
func TestPolicyOfAnotherNamespace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("4", "a1", "b1")
		forbidding := func(s *v1alpha1.ZoneSpreadPolicySpec) { s.DefaultWeight = ptr.To[int32](0) }
		policy := newPolicy(forbidding)
		policy.Namespace = "mallory"
		c.policies.Put(policy)
		c.start()
		c.createPods(newPod("victim", "1"))
		c.waitBound("victim", 1)

		c.policies.Put(newPolicy(forbidding))
		c.createPods(newPod("own", "1"))
		c.waitReason("policy default/web")
	})
}
