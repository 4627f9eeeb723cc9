package ledger

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func container(name string, requests v1.ResourceList) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: requests}}
}

// TestPodRequests: containers add up, and resources that the scheduler does not account for are left out.
func TestPodRequests(t *testing.T) {
	pod := v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{
		container("c", list("cpu", "1", "memory", "10", "ephemeral-storage", "7", "example.com/gpu", "2", "nonsense", "1",
			"requests.example.com/x", "1", "example.com/", "1", "attachable-volumes-x", "1", "kubernetes.io/y", "1")),
		container("d", list("cpu", "500m", "hugepages-2Mi", "4Mi", "example.com/gpu", "1")),
	}}}
	require.Equal(t, Resources{
		MilliCPU: 1500, Memory: 10, EphemeralStorage: 7, Pods: 1,
		Scalar: map[v1.ResourceName]int64{"example.com/gpu": 3, "hugepages-2Mi": 4 << 20, "attachable-volumes-x": 1, "kubernetes.io/y": 1},
	}, podRequests(&pod, DefaultOptions().Requests))
}

// TestPodRequestsAreUpstreams: whatever else than its one container says what a pod requests, it counts as upstream has it.
func TestPodRequestsAreUpstreams(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"one container": func(*v1.Pod) {},
		"no container":  func(pod *v1.Pod) { pod.Spec.Containers = nil },
		"two containers": func(pod *v1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, container("d", list("cpu", "1500u")))
		},
		"an init container":  func(pod *v1.Pod) { pod.Spec.InitContainers = []v1.Container{container("i", list("cpu", "3"))} },
		"overhead":           func(pod *v1.Pod) { pod.Spec.Overhead = list("cpu", "1") },
		"pod-level requests": func(pod *v1.Pod) { pod.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "2")} },
		"an allocated container": func(pod *v1.Pod) {
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: list("cpu", "2")}}
		},
		"an actuated container": func(pod *v1.Pod) {
			pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: &v1.ResourceRequirements{Requests: list("cpu", "2")}}}
		},
		"an allocated init container by the same name": func(pod *v1.Pod) {
			pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: list("cpu", "2")}}
		},
		"an allocated pod": func(pod *v1.Pod) {
			pod.Status.AllocatedResources, pod.Status.Resources = list("cpu", "2"), &v1.ResourceRequirements{Requests: list("cpu", "1")}
		},
		"an actuated pod": func(pod *v1.Pod) {
			pod.Status.AllocatedResources, pod.Status.Resources = list("cpu", "1"), &v1.ResourceRequirements{Requests: list("cpu", "2")}
		},
		"devices of the node's own": func(pod *v1.Pod) { // the field has another type in earlier versions
			_ = json.Unmarshal([]byte(`{"nodeAllocatableResourceClaimStatuses": [{"mapping": [{"name": "cpu", "quantity": "2"}], "resources": {"cpu": "2"}}]}`), &pod.Status)
		},
		"a resize that can never be": func(pod *v1.Pod) {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
		},
	} {
		for _, options := range []helper.PodResourcesOptions{DefaultOptions().Requests, {UseDRANodeAllocatableResourceClaimStatus: true}, {}} {
			pod := v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("c", list("cpu", "1500u", "example.com/gpu", "1"))}}}
			change(&pod)
			want := ResourcesOf(helper.PodRequests(&pod, options))
			want.Pods = 1
			require.Equal(t, want, podRequests(&pod, options), "%s, %+v", name, options)
		}
	}
}

func TestResourcesEqual(t *testing.T) {
	a := Resources{MilliCPU: 1, Memory: 2, EphemeralStorage: 3, Pods: 4, Scalar: map[v1.ResourceName]int64{"x/y": 1}}
	same := a.Clone()
	same.Scalar["x/z"] = 0
	require.True(t, a.Equal(&same), "an absent resource is 0")
	require.True(t, same.Equal(&a))
	for name, change := range map[string]func(*Resources){
		"cpu":     func(r *Resources) { r.MilliCPU++ },
		"memory":  func(r *Resources) { r.Memory++ },
		"storage": func(r *Resources) { r.EphemeralStorage++ },
		"pods":    func(r *Resources) { r.Pods++ },
		"scalar":  func(r *Resources) { r.Scalar["x/y"]++ },
		"more":    func(r *Resources) { r.Scalar["x/z"] = 1 },
		"fewer":   func(r *Resources) { r.Scalar = nil },
	} {
		b := a.Clone()
		change(&b)
		require.False(t, a.Equal(&b), name)
		require.False(t, b.Equal(&a), name)
	}
}

func TestResourcesRaise(t *testing.T) {
	r := Resources{MilliCPU: 5, Memory: -3, Scalar: map[v1.ResourceName]int64{"a/x": 2}}
	r.SetMax(&Resources{MilliCPU: 4, Memory: -1, EphemeralStorage: 7, Pods: 1, Scalar: map[v1.ResourceName]int64{"a/x": 1, "a/y": 9}})
	require.Equal(t, Resources{MilliCPU: 5, Memory: -1, EphemeralStorage: 7, Pods: 1, Scalar: map[v1.ResourceName]int64{"a/x": 2, "a/y": 9}}, r)
	var none Resources
	none.SetMax(&r)
	r.Memory = 0
	require.Equal(t, r, none)
}

// TestArithmetic: amounts are computed resource by resource, and no result shares a map with what it was made of.
func TestArithmetic(t *testing.T) {
	const gpu, disk v1.ResourceName = "example.com/gpu", "example.com/disk"
	scalars := func(gpus, disks int64) map[v1.ResourceName]int64 {
		m := map[v1.ResourceName]int64{}
		for name, n := range map[v1.ResourceName]int64{gpu: gpus, disk: disks} {
			if n != 0 {
				m[name] = n
			}
		}
		return m
	}
	a := Resources{MilliCPU: 3, Memory: 5, EphemeralStorage: 1, Pods: 2, Scalar: scalars(4, 0)}
	b := Resources{MilliCPU: 4, Memory: 2, EphemeralStorage: 1, Scalar: scalars(1, 2)}
	left := a.Minus(&b)
	require.Equal(t, Resources{MilliCPU: -1, Memory: 3, Pods: 2, Scalar: scalars(3, -2)}, left)
	require.Equal(t, Resources{Memory: 3, Pods: 2, Scalar: scalars(3, 0)}, left.Positive())
	require.Equal(t, Resources{MilliCPU: 6, Memory: 10, EphemeralStorage: 2, Pods: 4, Scalar: scalars(8, 0)}, a.Times(2))
	require.Equal(t, Resources{MilliCPU: 3, Memory: 5, EphemeralStorage: 1, Pods: 2, Scalar: scalars(4, 0)}, a)

	var put Resources
	require.True(t, put.IsZero())
	for name := range a.Named() {
		put.Put(name, a.Amount(name))
	}
	require.True(t, put.Equal(&a))
	require.False(t, put.IsZero())
	put = ResourcesOf(a.List())
	require.True(t, put.Equal(&a), "%+v", put)
	put.Put(gpu, 0)
	require.NotContains(t, put.List(), gpu)
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAssumePodRefusesWhatItCannotAccount(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	require.ErrorIs(t, l.AssumePod(makePod("", "", "1", "1Gi"), "n1", t0), ErrNoUID)
	require.ErrorIs(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "", t0), ErrNoNode)

	require.NoError(t, l.AssumePod(makePod("p", "", "1", "1Gi"), "n1", t0))
	err := l.AssumePod(makePod("p", "", "1", "1Gi"), "n2", t0)
	require.ErrorIs(t, err, ErrAssumed)
	require.ErrorContains(t, err, `"n1"`)

	mustAdd(t, l, makePod("q", "n1", "1", "1Gi"), PodAdded)
	require.ErrorIs(t, l.AssumePod(makePod("q", "", "1", "1Gi"), "n1", t0), ErrAdded)

	require.Equal(t, Stats{Pods: 2, AssumedPods: 1, Nodes: 1, OldestAssumed: t0}, l.Stats(), "a refusal changes nothing")
}

func TestGetPodTellsTheStory(t *testing.T) {
	l := New(DefaultOptions())
	l.AddNode(makeNode("n1", "a"))
	_, known := l.GetPod("p")
	require.False(t, known)

	assumed := makePod("p", "", "1", "1Gi")
	require.NoError(t, l.AssumePod(assumed, "n1", t0))
	got, known := l.GetPod("p")
	require.True(t, known)
	want := PodStatus{Pod: assumed, State: Assumed, Node: "n1", Requests: Resources{MilliCPU: 1000, Memory: 1 << 30, Pods: 1}, AssumedAt: t0}
	require.Equal(t, want, got)

	bound := makePod("p", "n1", "1", "1Gi")
	mustAdd(t, l, bound, PodConfirmed)
	got, _ = l.GetPod("p")
	require.Equal(t, PodStatus{Pod: bound, State: Added, Node: "n1", Requests: want.Requests}, got)
}
