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
)

// TestMemberThatIsBeingBoundIsNoSpareOne: its bind cannot be stopped, and its pod does not name the node yet. Without it the gang would
// look as if it lacked its quorum anyway.
func TestMemberThatIsBeingBoundIsNoSpareOne(t *testing.T) {
	g, key := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0))), types.NamespacedName{Namespace: "default", Name: "train"}
	labels := map[string]string{v1alpha1.PodGroupLabel: key.Name}
	bound := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bound", UID: "bound", Labels: labels}, Spec: v1.PodSpec{NodeName: "a1"}}
	binds := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "binds", UID: "binds", Labels: labels}}
	g.change(key, func(e *entry, now time.Time) {
		e.gang.SetGroup(gang.Spec{MinMember: 2}, now)
		for _, pod := range []*v1.Pod{bound, binds} {
			e.add(pod.UID, &member{pod: pod})
			e.gang.SetPod(pod.UID, gang.Pod{Bound: pod.Spec.NodeName != ""}, now)
		}
		_, reason, _ := e.gang.Fits(binds.UID, now)
		require.Equal(t, gang.ReasonNone, reason)
		e.gang.Commit(e.gang.Arrive(binds.UID, now), nil, now)
	})
	found, hasQuorum := (&victims{gangs: g}).gangOf(key)
	require.True(t, hasQuorum)
	require.Equal(t, 2, found.MinMember)
	require.ElementsMatch(t, []*v1.Pod{bound, binds}, found.Bound)
}

// TestSearchThatFailedIsNotRepeated until as many more members fit as it lacked; by time alone after a minute, and after fifty
// times as long as it took, for each gang that searches in failedSearches, in any case.
func TestSearchThatFailedIsNotRepeated(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	none := searched{}
	require.True(t, none.allows(0, 1, start), "the first")
	require.Equal(t, 7, none.missing(7, 0))

	s := searched{at: start, took: 100 * time.Millisecond, short: 3, fitted: 2}
	require.Equal(t, 3, s.missing(7, 2))
	require.Equal(t, 1, s.missing(7, 4))
	require.False(t, s.allows(2, 1, after(59*time.Second)))
	require.Equal(t, after(time.Minute), s.again)
	require.True(t, s.allows(2, 1, after(time.Minute)))
	require.False(t, s.allows(4, 1, after(6*time.Second)), "one is lacking")
	require.False(t, s.allows(5, 1, after(4*time.Second)), "it would take too much of the time")
	require.Equal(t, after(5*time.Second), s.again)
	require.True(t, s.allows(5, 1, after(5*time.Second)))
	require.Zero(t, s.again)

	require.False(t, s.allows(5, 30, after(149*time.Second)), "thirty gangs share the time")
	require.True(t, s.allows(5, 30, after(150*time.Second)))
	require.False(t, s.allows(5, 1000, after(599*time.Second)))
	require.True(t, s.allows(5, 1000, after(10*time.Minute)), "a thousand do not wait for hours")

	unknown := searched{at: start, took: 100 * time.Millisecond}
	require.Equal(t, 1, unknown.missing(7, 2))
	require.False(t, unknown.allows(2, 1, after(4*time.Second)))
	require.True(t, unknown.allows(2, 1, after(5*time.Second)))
}
