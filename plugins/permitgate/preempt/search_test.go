package preempt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"zonewise.dev/plugins/permitgate/proposal"
)

// node is a node with some CPUs, whose filters know CPUs and one host port.
type node struct {
	fwk.NodeInfo
	object *v1.Node
	cpus   int64
	pods   []fwk.PodInfo
}

func (n *node) Node() *v1.Node         { return n.object }
func (n *node) GetPods() []fwk.PodInfo { return n.pods }
func (n *node) Snapshot() fwk.NodeInfo {
	return &node{object: n.object, cpus: n.cpus, pods: slices.Clone(n.pods)}
}
func (n *node) AddPodInfo(info fwk.PodInfo) { n.pods = append(n.pods, info) }
func (n *node) RemovePod(_ klog.Logger, pod *v1.Pod) error {
	at := slices.IndexFunc(n.pods, func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
	if at < 0 {
		return fmt.Errorf("pod %s is not on node %s", pod.Name, n.object.Name)
	}
	n.pods = slices.Delete(n.pods, at, at+1)
	return nil
}

func (n *node) free() int64 {
	free := n.cpus
	for _, info := range n.pods {
		free -= info.CalculateResource().Resource.GetMilliCPU() / 1000
	}
	return free
}

func hasPort(pod *v1.Pod) bool { return len(pod.Spec.Containers[0].Ports) > 0 }

func (n *node) fits(pod *v1.Pod) bool {
	return n.free() >= NewPodInfo(pod).CalculateResource().Resource.GetMilliCPU()/1000 &&
		(!hasPort(pod) || !slices.ContainsFunc(n.pods, func(info fwk.PodInfo) bool { return hasPort(info.GetPod()) }))
}

// filters asks the nodes themselves. It implements what a Search needs of a handle.
type filters struct{ fwk.Handle }

func (filters) RunPreFilterExtensionAddPod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (filters) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (filters) RunFilterPlugins(_ context.Context, _ fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if info.(*node).fits(pod) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable)
}

// State implements FilterRunner.
func (filters) State(_ context.Context, state fwk.CycleState, _ *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, bool) {
	return state, nil, true
}

// Reserve and Unreserve implement FilterRunner.
func (filters) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) bool { return true }
func (filters) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string)    {}

type noState struct{ fwk.CycleState }

func (s noState) Clone() fwk.CycleState { return s }

// scene is a cluster, and a gang that needs room there. It implements proposal.Cluster.
type scene struct {
	nodes   []*node
	gangs   map[string]int // minMember by name
	members []*v1.Pod
	budgets []*policyv1.PodDisruptionBudget
}

func (s *scene) Len() int                                    { return len(s.nodes) }
func (s *scene) Node(i int) *v1.Node                         { return s.nodes[i].object }
func (*scene) Kept(int, *v1.Pod, []v1.ResourceName, []int64) {}
func (s *scene) Free(i int, names []v1.ResourceName, into []int64) {
	for j, name := range names {
		if into[j] = s.nodes[i].free() * 1000; name == v1.ResourcePods {
			into[j] = 100
		}
	}
}

func (s *scene) addNode(cpus int64) *node {
	n := &node{object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", len(s.nodes))}}, cpus: cpus}
	s.nodes = append(s.nodes, n)
	return n
}

func newPod(name string, cpus int64, priority int32, port bool) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	pod.Spec.Priority = &priority
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}}}}
	if port {
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	}
	return pod
}

// bind puts a pod onto the node.
func (n *node) bind(pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName = n.object.Name
	n.pods = append(n.pods, NewPodInfo(pod))
	return pod
}

func (s *scene) bound() (pods []*v1.Pod) {
	for _, n := range s.nodes {
		for _, info := range n.pods {
			pods = append(pods, info.GetPod())
		}
	}
	return pods
}

func (s *scene) boundOf(gang string) int {
	return len(slices.DeleteFunc(s.bound(), func(pod *v1.Pod) bool { return pod.Labels["gang"] != gang }))
}

func (s *scene) search(now func() time.Time) *Search {
	class := proposal.Class{Pod: s.members[0]}
	for _, pod := range s.members {
		class.Members = append(class.Members, pod.UID)
	}
	infos := make([]fwk.NodeInfo, len(s.nodes))
	for i, n := range s.nodes {
		infos[i] = n
	}
	gangs := map[string]*Gang{}
	for _, pod := range s.bound() {
		if name := pod.Labels["gang"]; name != "" {
			if gangs[name] == nil {
				gangs[name] = &Gang{MinMember: s.gangs[name]}
			}
			gangs[name].Bound = append(gangs[name].Bound, pod)
		}
	}
	return &Search{
		Handle: filters{}, FilterRunner: filters{}, State: noState{}, Nodes: infos,
		Request:  proposal.Request{Cluster: s, Classes: []proposal.Class{class}, Need: len(s.members)},
		MayEvict: func(pod *v1.Pod) bool { return *pod.Spec.Priority < *s.members[0].Spec.Priority },
		OnItsWay: func(*v1.Pod) bool { return false }, Stays: func(*v1.Pod) bool { return false },
		GangOf:  func(pod *v1.Pod) *Gang { return gangs[pod.Labels["gang"]] },
		Budgets: s.budgets, Now: now,
	}
}

// holds reports whether the members fit onto their nodes when some pods have gone.
func (s *scene) holds(placed map[types.UID]string, gone map[types.UID]bool) bool {
	for _, n := range s.nodes {
		left := n.Snapshot().(*node)
		left.pods = slices.DeleteFunc(left.pods, func(info fwk.PodInfo) bool { return gone[info.GetPod().UID] })
		for _, pod := range s.members {
			if placed[pod.UID] != n.object.Name {
				continue
			}
			if !left.fits(pod) {
				return false
			}
			left.AddPodInfo(NewPodInfo(pod))
		}
	}
	return true
}

// whole reports whether each gang keeps a quorum, has gone, or had none before.
func (s *scene) whole(gone map[types.UID]bool) bool {
	left := map[string]int{}
	for _, pod := range s.bound() {
		if gang := pod.Labels["gang"]; gang != "" && !gone[pod.UID] {
			left[gang]++
		}
	}
	for gang, quorum := range s.gangs {
		if n := left[gang]; n > 0 && n < quorum && s.boundOf(gang) >= quorum {
			return false
		}
	}
	return true
}

// violations counts the evictions that no budget allows.
func (s *scene) violations(gone map[types.UID]bool) (n int) {
	for _, pdb := range s.budgets {
		used := 0
		for _, pod := range s.bound() {
			if gone[pod.UID] && pod.Labels["app"] == pdb.Name {
				used++
			}
		}
		n += max(0, used-int(pdb.Status.DisruptionsAllowed))
	}
	return n
}

// capacity counts how many members fit when some pods have gone.
func (s *scene) capacity(gone func(pod *v1.Pod) bool) (n int) {
	for _, at := range s.nodes {
		left := at.Snapshot().(*node)
		left.pods = slices.DeleteFunc(left.pods, func(info fwk.PodInfo) bool { return gone(info.GetPod()) })
		for left.fits(s.members[0]) {
			left.AddPodInfo(NewPodInfo(s.members[0]))
			n++
		}
	}
	return n
}

// timeless is a clock that stands still.
func timeless() time.Time { return time.Unix(1_000_000, 0) }

func drawScene(t *rapid.T) *scene {
	s := &scene{gangs: map[string]int{}}
	draw := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	gangs := draw("gangs", 1)
	for i := range 1 + draw("nodes", 2) {
		n := s.addNode(int64(1 + draw("cpus", 5)))
		for k := range draw("pods", 5) {
			pod := newPod(fmt.Sprintf("pod-%d-%d", i, k), int64(1+draw("cpu", 1)), int32(draw("priority", 3)), draw("port", 3) == 0)
			pod.Labels = map[string]string{"app": fmt.Sprint("app-", draw("app", 3))}
			if !n.fits(pod) {
				continue
			}
			if *pod.Spec.Priority < 3 && draw("in a gang", 2) < gangs {
				pod.Labels["gang"] = "victims"
			}
			n.bind(pod)
		}
	}
	if bound := s.boundOf("victims"); bound > 0 {
		s.gangs["victims"] = 1 + draw("quorum", bound)
	}
	for i := range 2 {
		s.budgets = append(s.budgets, disruptionBudget("default", fmt.Sprint("app-", i), map[string]string{"app": fmt.Sprint("app-", i)}, int32(draw("allowed", 1))))
	}
	port, cpus := draw("its port", 2) == 0, int64(1+draw("its cpu", 2))
	for i := range 1 + draw("size", 2) {
		s.members = append(s.members, newPod(fmt.Sprint("member-", i), cpus, 3, port))
	}
	return s
}

// TestVictims on small clusters: victims are found wherever there are any, the members fit without them, none of them
// could stay, no gang is left with a part of its quorum. A pod of a higher priority goes only where the requests of
// lower ones are not enough, and a budget is violated only where no other pods of the same nodes would do.
func TestVictims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScene(t)
		may := func(pod *v1.Pod) bool { return *pod.Spec.Priority < 3 }
		r := s.search(timeless).Run(context.Background())
		if s.capacity(may) < len(s.members) {
			require.Empty(t, r.Nodes)
			return
		}
		require.Len(t, r.Nodes, len(s.members))
		gone := map[types.UID]bool{}
		for _, pod := range r.Victims {
			require.True(t, may(pod), pod.Name)
			gone[pod.UID] = true
		}
		require.True(t, s.holds(r.Nodes, gone), "the members fit")
		require.True(t, s.whole(gone), "a gang goes as a whole")
		for _, pod := range r.Victims {
			delete(gone, pod.UID)
			require.False(t, s.holds(r.Nodes, gone) && s.whole(gone), "%s could stay", pod.Name)
			gone[pod.UID] = true
		}
		if s.boundOf("victims") > 0 {
			return // which of a gang's members go together is not searched for
		}
		if !hasPort(s.members[0]) {
			s.requireLowest(t, r.Victims, gone)
		}
		s.requireNoNeedlessViolation(t, r.Nodes, gone)
	})
}

// requireLowest makes sure that no pods would do that violate no budget, or of a lower priority than the highest if
// none is violated. A budget that has something left to decide about is left out.
func (s *scene) requireLowest(t *rapid.T, victims []*v1.Pod, gone map[types.UID]bool) {
	if len(victims) == 0 || slices.ContainsFunc(s.budgets, func(pdb *policyv1.PodDisruptionBudget) bool { return pdb.Status.DisruptionsAllowed > 0 }) {
		return
	}
	limit := int32(3)
	if s.violations(gone) == 0 {
		limit = *slices.MaxFunc(victims, func(a, b *v1.Pod) int { return cmp.Compare(*a.Spec.Priority, *b.Spec.Priority) }).Spec.Priority
	}
	lower := func(pod *v1.Pod) bool {
		return *pod.Spec.Priority < limit && s.violations(map[types.UID]bool{pod.UID: true}) == 0
	}
	require.Less(t, s.capacity(lower), len(s.members), "others would do")
}

// requireNoNeedlessViolation makes sure that no other pods on the same nodes would have violated fewer budgets, as far
// as upstream's order of reprieves guarantees it: for budgets that allow nothing.
func (s *scene) requireNoNeedlessViolation(t *rapid.T, placed map[types.UID]string, gone map[types.UID]bool) {
	for _, pod := range s.bound() {
		if !gone[pod.UID] || s.violations(map[types.UID]bool{pod.UID: true}) == 0 {
			continue
		}
		others := map[types.UID]bool{}
		for _, other := range s.bound() {
			if *other.Spec.Priority < 3 && s.violations(map[types.UID]bool{other.UID: true}) == 0 {
				others[other.UID] = true
			}
		}
		if s.violations(others) == 0 {
			require.False(t, s.holds(placed, others), "%s need not have gone", pod.Name)
		}
	}
}

// leaping is a clock by which everything takes too long.
func leaping() func() time.Time {
	now := timeless()
	return func() time.Time {
		now = now.Add(time.Hour)
		return now
	}
}

// counted are filters that count the nodes that they are asked about.
type counted struct {
	filters
	trials int
}

func (c *counted) RunFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c.trials++
	return c.filters.RunFilterPlugins(ctx, state, pod, info)
}

// TestSearchAnswersOnABusyMachine: what a search looks at has a limit that time does not change, and where some pods
// would do it finds them.
func TestSearchAnswersOnABusyMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes, members int
		fill           func(i int, n *node) // of 10 CPUs; members ask for 5
		ports          bool
		looked, trials int
		victims        int
	}{
		"full": {
			nodes: 5000, members: 20, fill: func(_ int, n *node) { n.bind(newPod("low-"+n.object.Name, 10, 1, false)) },
			looked: nodesAtLeast, trials: 20, victims: 10,
		},
		"a large gang": {
			nodes: 5000, members: 1000, fill: func(_ int, n *node) { n.bind(newPod("low-"+n.object.Name, 10, 1, false)) },
			looked: 2000, trials: 1000, victims: 500,
		},
		"blocked by ports": {
			nodes: 5000, members: 20, fill: func(_ int, n *node) { n.bind(newPod("low-"+n.object.Name, 1, 1, true)) }, ports: true,
			looked: nodesAtLeast, trials: 80, victims: 20,
		},
		"few nodes have pods that may go": {
			nodes: 4000, members: 20, fill: func(i int, n *node) {
				n.bind(newPod("pod-"+n.object.Name, 10, int32(1+2*min(i%100, 1)), false))
			},
			looked: 4000, trials: 20, victims: 10,
		},
		"ports of pods that may not go": {
			nodes: 5000, members: 20, fill: func(_ int, n *node) {
				n.bind(newPod("low-"+n.object.Name, 1, 1, false))
				n.bind(newPod("high-"+n.object.Name, 1, 3, true))
			}, ports: true,
			looked: nodesAtLeast, trials: 2 * refusalsAtLeast, victims: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := &scene{}, &counted{}
			for i := range tt.nodes {
				tt.fill(i, s.addNode(10))
			}
			for i := range tt.members {
				s.members = append(s.members, newPod(fmt.Sprint("member-", i), 5, 3, tt.ports))
			}
			search := s.search(leaping())
			search.Handle = asked
			r := search.Run(t.Context())
			require.Len(t, r.Victims, tt.victims)
			require.Equal(t, tt.looked, r.Looked, "the next search begins where this one has ended")
			require.LessOrEqual(t, asked.trials, 2*tt.trials, "nodes that the filters were asked about")
		})
	}
}

// TestSearchThatMaySpendTime looks for the cheapest victims, but not without end: the filters refuse all nodes.
func TestSearchThatMaySpendTime(t *testing.T) {
	s, asked := &scene{}, &counted{}
	for i := range 5000 {
		n := s.addNode(10)
		n.bind(newPod(fmt.Sprint("low-", i), 1, 1, false))
		n.bind(newPod(fmt.Sprint("high-", i), 1, 3, true))
	}
	for i := range 20 {
		s.members = append(s.members, newPod(fmt.Sprint("member-", i), 5, 3, true))
	}
	search := s.search(timeless)
	search.Handle = asked
	require.Empty(t, search.Run(t.Context()).Nodes)
	require.LessOrEqual(t, asked.trials, 4*nodesAtLeast)
}

// TestBlockersOfTheLowestPriority: host ports keep the gang from the pods with the cheapest requests. With all the time
// that it needs, the search finds pods of the lowest priority that are enough.
func TestBlockersOfTheLowestPriority(t *testing.T) {
	s := &scene{}
	for i := range 2000 {
		s.addNode(1).bind(newPod(fmt.Sprint("pod-", i), 1, int32(1+i%2), i%4 == 0))
	}
	for i := range 20 {
		s.members = append(s.members, newPod(fmt.Sprint("member-", i), 1, 3, true))
	}
	r := s.search(timeless).Run(t.Context())
	require.Len(t, r.Victims, 20)
	for _, pod := range r.Victims {
		require.EqualValues(t, 1, *pod.Spec.Priority)
	}
}

// TestNoBudgetIsViolatedForAPort where pods without one hold it on another node, though not on enough of them.
func TestNoBudgetIsViolatedForAPort(t *testing.T) {
	s := &scene{budgets: []*policyv1.PodDisruptionBudget{disruptionBudget("default", "guarded", map[string]string{"app": "guarded"}, 0)}}
	for i := range 4 {
		blocker := newPod(fmt.Sprint("blocker-", i), 1, 1, true)
		if i < 2 {
			blocker.Labels = map[string]string{"app": "guarded"}
		}
		s.addNode(10).bind(blocker)
	}
	for i := range 3 {
		s.members = append(s.members, newPod(fmt.Sprint("member-", i), 1, 3, true))
	}
	gone := map[types.UID]bool{}
	for _, pod := range s.search(timeless).Run(t.Context()).Victims {
		gone[pod.UID] = true
	}
	require.Len(t, gone, 3)
	require.Equal(t, 1, s.violations(gone))
}
