package ledger

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// drive feeds events to both sides, and compares them after each.
func drive(t *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := newPair(ctx)
	for range rapid.IntRange(10, 150).Draw(t, "events") {
		uid := types.UID(fmt.Sprintf("p%d", below(t, 5, "pod")))
		node := fmt.Sprintf("n%d", below(t, 5, "node"))
		switch below(t, 10, "event") {
		case 0:
			p.assume(t, drawPod(t, uid, node))
		case 1:
			p.forget(t, uid)
		case 2, 3:
			p.add(t, drawPod(t, uid, node))
		case 4:
			// The usual case: what was assumed is confirmed, unchanged.
			if assumed := p.assumed[uid]; assumed != nil {
				p.add(t, assumed.DeepCopy())
			}
		case 5:
			p.update(t, drawPod(t, uid, node))
		case 6:
			p.remove(t, uid)
		case 7:
			p.setNode(drawNode(t, node))
		case 8:
			p.removeNode(t, node)
		case 9:
			p.requireSameSnapshots(t)
		}
		p.requireEqual(t)
	}
	p.requireSameSnapshots(t)
}

var resourceNames = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/gpu", v1.ResourceHugePagesPrefix + "2Mi", "kubernetes.io/odd", "attachable-volumes-x", "unprefixed", v1.ResourcePods}

func drawResources(t *rapid.T) v1.ResourceList {
	list := v1.ResourceList{}
	for range below(t, 3, "resources") {
		list[resourceNames[below(t, len(resourceNames), "resource")]] = *resource.NewMilliQuantity(int64(below(t, 6, "amount"))*500, resource.DecimalSI)
	}
	return list
}

// drawPod makes a pod of any shape that changes what it requests.
func drawPod(t *rapid.T, uid types.UID, node string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c0", Resources: v1.ResourceRequirements{Requests: drawResources(t)}}}},
	}
	switch below(t, 8, "shape") {
	case 0:
		pod.Spec.Overhead = drawResources(t)
	case 1:
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "c1", Resources: v1.ResourceRequirements{Requests: drawResources(t)}})
	case 2:
		pod.Spec.InitContainers = []v1.Container{
			{Name: "i0", Resources: v1.ResourceRequirements{Requests: drawResources(t)}, RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
			{Name: "i1", Resources: v1.ResourceRequirements{Requests: drawResources(t)}},
		}
	case 3:
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: drawResources(t)}
	case 4:
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c0", AllocatedResources: drawResources(t), Resources: &v1.ResourceRequirements{Requests: drawResources(t)}}}
		if below(t, 2, "infeasible") == 0 {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
		}
	case 5:
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: drawResources(t)}
		pod.Status.AllocatedResources = drawResources(t)
		pod.Status.Resources = &v1.ResourceRequirements{Requests: drawResources(t)}
	}
	return pod
}

func drawNode(t *rapid.T, name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: v1.NodeStatus{Allocatable: drawResources(t)}}
	if zone := below(t, 4, "zone"); zone > 0 {
		n.Labels = map[string]string{v1.LabelTopologyZone: fmt.Sprintf("z%d", zone)}
	}
	return n
}

// below draws a number from 0 to n-1.
func below(t *rapid.T, n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }

// TestSameAsSchedulerCache is the differential test.
func TestSameAsSchedulerCache(t *testing.T) { rapid.Check(t, drive) }
