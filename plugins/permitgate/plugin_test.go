package permitgate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// handle is the part of a framework's handle that the plugin needs without a scheduler around it.
type handle struct {
	fwk.Handle
	profile   string
	factory   informers.SharedInformerFactory
	activated chan map[string]*v1.Pod
}

func newHandle() *handle {
	return &handle{
		profile: "default-scheduler", factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		activated: make(chan map[string]*v1.Pod, 100),
	}
}

func (h *handle) ProfileName() string                                    { return h.profile }
func (h *handle) KubeConfig() *rest.Config                               { return nil }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) EventRecorder() events.EventRecorderLogger              { return nil }
func (h *handle) Parallelizer() fwk.Parallelizer                         { return nil }
func (h *handle) NominatedPodsForNode(string) []fwk.PodInfo              { return nil }
func (h *handle) GetWaitingPod(types.UID) fwk.WaitingPod                 { return nil }
func (h *handle) GetPodInPreBind(types.UID) fwk.PodInPreBind             { return nil }
func (h *handle) SnapshotSharedLister() fwk.SharedLister                 { return noNodes{} }
func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod)        { h.activated <- pods }

// noNodes is the snapshot of a cluster without nodes.
type noNodes struct {
	fwk.SharedLister
	fwk.NodeInfoLister
}

func (l noNodes) NodeInfos() fwk.NodeInfoLister { return l }
func (noNodes) List() ([]fwk.NodeInfo, error)   { return nil, nil }

// served is a watch of PodGroups that is there and has nothing.
type served struct{}

func (served) Available() bool { return true }
func (served) HasSynced() bool { return true }

func noGroups(context.Context, toolscache.ResourceEventHandler, func(bool)) (PodGroupWatch, error) {
	return served{}, nil
}

func newPlugin(t *testing.T, options ...Option) (*PermitGate, *handle) {
	t.Helper()
	h := newHandle()
	p, err := NewShared(options...).New(t.Context(), nil, h)
	require.NoError(t, err)
	return p.(*PermitGate), h
}

func podOf(group, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PodGroupLabel: group}},
		Spec:       v1.PodSpec{SchedulerName: "default-scheduler"},
	}
}

func groupOf(name string, minMember int32) *v1alpha1.PodGroup {
	return &v1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("group-" + name)},
		Spec:       v1alpha1.PodGroupSpec{MinMember: minMember},
	}
}

func TestProfilesShareGangsAndArgs(t *testing.T) {
	h := newHandle()
	first, err := New(t.Context(), nil, h)
	require.NoError(t, err)
	other := *h
	other.profile = "batch"
	second, err := New(t.Context(), &runtime.Unknown{Raw: []byte(`{"scheduleTimeout":"60s"}`)}, &other)
	require.NoError(t, err)
	require.Same(t, first.(*PermitGate).shared, second.(*PermitGate).shared)

	_, err = New(t.Context(), &runtime.Unknown{Raw: []byte(`{"scheduleTimeout":"61s"}`)}, &other)
	require.EqualError(t, err, `plugin PermitGate: the args of profile "batch" differ from those of another profile: gangs are shared by all profiles`)
	_, err = New(t.Context(), &runtime.Unknown{Raw: []byte(`{"scheduleTimeout":"-1s"}`)}, &other)
	require.ErrorContains(t, err, "scheduleTimeout")
}

func TestSignPod(t *testing.T) {
	p, _ := newPlugin(t)
	fragments, status := p.SignPod(t.Context(), podOf("g", "member"))
	require.Empty(t, fragments)
	require.Equal(t, fwk.Unschedulable, status.Code())

	native := podOf("g", "native")
	native.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	for _, pod := range []*v1.Pod{podOf("", "plain"), native} {
		fragments, status = p.SignPod(t.Context(), pod)
		require.Empty(t, fragments)
		require.True(t, status.IsSuccess())
	}
}

func TestPreEnqueue(t *testing.T) {
	p, _ := newPlugin(t)
	status := p.PreEnqueue(t.Context(), podOf("g", "m0"))
	require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
	require.Equal(t, "PodGroup ns/g: the CustomResourceDefinition podgroups.scheduling.x-k8s.io is not installed; the pod waits until it is", status.Message())

	p, _ = newPlugin(t, WithPodGroups(noGroups))
	status = p.PreEnqueue(t.Context(), podOf("g", "m0"))
	require.Equal(t, "PodGroup ns/g: the PodGroup does not exist in the pod's namespace", status.Message())
	require.True(t, p.PreEnqueue(t.Context(), podOf("", "plain")).IsSuccess())

	bound := podOf("g", "resized")
	bound.Spec.NodeName = "n"
	require.True(t, p.PreEnqueue(t.Context(), bound).IsSuccess(), "a bound pod in the queue waits for its resize")
}

func TestPodLifecycle(t *testing.T) {
	p, _ := newPlugin(t, WithPodGroups(noGroups))
	s := p.shared
	s.groupSeen(groupOf("g", 2))
	m0, m1 := podOf("g", "m0"), podOf("g", "m1")
	s.podSeen(m0)
	s.podSeen(m1)
	require.True(t, p.PreEnqueue(t.Context(), m0).IsSuccess())

	requireTooFew := func(why string) {
		t.Helper()
		require.Contains(t, p.PreEnqueue(t.Context(), m0).Message(), "needs 2 members, 1 exist", why)
	}
	terminating := m1.DeepCopy()
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	updates(s.podSeen, s.podGone)(m1, terminating)
	requireTooFew("a terminating pod does not count")
	updates(s.podSeen, s.podGone)(terminating, terminating)
	requireTooFew("nor does it come back with its next update")

	recreated := podOf("g", "m1")
	recreated.UID = "m1-again"
	updates(s.podSeen, s.podGone)(terminating, recreated) // the informer may merge a deletion and a creation
	require.True(t, p.PreEnqueue(t.Context(), m0).IsSuccess())
	s.podGone(toolscache.DeletedFinalStateUnknown{Key: "ns/m1", Obj: recreated})
	requireTooFew("deleted while the watch was interrupted")

	finished := podOf("g", "m2")
	finished.Status.Phase = v1.PodSucceeded
	s.podSeen(finished)
	requireTooFew("a finished pod does not count")

	other := podOf("h", "m3")
	s.podSeen(other)
	moved := podOf("g", "m3")
	updates(s.podSeen, s.podGone)(other, moved)
	require.True(t, p.PreEnqueue(t.Context(), m0).IsSuccess(), "a label can be changed")

	s.groupGone(groupOf("g", 2))
	for _, pod := range []*v1.Pod{m0, moved} {
		s.podGone(pod)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.gangs, "nothing is kept of gangs that are gone")
}

// TestWorkerActivatesMembersWhenTheQuorumIsThere: one member at first, whose cycle makes the plan, and then
// all that are in it.
func TestWorkerActivatesMembersWhenTheQuorumIsThere(t *testing.T) {
	p, h := newPlugin(t, WithPodGroups(noGroups))
	members := map[string]*v1.Pod{"ns/m0": podOf("g", "m0"), "ns/m1": podOf("g", "m1")}
	p.shared.podSeen(members["ns/m0"])
	p.shared.groupSeen(groupOf("g", 2))
	p.shared.podSeen(members["ns/m1"])
	next := func() map[string]*v1.Pod {
		select {
		case pods := <-h.activated:
			return pods
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was activated")
			return nil
		}
	}
	scout := next()
	require.Len(t, scout, 1)
	for name := range scout {
		result, status := p.PreFilter(t.Context(), &stateless{}, members[name], nodesOf(1, 1))
		require.True(t, status.IsSuccess(), status.Message())
		require.Equal(t, 1, result.NodeNames.Len())
		delete(members, name)
	}
	for len(members) > 0 {
		for name := range next() {
			delete(members, name)
		}
	}
}
