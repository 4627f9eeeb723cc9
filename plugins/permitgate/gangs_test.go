package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"
)

// nominator has the nodes that pods are nominated to.
type nominator struct {
	fwk.PodNominator
	of map[types.UID]string
}

func (n *nominator) AddNominatedPod(_ klog.Logger, pod fwk.PodInfo, info *fwk.NominatingInfo) {
	n.of[pod.GetPod().UID] = info.NominatedNodeName
}

func (n *nominator) DeleteNominatedPodIfExists(pod *v1.Pod) { delete(n.of, pod.UID) }

// TestEndedNominationIsNotTheNextOne: a member may be nominated again before the worker comes to end its last nomination.
func TestEndedNominationIsNotTheNextOne(t *testing.T) {
	g, key := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0))), types.NamespacedName{Namespace: "default", Name: "train"}
	n := &nominator{of: map[types.UID]string{}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train-0", UID: "train-0-uid"}}
	book := func(node string) (dropped []*v1.Pod) {
		g.change(key, func(e *entry, _ time.Time) {
			e.books.book(pod.UID, booking{pod: pod, node: node, kind: bookedByCollecting})
			dropped, _ = e.books.takeEnded()
		})
		return dropped
	}
	cycle := func() { g.place(klog.Background(), n, none) }

	require.Empty(t, book("a1"))
	cycle()
	require.Equal(t, map[types.UID]string{pod.UID: "a1"}, n.of)
	dropped := book("b1")
	require.Len(t, dropped, 1)
	cycle()
	g.drop(n, key, dropped)
	require.Equal(t, map[types.UID]string{pod.UID: "b1"}, n.of)

	g.drop(n, key, book("c1"))
	require.Empty(t, n.of, "it ends if no cycle has come in between")
	cycle()
	require.Equal(t, map[types.UID]string{pod.UID: "c1"}, n.of)
	g.change(key, func(e *entry, _ time.Time) {
		e.books.end(pod.UID, false)
		dropped, _ = e.books.takeEnded()
	})
	g.drop(n, key, dropped)
	require.Empty(t, n.of)
}

// TestEndedNominationIsNotTheFreshOne: the same for a booking that is placed in every cycle, since the framework may still clear it.
func TestEndedNominationIsNotTheFreshOne(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	g, key := newGangs(clock), types.NamespacedName{Namespace: "default", Name: "train"}
	n := &nominator{of: map[types.UID]string{}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train-0", UID: "train-0-uid"}}
	book := func(node string) (dropped []*v1.Pod) {
		g.change(key, func(e *entry, now time.Time) {
			e.books.book(pod.UID, booking{pod: pod, node: node, kind: bookedByCollecting})
			e.books.forgotten(pod.UID, now.Add(freshInterval))
			dropped, _ = e.books.takeEnded()
		})
		return dropped
	}
	book("a1")
	g.place(klog.Background(), n, none)
	dropped := book("b1")
	g.place(klog.Background(), n, none)
	g.drop(n, key, dropped)
	require.Equal(t, map[types.UID]string{pod.UID: "b1"}, n.of)
	g.drop(n, key, book("c1"))
	require.Empty(t, n.of, "it ends if no cycle has come in between")
}
