package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// TestMemberThatIsBeingBoundIsNoSpareOne: its bind cannot be stopped, and its pod does not name the node yet. Without
// it the gang would look as if it lacked its quorum anyway.
func TestMemberThatIsBeingBoundIsNoSpareOne(t *testing.T) {
	g, id := newGangs(clocktesting.NewFakeClock(time.Unix(1_000_000, 0))), gangNamed("train")
	g.config.PrepareTimeout = time.Minute
	labels := map[string]string{v1alpha1.PodGroupLabel: id.Name}
	bound := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bound", UID: "bound", Labels: labels}, Spec: v1.PodSpec{NodeName: "a1"}}
	binds := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "binds", UID: "binds", Labels: labels}}
	g.change(id, func(e *gangEntry, now time.Time) {
		e.setGroup(podgroup.Read(&v1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name}, Spec: v1alpha1.PodGroupSpec{MinMember: 2},
		}), now)
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
