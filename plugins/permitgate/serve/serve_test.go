package serve

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/podstatus"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

var train = podgroup.ID{NamespacedName: types.NamespacedName{Namespace: "batch", Name: "train"}}

// handle has a client, and nothing else.
type handle struct {
	fwk.Handle
	client clientset.Interface
}

func (h handle) ClientSet() clientset.Interface            { return h.client }
func (h handle) KubeConfig() *rest.Config                  { return nil }
func (h handle) SharedDRAManager() fwk.SharedDRAManager    { return nil }
func (h handle) EventRecorder() events.EventRecorderLogger { return nil }

// memberless is a gang without members.
type memberless struct {
	Gangs
	group *podgroup.Group
}

func (m memberless) Get(podgroup.ID) (Gang, bool) { return Gang{Group: m.group}, true }
func (m memberless) IDs() []podgroup.ID           { return nil }
func (memberless) Members(podgroup.ID) []Member   { return nil }

// TestStandbyHasNothingToWrite: a replica that does not lead does not remember each PodGroup for a status that it will
// not write.
func TestStandbyHasNothingToWrite(t *testing.T) {
	source := crdtest.New(&v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "train"}, Spec: v1alpha1.PodGroupSpec{MinMember: 1}})
	group, _ := crdtest.Get(source, &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "train"}})
	h := handle{client: fake.NewSimpleClientset()}
	s := New(Config{
		Clock: clock.RealClock{}, Source: source, Handle: func(string) fwk.Handle { return h }, Gangs: memberless{group: podgroup.Read(group)},
		Pods: corelisters.NewPodLister(toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)), Synced: func() bool { return true }, ManageStatus: true,
	})
	seen := Report{ID: train}
	s.Report(t.Context(), seen)
	require.Never(t, func() bool { return !s.writer.Idle() }, 2*statusPause, statusPause/10)
	s.Lead(t.Context(), h)
	s.Report(t.Context(), seen)
	require.Eventually(t, func() bool { return source.Writes() == 1 }, time.Minute, time.Millisecond)
}

// refused is a gang that was refused, and waits for its turn to be looked at again.
type refused struct {
	memberless
	pod *v1.Pod
}

func (r refused) Get(podgroup.ID) (Gang, bool) {
	return Gang{Group: r.group, Phase: gang.Queued, Last: gang.Rollback{Cause: gang.CauseNoRoom, Detail: "short of cpu"}}, true
}
func (r refused) Members(podgroup.ID) []Member { return []Member{{Pod: r.pod, Missing: true}} }

// TestAutoscalersSeeAGangThatWaitsForItsTurn: where pods come and go all the time, a refused gang is woken before its
// members have the condition.
func TestAutoscalersSeeAGangThatWaitsForItsTurn(t *testing.T) {
	pod := build.Pod("p", "1", build.Namespace(train.Namespace), build.Member(train.Name))
	h := handle{client: fake.NewSimpleClientset(pod)}
	s := New(Config{Clock: clock.RealClock{}, Gangs: refused{memberless{group: podgroup.Read(&v1alpha1.PodGroup{})}, pod}})
	s.patcher = podstatus.New(h)
	require.NoError(t, s.writeConditions(t.Context(), train))
	pod, err := h.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, pod.Status.Conditions, 1)
	require.Contains(t, pod.Status.Conditions[0].Message, "short of cpu")
}

// TestAPodGroupsEventOutlivesALateReport: the last report about a gang may be one from before its PodGroup came.
func TestAPodGroupsEventOutlivesALateReport(t *testing.T) {
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "train", UID: "uid"}}
	s := New(Config{
		Clock: clock.RealClock{}, Source: crdtest.New(group), Handle: func(string) fwk.Handle { return handle{} },
		Gangs: memberless{group: podgroup.Read(group)}, Synced: func() bool { return true },
	})
	s.groupSeen(train, podgroup.Read(group))
	s.groupSeen(train, nil) // by the late report
	msgs := s.waitingMessages(train, &Gang{Group: podgroup.Read(group), Reason: gang.ReasonInvalid, Detail: "spec.minMember is 0"})
	require.Len(t, msgs, 1)
	require.Equal(t, podgroup.Read(group).Reference(), msgs[0].regarding)
}

// TestReportsBesidePods: a gang's PodGroup is replaced while the informer tells of its pods. The race detector says
// whether they share anything without the lock.
func TestReportsBesidePods(t *testing.T) {
	s := New(Config{
		Clock: clock.RealClock{}, Source: crdtest.New(), Handle: func(string) fwk.Handle { return handle{} },
		Gangs: memberless{}, Synced: func() bool { return true }, ManageStatus: true,
	})
	pod := build.Pod("p", "1", build.Namespace(train.Namespace), build.Member(train.Name))
	for i := range 100 {
		var both sync.WaitGroup
		both.Go(func() {
			s.groupSeen(train, podgroup.Read(&v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}))
		})
		both.Go(func() { s.podChanged(pod) })
		both.Wait()
	}
	require.Equal(t, map[types.UID]podgroup.ID{"99": train}, s.groups)
}
