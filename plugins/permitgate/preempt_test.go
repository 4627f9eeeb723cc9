package permitgate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// placedPod is a pod on a node, of a thousandth of cpu for each letter of its name.
type placedPod struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p placedPod) GetPod() *v1.Pod { return p.pod }
func (p placedPod) CalculateResource() fwk.PodResource {
	return fwk.PodResource{Resource: amounts{cpu: int64(len(p.pod.Name)), memory: 1 << 20}}
}

// busyNode makes a node with pods of priority 1, changed as told.
func busyNode(name string, pods ...*v1.Pod) *fakeNode {
	n := &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, room: amounts{cpu: 100, memory: 1 << 30, pods: 10}}
	for _, pod := range pods {
		n.pods = append(n.pods, placedPod{pod: pod})
	}
	return n
}

func lowPod(name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: ptr.To[int32](1)}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func inPodGroup(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Labels = map[string]string{v1alpha1.PodGroupLabel: name} }
}

func endsAt(at time.Time) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: at} }
}

// used says that the pods with these names use what others hold.
type used map[types.UID]bool

func (used) Subtract(string, types.UID, int32, func(types.UID) bool, []v1.ResourceName, []int64) {}
func (u used) Keeps(_ string, _ types.UID, _ int32, pod types.UID) bool                          { return u[pod] }

func TestCandidates(t *testing.T) {
	now := time.Now()
	native := func(pod *v1.Pod) {
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("native")}
	}
	cluster := &view{
		priority: 10, held: used{"slot": true}, member: func(uid types.UID) bool { return uid == "own" },
		nodes: []fwk.NodeInfo{
			busyNode(
				"a", lowPod("low"), lowPod("own"), lowPod("slot"),
				lowPod("high", func(pod *v1.Pod) { pod.Spec.Priority = ptr.To[int32](10) }),
				lowPod("daemon", func(pod *v1.Pod) {
					pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: ptr.To(true)}}
				}),
				lowPod("going", endsAt(now)),
				lowPod("higher", endsAt(now.Add(time.Hour)), func(pod *v1.Pod) { pod.Spec.Priority = ptr.To[int32](10) }),
				lowPod("stuck", endsAt(now.Add(-preemptionSlack))),
			),
			busyNode(
				"b", lowPod("one-0", inPodGroup("one")), lowPod("one-1", inPodGroup("one")), lowPod("one-2", inPodGroup("one")),
				lowPod("one-3", inPodGroup("one"), endsAt(now)), lowPod("gone", inPodGroup("gone")),
				lowPod("part-0", inPodGroup("part")), lowPod("part-1", inPodGroup("part"), func(pod *v1.Pod) { pod.Spec.Priority = ptr.To[int32](10) }),
				lowPod("native-0", native), lowPod("native-1", native),
			),
		},
	}
	s := NewShared()
	s.args = ptr.To(defaultArgs())
	for name, minMember := range map[string]int{"one": 2, "part": 1} {
		s.change(types.NamespacedName{Namespace: "ns", Name: name}, func(e *entry, now time.Time) {
			e.gang.SetGroup(gang.Spec{UID: types.UID(name), MinMember: minMember}, now)
		})
	}
	find := s.candidates(cluster, now)
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourcePods}

	var got []string
	for _, c := range find(0, names) {
		require.Nil(t, c.Company)
		require.Equal(t, []int64{int64(len(c.Pod.Name)), 1}, c.Gain)
		got = append(got, fmt.Sprint(c.Pod.Name, " ", c.Leaving))
	}
	require.Equal(t, []string{"low false", "going true", "higher true"}, got)

	companies := map[string]plan.Company{}
	for _, c := range find(1, names) {
		if c.Company == nil {
			companies[c.Pod.Name] = plan.Company{}
			continue
		}
		companies[c.Pod.Name] = *c.Company
	}
	one := plan.Company{Name: "ns/one", Spare: 1, Whole: true}
	part := plan.Company{Name: "ns/part", Spare: 1}
	whole := plan.Company{Name: "ns/native", Whole: true}
	require.Equal(t, map[string]plan.Company{
		"one-0": one, "one-1": one, "one-2": one, "one-3": {}, "gone": {}, "part-0": part, "native-0": whole, "native-1": whole,
	}, companies)
}

// TestWithout: a cluster without some pods has their room, once.
func TestWithout(t *testing.T) {
	low, other := lowPod("low"), lowPod("other")
	cluster := &view{
		nodes: []fwk.NodeInfo{busyNode("a", low, other), busyNode("b")}, member: func(types.UID) bool { return false },
		nominated: func(string) []fwk.PodInfo { return nil },
	}
	names, free := []v1.ResourceName{v1.ResourceCPU}, []int64{0}
	left := cluster.without([]plan.Removal{{Pod: low, Node: 0}})
	left.Free(0, names, free)
	require.Equal(t, int64(100+3), free[0])
	var rest []string
	for pod := range left.Pods(0) {
		rest = append(rest, pod.Name)
	}
	require.Equal(t, []string{"other"}, rest)
	left = left.without([]plan.Removal{{Pod: other, Node: 0}, {Pod: low, Node: 0}})
	left.Free(0, names, free)
	require.Equal(t, int64(100+3+5), free[0])
	cluster.Free(0, names, free)
	require.Equal(t, int64(100), free[0])
	require.Equal(t, []plan.Removal{{Pod: other, Node: 0}}, cluster.still(map[types.UID]string{"other": "a", "nobody": "b"}))
}

// TestWithoutPorts: who is gone uses no host port, and whoever is left does.
func TestWithoutPorts(t *testing.T) {
	uses := func(ports ...int32) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			c := v1.Container{}
			for _, p := range ports {
				c.Ports = append(c.Ports, v1.ContainerPort{HostPort: p})
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	one, two := lowPod("one", uses(80, 81)), lowPod("two", uses(82))
	n := busyNode("a", one, two)
	n.used = fwk.HostPortInfo{}
	for _, p := range []int32{80, 81, 82} {
		n.used.Add("", "", p)
	}
	cluster := &view{nodes: []fwk.NodeInfo{n}}
	left := cluster.without([]plan.Removal{{Pod: one, Node: 0}})
	for p, taken := range map[int32][2]bool{80: {true, false}, 81: {true, false}, 82: {true, true}, 83: {false, false}} {
		require.Equal(t, taken[0], cluster.PortTaken(0, &v1.ContainerPort{HostPort: p}), p)
		require.Equal(t, taken[1], left.PortTaken(0, &v1.ContainerPort{HostPort: p}), p)
	}
}

func TestMinResourcesName(t *testing.T) {
	cluster := &view{
		nodes: []fwk.NodeInfo{busyNode("a", lowPod("own"), lowPod("other")), busyNode("b")}, member: func(uid types.UID) bool { return uid == "own" },
		nominated: func(string) []fwk.PodInfo { return nil },
	}
	for text, m := range map[string]minResources{
		"": {v1.ResourceCPU: resource.MustParse("203m"), v1.ResourceMemory: resource.MustParse("2Gi"), v1.ResourcePods: resource.MustParse("19")},
		"cpu: 204m wanted, 203m free in the cluster":           {v1.ResourceCPU: resource.MustParse("204m")},
		"memory: 3Gi wanted, 2049Mi free in the cluster":       {v1.ResourceMemory: resource.MustParse("3Gi")},
		"pods: 20 wanted, 19 free in the cluster":              {v1.ResourcePods: resource.MustParse("20")},
		"example.com/gpu: 1 wanted, 0 free in the cluster":     {"example.com/gpu": resource.MustParse("1")},
		"ephemeral-storage: 1Gi wanted, 0 free in the cluster": {v1.ResourceEphemeralStorage: resource.MustParse("1Gi")},
	} {
		require.Equal(t, text, m.lacking(cluster))
	}
	require.Empty(t, minResources(nil).lacking(cluster))
}

func TestRefusalsThatAreFinal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for err, final := range map[error]bool{
		apierrors.NewForbidden(pods, "low", errors.New("denied by a webhook")): true,
		apierrors.NewBadRequest("no"):                                          true,
		apierrors.NewTooManyRequests("later", 1):                               false,
		apierrors.NewInternalError(errors.New("oops")):                         false,
		apierrors.NewServiceUnavailable("later"):                               false,
		errors.New("connection refused"):                                       false,
		fmt.Errorf("pod low: %w", apierrors.NewForbidden(pods, "low", nil)):    true,
	} {
		require.Equal(t, final, isFinal(err), err)
	}
}

// TestSummaries: what a person reads about a preemption, and how long it lasts.
func TestSummaries(t *testing.T) {
	now := time.Now()
	cluster := &view{nodes: []fwk.NodeInfo{busyNode("a"), busyNode("b")}}
	slow := lowPod("slow", func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](300) })
	members := []plan.Slot{{Pod: lowPod("m-0"), Node: "a"}, {Pod: lowPod("m-1"), Node: "b"}}
	pr := newPreemption(&task{minMember: 2}, cluster, &plan.Eviction{
		Result: plan.Result{Slots: members}, Victims: []plan.Removal{{Pod: lowPod("low"), Node: 0}, {Pod: slow, Node: 0}},
	}, now)
	require.Equal(t, "preempts 2 pods on 1 node for 2 members", pr.summary)
	require.Equal(t, now.Add(300*time.Second+preemptionSlack), pr.until)
	require.Equal(t, 2, pr.waits())

	ends := now.Add(10 * time.Second)
	pr = newPreemption(&task{minMember: 2}, cluster, &plan.Eviction{
		Result: plan.Result{Slots: members[:1]}, Leaving: []plan.Removal{{Pod: lowPod("going", endsAt(ends)), Node: 1}},
	}, now)
	require.Equal(t, "waits for 1 pod that is ending, to make room for 1 member", pr.summary)
	require.Equal(t, ends.Add(preemptionSlack), pr.until)
}
