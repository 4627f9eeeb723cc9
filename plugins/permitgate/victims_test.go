package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/preempt"
)

// TestMemberThatIsBeingBoundIsNoSpareOne: its bind cannot be stopped, and its pod does not name the node yet. Without
// it the gang would look as if it lacked its quorum anyway.
func TestMemberThatIsBeingBoundIsNoSpareOne(t *testing.T) {
	g, key := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0))), types.NamespacedName{Namespace: "default", Name: "train"}
	g.config.PrepareTimeout = time.Minute
	labels := map[string]string{v1alpha1.PodGroupLabel: key.Name}
	bound := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bound", UID: "bound", Labels: labels}, Spec: v1.PodSpec{NodeName: "a1"}}
	binds := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "binds", UID: "binds", Labels: labels}}
	g.change(key, func(e *gangEntry, now time.Time) {
		e.gang.SetGroup(gang.Spec{MinMember: 2}, now)
		for _, pod := range []*v1.Pod{bound, binds} {
			e.add(pod.UID, &member{pod: pod})
			e.gang.SetPod(pod.UID, gang.Pod{Bound: pod.Spec.NodeName != ""}, now)
		}
		_, reason, _ := e.gang.Permit(binds.UID, "a1", now)
		require.Equal(t, gang.ReasonNone, reason)
		e.gang.Commit(e.gang.Arrive(binds.UID, now), nil, now)
	})
	found := (&victimSearch{gangs: g}).gangOf()(bound)
	require.Equal(t, 2, found.MinMember)
	require.ElementsMatch(t, []*v1.Pod{bound, binds}, found.Bound)
}

// TestPreemptedNodesAreKeptAtOnce: a member that was sent back before its gang preempts is in no queue for a moment,
// where no nomination keeps its node.
func TestPreemptedNodesAreKeptAtOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	g, key := newGangs(clock), types.NamespacedName{Namespace: "default", Name: "train"}
	other := types.NamespacedName{Namespace: "default", Name: "other"}
	g.change(key, func(e *gangEntry, now time.Time) {
		e.gang.SetGroup(gang.Spec{MinMember: 2}, now)
		for _, uid := range []types.UID{"train-0", "train-1"} {
			e.add(uid, &member{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid}}})
			e.gang.SetPod(uid, gang.Pod{}, now)
		}
	})
	require.Empty(t, g.keptOn("a1", other))
	g.change(key, func(e *gangEntry, _ time.Time) {
		e.beginPreemption(&preempt.Result{Nodes: map[types.UID]string{"train-1": "a1"}})
	})
	require.Len(t, g.keptOn("a1", other), 1)
	require.Empty(t, g.keptOn("a2", other))
	require.Empty(t, g.keptOn("a1", key))

	g.change(key, func(e *gangEntry, now time.Time) {
		e.awaitReplacement("train-1", now)
		e.remove("train-1")
	})
	require.Len(t, g.keptOn("a1", other), 1, "for the member that replaces it")
	clock.Step(replacementGrace)
	require.Empty(t, g.keptOn("a1", other))
}
