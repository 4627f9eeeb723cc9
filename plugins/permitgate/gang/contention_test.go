package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/plugins/permitgate/gang"
)

// TestGangsThatEachTakeHalf: members of two gangs alternate in the queue, there is room for one gang
// and a half, and without hints each takes what the other needs. Both must let go, and must not meet again forever.
func TestGangsThatEachTakeHalf(t *testing.T) {
	for seed := range uint64(50) {
		for _, gangs := range []int{2, 3} {
			t.Run(fmt.Sprintf("%d gangs, seed %d", gangs, seed), func(t *testing.T) {
				const members = 8
				r := rand.New(rand.NewPCG(seed, 0))
				w := newWorld(t, members+members/2, r.Float64)
				w.hopeful = true
				for n := range gangs {
					w.setGroup(fmt.Sprint(n), &gang.Spec{UID: "g", MinMember: members})
				}
				for range members {
					for n := range gangs {
						w.createPod(fmt.Sprint(n), false)
					}
				}
				whole := func() (n int) {
					for _, g := range w.gangs {
						if g.Phase() == gang.Whole {
							n++
						}
					}
					return n
				}
				require.True(t, w.run(30*time.Second, func() bool { return whole() == 1 }), "one gang is whole")
				for name := range w.gangs {
					require.LessOrEqual(t, w.rollbacks[name], 8, "gang %s", name)
				}

				// When the whole gang leaves, another takes its room, and within a second of it.
				for left := gangs; left > 1; left-- {
					w.run(20*time.Second, func() bool { return false })
					for _, uid := range w.order {
						if p := w.pods[uid]; p.exists && p.bound {
							w.deletePod(p)
						}
					}
					require.True(t, w.run(2*time.Second, func() bool { return whole() == 1 }), "%d gangs are left", left-1)
				}
			})
		}
	}
}

// TestWaitsForRoomAndTakesItAtOnce: in a cluster where nothing else happens, a gang that has backed off
// for long is bound within a second of the room being there.
func TestWaitsForRoomAndTakesItAtOnce(t *testing.T) {
	w := newWorld(t, 10, rand.New(rand.NewPCG(1, 2)).Float64)
	w.setOthers(5)
	w.setGroup("a", &gang.Spec{UID: "g", MinMember: 8})
	for range 8 {
		w.createPod("a", false)
	}
	require.False(t, w.run(10*time.Minute, func() bool { return w.gangs["a"] != nil && w.gangs["a"].Phase() == gang.Whole }))
	require.Less(t, w.rollbacks["a"], 60, "ten minutes of backoff")
	for _, uid := range w.order {
		require.False(t, w.gangs["a"].Holds(uid))
	}

	for others := 4; others >= 2; others-- {
		w.setOthers(others)
		before := w.now
		whole := w.run(time.Second, func() bool { return w.gangs["a"].Phase() == gang.Whole })
		require.Equal(t, others == 2, whole, "room for %d", 10-others)
		if whole {
			require.Less(t, w.now.Sub(before), time.Second)
		}
		w.run(5*time.Second, func() bool { return false })
	}
}
