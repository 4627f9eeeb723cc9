package ledger

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// source gives small numbers. The property test draws them, the fuzzer supplies them as bytes, so that
// both drive the same events.
type source interface {
	// below returns a number from 0 to n-1.
	below(n int, label string) int
	// more reports whether there is anything left.
	more() bool
}

type fuzzSource []byte

func (s *fuzzSource) more() bool { return len(*s) > 0 }

func (s *fuzzSource) below(n int, _ string) int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

type rapidSource struct {
	t    *rapid.T
	left int
}

func (s *rapidSource) more() bool {
	s.left--
	return s.left >= 0
}

func (s *rapidSource) below(n int, label string) int { return rapid.IntRange(0, n-1).Draw(s.t, label) }

// drive feeds events from a source to both sides until it is exhausted, and compares them after each.
func drive(t require.TestingT, p *pair, s source) {
	for s.more() {
		uid := types.UID(fmt.Sprintf("p%d", s.below(5, "pod")))
		node := fmt.Sprintf("n%d", s.below(5, "node"))
		switch s.below(10, "event") {
		case 0:
			p.assume(t, podFrom(s, uid, node))
		case 1:
			p.forget(t, uid)
		case 2, 3:
			p.add(t, podFrom(s, uid, node))
		case 4:
			// The usual case: what was assumed is confirmed, unchanged.
			if assumed := p.assumed[uid]; assumed != nil {
				p.add(t, assumed.DeepCopy())
			}
		case 5:
			p.update(t, podFrom(s, uid, node))
		case 6:
			p.remove(t, uid)
		case 7:
			p.setNode(nodeFrom(s, node))
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

func resourcesFrom(s source) v1.ResourceList {
	list := v1.ResourceList{}
	for range s.below(3, "resources") {
		list[resourceNames[s.below(len(resourceNames), "resource")]] = *resource.NewMilliQuantity(int64(s.below(6, "amount"))*500, resource.DecimalSI)
	}
	return list
}

// podFrom makes a pod of any shape that changes what it requests.
func podFrom(s source, uid types.UID, node string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c0", Resources: v1.ResourceRequirements{Requests: resourcesFrom(s)}}}},
	}
	switch s.below(8, "shape") {
	case 0:
		pod.Spec.Overhead = resourcesFrom(s)
	case 1:
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "c1", Resources: v1.ResourceRequirements{Requests: resourcesFrom(s)}})
	case 2:
		pod.Spec.InitContainers = []v1.Container{
			{Name: "i0", Resources: v1.ResourceRequirements{Requests: resourcesFrom(s)}, RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
			{Name: "i1", Resources: v1.ResourceRequirements{Requests: resourcesFrom(s)}},
		}
	case 3:
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: resourcesFrom(s)}
	case 4:
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c0", AllocatedResources: resourcesFrom(s), Resources: &v1.ResourceRequirements{Requests: resourcesFrom(s)}}}
		if s.below(2, "infeasible") == 0 {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
		}
	case 5:
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: resourcesFrom(s)}
		pod.Status.AllocatedResources = resourcesFrom(s)
		pod.Status.Resources = &v1.ResourceRequirements{Requests: resourcesFrom(s)}
	}
	return pod
}

func nodeFrom(s source, name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: v1.NodeStatus{Allocatable: resourcesFrom(s)}}
	if zone := s.below(4, "zone"); zone > 0 {
		n.Labels = map[string]string{v1.LabelTopologyZone: fmt.Sprintf("z%d", zone)}
	}
	return n
}

// TestSameAsSchedulerCache is the differential test.
func TestSameAsSchedulerCache(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		drive(r, newPair(ctx), &rapidSource{t: r, left: rapid.IntRange(10, 150).Draw(r, "events")})
	})
}

// FuzzEvents decodes bytes into events, for a fuzzer that is guided by what code they reach.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{0, 0, 7, 2, 0, 4, 1, 1, 0, 0, 0, 0, 1, 0, 2, 3, 4, 0, 0, 4, 0, 0, 9})
	f.Add([]byte{1, 1, 7, 0, 0, 1, 1, 2, 0, 0, 7, 1, 1, 8, 1, 1, 7, 0, 2, 1, 1, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzSource(data)
		drive(t, newPair(t.Context()), &s)
	})
}
