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
