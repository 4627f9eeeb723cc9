package clitest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// Story is a small cluster in which something is wrong with almost everything: a policy whose cap keeps a pod
// waiting, a gang that lacks room for one member, held slots, a pod without a controller.
func Story() *Cluster {
	c := New()
	for _, zone := range []string{"a", "b", "c"} {
		for i := range 2 {
			c.Node(fmt.Sprintf("node-%s%d", zone, i), zone, "8", "32Gi")
		}
	}
	web := c.Deployment("web", 7, "1", "2Gi", nil)
	for i := range 6 {
		pod := web(fmt.Sprintf("node-%s%d", []string{"a", "b", "c"}[i%3], i/3))
		if i == 0 {
			pod.Annotations = map[string]string{corev1.PodDeletionCost: "7"}
		}
	}
	waiting := web("")
	waiting.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(Now.Add(-4 * time.Minute)), Message: "0/6 nodes are available: policy shop/web: zone a holds 2 of 7",
	}}
	policy := c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", MaxPods: ptr.To[int32](2)}, {Name: "b", MaxPods: ptr.To[int32](2)}, {Name: "c", MaxPods: ptr.To[int32](2)}}
		s.ScaleDownPolicy = v1alpha1.ScaleDownKeepSpread
	})
	policy.Status = v1alpha1.ZoneSpreadPolicyStatus{
		ObservedGeneration: 1, Replicas: 7, Pods: 6, Skew: 0,
		Zones: []v1alpha1.ZoneStatus{
			{Name: "a", Pods: 2, Desired: 2, State: v1alpha1.ZoneAvailable},
			{Name: "b", Pods: 2, Desired: 2, State: v1alpha1.ZoneAvailable},
			{Name: "c", Pods: 2, Desired: 2, State: v1alpha1.ZoneAvailable},
		},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted},
			{Type: v1alpha1.ConditionInfeasible, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCapsBelowReplicas, Message: "the caps of 3 zones add up to 6 pods, fewer than the 7 replicas (maxPods)"},
			{
				Type: v1alpha1.ConditionScaleDownOrdered, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonOtherManager,
				Message: "ReplicaSet shop/web-1 is left alone: Pod web-1-1 has a deletion cost of kubectl-annotate",
			},
		},
	}
	c.Budget("web", 5)

	db := c.Deployment("db", 3, "2", "8Gi", Spread("db"))
	for _, zone := range []string{"a", "b", "c"} {
		db("node-" + zone + "0")
	}
	c.Budget("db", 2)

	c.Gang("train", 4)
	gang := map[string]string{"app": "train", "scheduling.x-k8s.io/pod-group": "train"}
	for i := range 4 {
		c.Pod(fmt.Sprintf("train-%d", i), "", Plain("6", "4Gi"), gang)
	}
	c.Gang("whole", 2)
	c.Members("whole", "500m", "node-b1", "node-b1")
	c.Reservation("web-failover", "web", "1", 0, map[string]int64{"node-c1": 6})
	c.Pod("bare", "node-a1", Plain("100m", "128Mi"), nil)
	return c
}
