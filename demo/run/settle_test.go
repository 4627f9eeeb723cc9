package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/demo/board"
	"zonewise.dev/demo/workload"
)

// scene is a demo that watches what the test puts in front of it.
type scene struct {
	*demo
	nodeStore, podStore cache.Indexer
	serial              int
}

func newScene() *scene {
	byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	s := &scene{
		nodeStore: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		podStore:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace),
	}
	s.demo = &demo{
		plan: &workload.Plan{Zones: []string{"a", "b"}, FitsAfterLoss: true},
		seen: newObserver(listers.NewNodeLister(s.nodeStore), listers.NewPodLister(s.podStore)),
	}
	return s
}

func (s *scene) node(name, zone string) *scene {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("1")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_ = s.nodeStore.Add(n)
	return s
}

func (s *scene) pod(namespace, node string, labels map[string]string) *corev1.Pod {
	s.serial++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("p%d", s.serial), UID: types.UID(fmt.Sprint(s.serial)), Labels: labels}}
	p.Spec.NodeName = node
	_ = s.podStore.Add(p)
	return p
}

func (s *scene) replica(app, node string) *corev1.Pod {
	return s.pod(workload.ServiceNamespace, node, map[string]string{workload.AppLabel: app, workload.RoleLabel: "cn"})
}

func (s *scene) member(gang, node string) *corev1.Pod {
	return s.pod(workload.GangNamespace, node, map[string]string{schedv1alpha1.PodGroupLabel: gang})
}

func TestUnsettledSaysWhatIsInMotion(t *testing.T) {
	s := newScene().node("n1", "a").node("n2", "b")
	s.plan.Services = []workload.Service{{App: "web", Role: workload.CPURole, Replicas: 2}}
	require.Equal(t, "Deployment web-cn has 0 pods of 2", s.unsettled())

	s.replica("web", "n1")
	waiting := s.replica("web", "")
	require.Equal(t, "pod services/p2 waits although a node could take it", s.unsettled())

	going := s.pod("other", "n2", nil)
	going.DeletionTimestamp = &metav1.Time{}
	require.Equal(t, "pod other/p3 is going", s.unsettled())

	going.DeletionTimestamp = nil // n2 is full: the waiting pod has nowhere to go
	require.Empty(t, s.unsettled())

	waiting.Status.Phase = corev1.PodFailed
	require.Equal(t, "Deployment web-cn has 1 pods of 2", s.unsettled())
}

func TestUnsettledWaitsForGangsThatFit(t *testing.T) {
	s := newScene()
	s.plan.Gangs = []workload.Gang{{Name: "fits", Members: 2, Fits: true}, {Name: "never", Members: 1}}
	s.member("fits", "n1")
	require.Equal(t, "gang fits has 1 pods of 2", s.unsettled())
	second := s.member("fits", "")
	require.Equal(t, "gang fits fits but is not whole: 1 of 2 bound", s.unsettled())
	second.Spec.NodeName = "n1"
	require.Equal(t, "gang never has 0 pods of 1", s.unsettled())
	s.member("never", "")
	require.Empty(t, s.unsettled())
}

// When nobody knows whether the gangs fit, only quiet tells.
func TestUnsettledWaitsForQuietWhenGangsMayOrMayNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.plan.FitsAfterLoss = false
		s.plan.Gangs = []workload.Gang{{Name: "maybe", Members: 1}}
		s.member("maybe", "")
		s.seen.see(s.pod("x", "n1", nil))
		require.Equal(t, "gangs that may or may not fit are being placed", s.unsettled())
		time.Sleep(restless)
		require.Empty(t, s.unsettled())
	})
}

// A cluster that does not settle gets its board all the same.
func TestSettleGivesUpWhenNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		s := newScene()
		s.progress = &progress{w: &out}
		s.plan.Gangs = []workload.Gang{{Name: "fits", Members: 1, Fits: true}}
		member := s.member("fits", "")
		start := time.Now()
		go func() {
			time.Sleep(20 * time.Second)
			s.seen.see(s.pod("x", "n1", nil)) // something moves once
		}()
		require.NoError(t, s.settle(t.Context()))
		require.InDelta(t, (stallAfter + 20*time.Second).Seconds(), time.Since(start).Seconds(), 1)
		require.Contains(t, out.String(), "nothing was bound for 1m0s: gang fits fits but is not whole: 0 of 1 bound")

		member.Spec.NodeName = "n1"
		require.NoError(t, s.settle(t.Context()))
		require.InDelta(t, (stallAfter + 20*time.Second).Seconds(), time.Since(start).Seconds(), 1)
	})
}

func TestUntilSaysWhatWasMissingWhenTheTimeWasUp(t *testing.T) {
	s := newScene()
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	err := s.until(ctx, func() string {
		if asked++; asked == 3 {
			cancel(errTimeout)
		}
		return "pod x waits"
	})
	require.ErrorIs(t, err, errTimeout)
	require.EqualError(t, err, "timed out: pod x waits")
}

func TestUntilReturnsWhyItWasCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	crash := errors.New("crash")
	cancel(crash)
	require.Equal(t, crash, newScene().until(ctx, func() string { return "x" }))
}

func TestObserverTimesBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		start := time.Now()
		p := s.pod("ns", "", nil)
		s.seen.see(p)
		time.Sleep(2 * time.Second)
		p.Spec.NodeName = "n1"
		s.seen.see(p)
		time.Sleep(time.Second)
		s.seen.see(p) // later updates change nothing
		s.seen.see(s.pod(corev1.NamespaceDefault, "n1", nil))
		require.Equal(t, []board.Binding{{UID: p.UID, Created: start, Bound: start.Add(2 * time.Second)}}, s.seen.seen())
		require.Equal(t, time.Second, s.seen.quietFor())
		require.Equal(t, 1, s.seen.boundSince(start))
		require.Equal(t, 0, s.seen.boundSince(start.Add(2*time.Second)))
	})
}

func TestObserverKnowsTheMostMembersThatWereBoundTogether(t *testing.T) {
	s := newScene()
	first, second := s.member("g", "n1"), s.member("g", "n1")
	s.seen.see(first)
	s.seen.see(s.member("g", ""))
	s.seen.gone(first)
	s.seen.see(second) // never two at a time
	require.Equal(t, map[string]int{"g": 1}, s.seen.peaks())

	third := s.member("g", "n1")
	s.seen.see(third)
	second.DeletionTimestamp = &metav1.Time{}
	s.seen.see(second)
	s.seen.see(s.member("g", "n1"))
	require.Equal(t, map[string]int{"g": 2}, s.seen.peaks())
}

func TestStatus(t *testing.T) {
	s := newScene().node("n1", "a").node("n2", "b")
	s.plan.Nodes = make([]workload.Node, 4)
	s.plan.Services = []workload.Service{{Replicas: 2}}
	s.plan.Gangs = []workload.Gang{{Members: 2}}
	s.replica("web", "n1")
	s.replica("web", "n2")
	s.member("g", "")
	s.pod(corev1.NamespaceDefault, "n1", nil)
	require.Equal(t, "[##########----------] 2/4 bound, a 1 b 1, 0 pods/s", s.placeStatus())
	require.Equal(t, "2 pods bound, 1 wait; a 1 b 1", s.placeOutcome())
	require.Equal(t, "b left 1, 2 bound, 1 wait, a 1 b 1", s.drainStatus())
	require.Equal(t, "[##########----------] 2/4 ready", s.nodeStatus())

	nodes, _ := s.seen.lists()
	nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady}}
	require.Equal(t, 1, s.readyNodes())
}
