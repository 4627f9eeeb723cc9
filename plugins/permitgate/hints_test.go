package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// TestEventsAreBuiltIn: the scheduler waits for the informer of every resource that is named here, and
// would never schedule anything where a CRD is missing.
func TestEventsAreBuiltIn(t *testing.T) {
	p, _ := newPlugin(t)
	events, err := p.EventsToRegister(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, events)
	for _, e := range events {
		require.Contains(t, []fwk.EventResource{fwk.AssignedPod, fwk.TargetPod, fwk.Node}, e.Event.Resource)
		require.NotNil(t, e.QueueingHintFn)
	}
}

// backingOff returns a gang of two, ready since the given time, that backs off for want of room.
func backingOff(s *Shared, name string) (a, b *v1.Pod) {
	a, b = podOf(name, name+"0"), podOf(name, name+"1")
	s.groupSeen(groupOf(name, 2))
	s.podSeen(a)
	s.podSeen(b)
	key, _ := gangOf(a)
	s.change(key, func(e *entry, now time.Time) {
		// Long ago, so that the pause after the rollback is over and the backoff is not.
		then := now.Add(-roomPause)
		e.gang.Enter(a.UID, then)
		e.gang.Unschedulable(a.UID, "no room", then)
	})
	return a, b
}

func TestHints(t *testing.T) {
	logger := klog.Background()
	onNode := func(pod *v1.Pod) *v1.Pod {
		pod.Spec.NodeName = "n"
		return pod
	}
	for name, tt := range map[string]struct {
		hint  func(p *PermitGate, old, young *v1.Pod) (pod *v1.Pod, hint fwk.QueueingHint, err error)
		want  fwk.QueueingHint
		woken bool // the worker wakes one member of the gang, which then makes the plan
	}{
		"a pod of no gang left a node": {func(p *PermitGate, _, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterPodDeleted(logger, young, onNode(podOf("", "plain")), nil)
			return young, h, err
		}, fwk.QueueSkip, true},
		"a node came": {func(p *PermitGate, _, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterNodeChange(logger, young, nil, &v1.Node{})
			return young, h, err
		}, fwk.QueueSkip, true},
		"a sibling was sent back": {func(p *PermitGate, _, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterPodDeleted(logger, young, onNode(podOf("young", "young1")), nil)
			return young, h, err
		}, fwk.QueueSkip, false},
		"an older gang let go": {func(p *PermitGate, old, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterPodDeleted(logger, young, onNode(old.DeepCopy()), nil)
			return young, h, err
		}, fwk.QueueSkip, false},
		"a younger gang let go": {func(p *PermitGate, old, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterPodDeleted(logger, old, onNode(young.DeepCopy()), nil)
			return old, h, err
		}, fwk.QueueSkip, true},
		"its own labels changed": {func(p *PermitGate, _, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			h, err := p.isSchedulableAfterOwnChange(logger, young, young, young)
			return young, h, err
		}, fwk.QueueSkip, false},
		"it left its gang": {func(p *PermitGate, _, young *v1.Pod) (*v1.Pod, fwk.QueueingHint, error) {
			left := podOf("", young.Name)
			h, err := p.isSchedulableAfterOwnChange(logger, young, young, left)
			return left, h, err
		}, fwk.Queue, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, h := newPlugin(t, WithPodGroups(noGroups))
			old, _ := backingOff(p.shared, "old")
			young, _ := backingOff(p.shared, "young")
			require.Contains(t, p.PreEnqueue(t.Context(), young).Message(), "no room")
			pod, hint, err := tt.hint(p, old, young)
			require.NoError(t, err)
			require.Equal(t, tt.want, hint)
			require.Equal(t, tt.woken || tt.want == fwk.Queue, p.PreEnqueue(t.Context(), pod).IsSuccess(), "the hint agrees with PreEnqueue")
			if tt.woken {
				require.Len(t, <-h.activated, 1)
			}
		})
	}
}

func TestRoomMadeEndsBackoffs(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	a, _ := backingOff(p.shared, "g")
	p.shared.roomMade()
	require.True(t, p.PreEnqueue(t.Context(), a).IsSuccess())
	p.shared.look(keyOf(groupOf("g", 2)), func(e *entry, _ time.Time) { require.Equal(t, gang.Gathering, e.gang.Phase()) })
}

func TestNodeMayFitMore(t *testing.T) {
	node := func(change func(n *v1.Node)) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a"}}}
		n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		change(n)
		return n
	}
	was := node(func(*v1.Node) {})
	for name, tt := range map[string]struct {
		change func(n *v1.Node)
		want   bool
	}{
		"heartbeat":   {func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady}} }, false},
		"same amount": {func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("1000m") }, false},
		"allocatable": {func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("2") }, true},
		"label":       {func(n *v1.Node) { n.Labels["zone"] = "b" }, true},
		"taint":       {func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "k"}} }, true},
		"cordon":      {func(n *v1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, nodeMayFitMore(was, node(tt.change))) })
	}
}
