package rebalance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/test/clitest"
)

// TestHeldRoomServes: two pods of web are to move to zone c, where batch work leaves room for two pods, or for four.
// Between the last look and the bind of each replacement a stranger comes that asks for the room of two, fits in zone
// c only, and is the first in the queue. A slot of the workload's own serves its replacement then, and the stranger
// waits or takes what is free beside, unless it outranks the reservation. Headroom is not used up on purpose, and
// room that is held for others is no destination.
func TestHeldRoomServes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		batch    string // what it asks for
		owner    string // of the reservation; none if it is empty
		mode     v1alpha1.ReservationMode
		priority int32 // of the strangers
		moved    int
		outcome  v1alpha1.RebalanceMoveState // of the move that failed
		stays    string                      // why a pod of web stays in the end
	}{
		{name: "not held", batch: "6", outcome: v1alpha1.MoveNotBound},
		{name: "a guarantee", batch: "6", owner: "web", mode: v1alpha1.ModeGuarantee, moved: 2},
		{
			name: "a guarantee that is outranked", batch: "6", owner: "web", mode: v1alpha1.ModeGuarantee,
			priority: 10, outcome: v1alpha1.MoveNotBound,
		},
		{name: "headroom", batch: "6", owner: "web", mode: v1alpha1.ModeHeadroom, stays: "less room would be held"},
		{
			name: "headroom beside free room", batch: "4", owner: "web", mode: v1alpha1.ModeHeadroom, moved: 1,
			stays: "less room would be held",
		},
		{name: "held for others", batch: "6", owner: "shop", mode: v1alpha1.ModeHeadroom, stays: "had room only in what is held for ZoneReservation spare"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := drifted(v1.DoNotSchedule)
			c.Pod("batch", "c", clitest.Plain(tc.batch, "1Gi"), map[string]string{"app": "batch"})
			if tc.owner != "" {
				c.Reservation("spare", tc.owner, "1", 5, map[string]int64{"c": 2}).Spec.Mode = tc.mode
			}
			w := run(t, c, newRebalance("web"))
			w.server.evict = func(pod *v1.Pod) error {
				stranger := occupant(w, "stranger-"+pod.Name, "", "2", map[string]string{"app": "stranger"})
				stranger.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: "c"}
				stranger.Spec.Priority = &tc.priority
				w.put(stranger)
				return w.sim.Evict(pod)
			}
			w.turns("nothing is left to move, or a move fails", func() bool {
				reason := w.reason(v1alpha1.ConditionBalanced)
				failed := slices.ContainsFunc(w.stored.Status.Moves, func(m v1alpha1.RebalanceMove) bool { return act.Failed(&m) })
				return failed || reason == v1alpha1.ReasonBalanced || reason == v1alpha1.ReasonNothingToMove
			})
			if tc.outcome != "" {
				require.Equal(t, tc.outcome, w.states()[len(w.states())-1])
				return
			}
			for _, state := range w.states() {
				require.Equal(t, v1alpha1.MoveMoved, state)
			}
			require.Equal(t, tc.moved, w.bound("web")["c"])
			if tc.stays != "" {
				require.NotEmpty(t, w.stored.Status.Stays)
				require.Contains(t, w.stored.Status.Stays[0].Why, tc.stays)
			}
		})
	}
}
