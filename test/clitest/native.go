package clitest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/sim/kinds"
)

// NativeGang adds a PodGroup of scheduling.k8s.io with a member on each of the nodes, which asks for so many CPUs; it
// waits if the node is empty. A Job replaces the members. A minCount of 0 is a basic policy.
func (c *Cluster) NativeGang(name string, minCount int32, cpu string, nodes ...string) *kinds.NativePodGroup {
	group := &kinds.NativePodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: c.inNamespace(), Name: name, UID: c.uid(), Generation: 1}}
	if minCount > 0 {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	} else {
		group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	}
	c.Add(group)
	for i, node := range nodes {
		pod := c.Pod(fmt.Sprintf("%s-%d", name, i), node, Plain(cpu, "1Gi"), map[string]string{"app": name})
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(name)}
		Owned(pod, "batch/v1", "Job", name)
	}
	return group
}
