package permitgate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// account is an account of holds that has room for everything.
type account struct {
	slots  map[types.UID]map[types.UID]string // nodes by gang and member
	looks  int                                // how often a plan has looked at it
	placed []string                           // whose cycles were told of slots
}

func (a *account) Place(c Claim, slots []HoldSlot) error {
	a.slots[c.Gang] = map[types.UID]string{}
	for _, s := range slots {
		a.slots[c.Gang][s.Pod.UID] = s.Node
	}
	return nil
}
func (*account) Move(types.UID, []HoldMove) error { return nil }
func (a *account) ReleaseMember(gang, member types.UID) []string {
	delete(a.slots[gang], member)
	return nil
}

func (a *account) Release(gang types.UID) (freed []string) {
	for _, node := range a.slots[gang] {
		freed = append(freed, node)
	}
	delete(a.slots, gang)
	return freed
}

func (a *account) View() HoldsView {
	a.looks++
	return nil
}
func (a *account) Placed(_ fwk.CycleState, pod *v1.Pod) { a.placed = append(a.placed, pod.Name) }
func (*account) Woken(context.Context)                  {}

// starving has a gang starve in a cluster of nodes with one pod each.
type starving struct {
	t       *testing.T
	p       *PermitGate
	account *account
	nodes   []fwk.NodeInfo
	members []*v1.Pod
}

func newStarving(t *testing.T, members, nodes int, change ...func(*v1.Pod)) *starving {
	t.Helper()
	s := &starving{t: t, account: &account{slots: map[types.UID]map[types.UID]string{}}}
	s.p, _ = newPlugin(t, WithPodGroups(noGroups), WithHolds(func() Holds { return s.account }))
	s.p.shared.mu.Lock()
	s.p.shared.args.StarvationAfter = metav1.Duration{Duration: time.Nanosecond}
	s.p.shared.args.GangPreemption = false
	s.p.shared.mu.Unlock()
	for i := range nodes {
		n := busyNode(string(rune('a'+i)), lowPod(fmt.Sprint("small-", i)))
		n.room = amounts{cpu: 100, memory: 1 << 30, pods: 1}
		s.nodes = append(s.nodes, n)
	}
	s.p.shared.groupSeen(groupOf("train", int32(members)))
	for i := range members {
		s.members = append(s.members, podOf("train", fmt.Sprint("train-", i)))
		for _, f := range change {
			f(s.members[i])
		}
		s.p.shared.podSeen(s.members[i])
	}
	require.Contains(t, s.cycle(s.members[0]).Message(), fmt.Sprintf("needs %d, plan found 0", members))
	return s
}

// cycle is the beginning of a pod's scheduling cycle.
func (s *starving) cycle(pod *v1.Pod) *fwk.Status {
	s.t.Helper()
	_, status := s.p.PreFilter(s.t.Context(), &stateless{}, pod, s.nodes)
	return status
}

// free takes the pod off a node.
func (s *starving) free(i int) {
	n := s.nodes[i].(*fakeNode)
	n.pods = nil
	n.generation++
}

// holds is how many slots the gang has.
func (s *starving) holds() int { return len(s.account.slots["group-train"]) }

// plainPod is a pod of the gang's priority.
func plainPod(change ...func(*v1.Pod)) *v1.Pod {
	pod := podOf("", "plain")
	for _, f := range change {
		f(pod)
	}
	return pod
}

// TestStarvingGangComesFirst: each piece of room that becomes free is the gang's before the pod that is next in the queue can have it,
// the first and the last included, and nothing is planned while nothing becomes free.
func TestStarvingGangComesFirst(t *testing.T) {
	t.Run("plain members", func(t *testing.T) { comesFirst(t, newStarving(t, 3, 3)) })
	t.Run("members that look at other pods", func(t *testing.T) {
		comesFirst(t, newStarving(t, 3, 3, func(pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway,
			}}
		}))
	})
}

func comesFirst(t *testing.T, s *starving) {
	t.Helper()
	require.True(t, s.cycle(plainPod()).IsSkip()) // the first one looks at all nodes
	require.Zero(t, s.holds())
	for i := range s.nodes {
		looks := s.account.looks
		require.True(t, s.cycle(plainPod()).IsSkip())
		s.nodes[(i+1)%3].(*fakeNode).generation++ // something else of a node has changed
		require.True(t, s.cycle(plainPod()).IsSkip())
		require.Equal(t, looks, s.account.looks, "nothing has become free")

		s.free(i)
		require.True(t, s.cycle(plainPod()).IsSkip())
		require.Equal(t, i+1, s.holds())
		require.Len(t, s.account.placed, i+1, "Filter hears of the slot in the same cycle")
		if i < 2 {
			require.False(t, s.p.PreEnqueue(t.Context(), s.members[1]).IsSuccess(), "the gang goes on waiting")
		}
	}
	require.Eventually(t, func() bool { return s.p.PreEnqueue(t.Context(), s.members[1]).IsSuccess() }, 10*time.Second, time.Millisecond,
		"the gang comes as soon as it has enough")
	require.True(t, s.cycle(s.members[1]).IsSuccess())
	s.p.shared.mu.Lock()
	defer s.p.shared.mu.Unlock()
	require.Empty(t, s.p.shared.starving)
	require.Zero(t, s.p.shared.starves.Load())
}

// TestStarvingGangComesNotFirst: for whom the gang does not take what becomes free.
func TestStarvingGangComesNotFirst(t *testing.T) {
	for name, pod := range map[string]*v1.Pod{
		"a higher priority": plainPod(func(pod *v1.Pod) { pod.Spec.Priority = ptr.To[int32](10) }),
		"a daemon": plainPod(func(pod *v1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: ptr.To(true)}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStarving(t, 2, 2)
			s.free(0)
			require.True(t, s.cycle(pod).IsSkip())
			require.Zero(t, s.holds())
			require.True(t, s.cycle(podOf("", "next")).IsSkip())
			require.Equal(t, 1, s.holds(), "what such a pod has left")
		})
	}
	t.Run("a gang that does not fit", func(t *testing.T) {
		s := newStarving(t, 3, 2)
		s.free(0)
		require.True(t, s.cycle(podOf("", "next")).IsSkip())
		require.Zero(t, s.holds())
	})
	t.Run("a gang that does not fit any more", func(t *testing.T) {
		s := newStarving(t, 2, 2)
		s.free(0)
		require.True(t, s.cycle(podOf("", "next")).IsSkip())
		require.Equal(t, 1, s.holds())
		s.nodes = s.nodes[:1]
		s.p.shared.roomMade()
		require.Eventually(t, func() bool { return s.p.PreEnqueue(t.Context(), s.members[1]).IsSuccess() }, 10*time.Second, time.Millisecond)
		require.False(t, s.cycle(s.members[1]).IsSuccess())
		require.Zero(t, s.holds(), "it gives back what it has")
	})
	t.Run("a gang whose time is over", func(t *testing.T) {
		s := newStarving(t, 2, 2)
		s.free(0)
		require.True(t, s.cycle(podOf("", "next")).IsSkip())
		require.Equal(t, 1, s.holds())
		s.p.shared.change(types.NamespacedName{Namespace: "ns", Name: "train"}, func(e *entry, now time.Time) {
			e.collecting.since = now.Add(-minCollecting)
		})
		require.Zero(t, s.holds())
		s.free(1)
		require.True(t, s.cycle(podOf("", "next")).IsSkip())
		require.Zero(t, s.holds())
	})
	t.Run("a gang that is gone", func(t *testing.T) {
		s := newStarving(t, 2, 2)
		s.p.shared.podGone(s.members[0])
		s.free(0)
		require.True(t, s.cycle(podOf("", "next")).IsSkip())
		require.Zero(t, s.holds())
		require.Empty(t, s.p.shared.starving)
	})
}

// TestFreedNodes: which nodes have got room from one cycle to the next.
func TestFreedNodes(t *testing.T) {
	const gpu = v1.ResourceName("example.com/gpu")
	node := busyNode("a", lowPod("one"))
	node.room.scalar = map[v1.ResourceName]int64{gpu: 1}
	var a ahead
	freed := func(change func(n *fakeNode)) bool {
		clear(a.freed)
		n := *node
		n.generation++
		n.node = node.node.DeepCopy()
		change(&n)
		node = &n
		a.update([]fwk.NodeInfo{node})
		_, yes := a.freed["a"]
		return yes
	}
	require.True(t, freed(func(*fakeNode) {}), "a node that is new")
	require.False(t, freed(func(*fakeNode) {}))
	require.False(t, freed(func(n *fakeNode) { n.pods = append(n.pods, placedPod{pod: lowPod("two")}) }))
	require.True(t, freed(func(n *fakeNode) { n.pods = n.pods[:1] }))
	require.True(t, freed(func(n *fakeNode) { n.room.cpu++ }))
	require.False(t, freed(func(n *fakeNode) { n.room.memory-- }))
	require.True(t, freed(func(n *fakeNode) { n.room.scalar = map[v1.ResourceName]int64{gpu: 2} }))
	require.True(t, freed(func(n *fakeNode) { n.node.Labels = map[string]string{"a": "b"} }))
	a.update(nil)
	require.Empty(t, a.nodes)
	require.True(t, freed(func(*fakeNode) {}), "a node that is back")
}

// TestFreedNodesMove: a node that only has another place in the list has no more room than before, and is found where it is.
func TestFreedNodesMove(t *testing.T) {
	a, b, c := busyNode("a"), busyNode("b"), busyNode("c")
	for i, n := range []*fakeNode{a, b, c} {
		n.generation = int64(i + 1)
	}
	var known ahead
	known.update([]fwk.NodeInfo{a, b})
	clear(known.freed)
	nodes := []fwk.NodeInfo{b, a}
	known.update(nodes)
	require.Empty(t, known.freed)
	require.Equal(t, []fwk.NodeInfo{a}, known.some(nodes, []string{"a", "gone"}))

	nodes = []fwk.NodeInfo{c, b} // c in the place of a
	known.update(nodes)
	require.Equal(t, map[string]struct{}{"c": {}}, known.freed)
	require.Equal(t, nodes, known.some(nodes, []string{"a", "b"}))
	require.Len(t, known.nodes, 2)
	known.update(nodes[1:])
	require.Empty(t, known.freed, "who is gone has no room")
	known.update(nodes)
	require.Equal(t, map[string]struct{}{"c": {}}, known.freed, "who is back has")
}

// TestStarvingGangLooksAtFewNodes: a plan ahead of a cycle knows the nodes that matter, and is made only where a member may fit.
func TestStarvingGangLooksAtFewNodes(t *testing.T) {
	fill := func(s *starving, i int) {
		n := s.nodes[i].(*fakeNode)
		n.pods = []fwk.PodInfo{placedPod{pod: lowPod("again")}}
		n.generation++
	}
	t.Run("room that is lost and made up for", func(t *testing.T) {
		s := newStarving(t, 3, 4)
		s.free(0)
		require.True(t, s.cycle(plainPod()).IsSkip())
		require.Equal(t, 1, s.holds())
		fill(s, 0) // by a pod that minds no holds
		s.free(1)
		require.True(t, s.cycle(plainPod()).IsSkip())
		require.Equal(t, 1, s.holds(), "no more than before")
		s.free(2)
		require.True(t, s.cycle(plainPod()).IsSkip())
		require.Equal(t, 2, s.holds(), "with the node that was free before")
		require.ElementsMatch(t, []string{"b", "c"}, slices.Collect(maps.Values(s.account.slots["group-train"])))
	})
	t.Run("resources by name", func(t *testing.T) {
		const gpu = v1.ResourceName("example.com/gpu")
		var room room
		room.amounts = []int64{1000, 1 << 30, 0, 1}
		wants := func(amounts ...int64) *needs {
			return &needs{names: []v1.ResourceName{v1.ResourceCPU, gpu, v1.ResourcePods}, amounts: [][]int64{{2000, 0, 1}, amounts}}
		}
		require.True(t, room.takes(wants(1000, 0, 1)))
		require.False(t, room.takes(wants(1000, 1, 1)))
		require.False(t, room.takes(wants(1000, 0, 2)))
		room.scalar = map[v1.ResourceName]int64{gpu: 1}
		require.True(t, room.takes(wants(1000, 1, 1)))
		room.scalar[gpu] = -1
		require.True(t, room.takes(wants(1000, 0, 1)), "what is not asked for does not matter")
	})
	t.Run("what members ask for", func(t *testing.T) {
		s := NewShared()
		s.args = ptr.To(defaultArgs())
		needsOf := func() (n *needs) {
			s.change(types.NamespacedName{Namespace: "ns", Name: "train"}, func(e *entry, _ time.Time) { n = e.needsLocked() })
			return n
		}
		s.podSeen(podOf("train", "one"))
		s.podSeen(podOf("train", "two"))
		require.Equal(t, &needs{names: []v1.ResourceName{v1.ResourcePods}, amounts: [][]int64{{1}}, plain: true}, needsOf())
		large := podOf("train", "large")
		large.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}}
		large.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone}}
		s.podSeen(large)
		n := needsOf()
		require.ElementsMatch(t, [][]int64{{0, 1}, {2000, 1}}, n.amounts)
		require.False(t, n.plain)
		s.podGone(large)
		require.True(t, needsOf().plain)
	})
}
