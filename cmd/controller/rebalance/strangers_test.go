package rebalance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// TestStrangersAhead: the worst that others can do to a move whose destination nobody holds. Between the last look and
// the bind of each replacement a stranger comes that asks for as much as a pod of web, fits in zone c only, and is the
// first in the queue. A move succeeds where zone c has room for both, and stops the plan where it has room for one.
// Whatever becomes of it, no more than one pod of web is away, no pod is evicted twice, nothing is evicted while
// strangers have the room, and another plan follows that ends as far as the room goes.
func TestStrangersAhead(t *testing.T) {
	for _, tc := range []struct {
		rule   v1.UnsatisfiableConstraintAction
		room   int // in zone c
		moved  int
		reason string // of the stop
	}{
		{rule: v1.DoNotSchedule, room: 1, reason: v1alpha1.ReasonNotBound},
		{rule: v1.DoNotSchedule, room: 2, moved: 1},
		{rule: v1.DoNotSchedule, room: 3, moved: 1, reason: v1alpha1.ReasonNotBound},
		{rule: v1.DoNotSchedule, room: 4, moved: 2},
		{rule: v1.ScheduleAnyway, room: 1, reason: v1alpha1.ReasonOtherZone},
		{rule: v1.ScheduleAnyway, room: 2, moved: 1},
		{rule: v1.ScheduleAnyway, room: 3, moved: 1, reason: v1alpha1.ReasonOtherZone},
		{rule: v1.ScheduleAnyway, room: 4, moved: 2},
	} {
		t.Run(fmt.Sprintf("%s, room for %d", tc.rule, tc.room), func(t *testing.T) {
			c := drifted(tc.rule)
			c.Pod("batch", "c", clitest.Plain(fmt.Sprint(8-tc.room), "1Gi"), map[string]string{"app": "batch"})
			w := run(t, c, newRebalance("web"))
			web := clitest.Service{App: "web", Replicas: 6}
			var strangers []*v1.Pod
			w.server.evict = func(pod *v1.Pod) error {
				require.Zero(t, web.Missing(sim.List[*v1.Pod](w.sim)), "before %s is evicted", pod.Name)
				stranger := occupant(w, "stranger-"+pod.Name, "", "1", map[string]string{"app": "stranger"})
				stranger.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "c"}
				w.put(stranger)
				strangers = append(strangers, stranger)
				return w.sim.Evict(pod)
			}
			until := func(what string, met func() bool) {
				w.turns(what, func() bool {
					require.NoError(t, web.CheckReady(sim.List[*v1.Pod](w.sim)))
					return met()
				})
			}
			until("a plan", func() bool { return w.stored.Status.Planned > 0 })
			until("the plan is over", func() bool {
				return w.stored.Status.Stop != nil || w.stored.Status.Planned == 0 && act.UnderWay(w.stored) == 0
			})
			require.Equal(t, tc.moved, w.bound("web")["c"])
			require.Len(t, strangers, w.bound("stranger")["c"])
			stop := w.stored.Status.Stop
			if tc.reason == "" {
				require.Nil(t, stop)
				return
			}
			require.NotNil(t, stop)
			require.Equal(t, tc.reason, stop.Reason, stop.Message)

			asked := len(w.evicted)
			until("another plan", func() bool { return !w.stored.Status.PlannedAt.Time.Before(stop.ResumesAt.Time) })
			require.Len(t, w.evicted, asked, "strangers have the room")
			w.server.evict = w.sim.Evict
			for _, stranger := range strangers {
				w.sim.Remove(stranger)
			}
			left := w.sim.Now()
			until("a plan without strangers is over", func() bool {
				return w.stored.Status.PlannedAt.After(left) && w.stored.Status.Planned == 0 &&
					act.UnderWay(w.stored) == 0 && w.reason(v1alpha1.ConditionBalanced) != v1alpha1.ReasonMoving
			})
			require.Zero(t, web.Missing(sim.List[*v1.Pod](w.sim)))
			require.Equal(t, min(tc.room, 2), w.bound("web")["c"])
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(w.evicted))), len(w.evicted), "no pod is evicted twice")
		})
	}
}
