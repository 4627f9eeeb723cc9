package act

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// partOf adds a gang to a scene that needs three members, of which so many are bound, and gives it the time until its
// members are to be evicted.
func partOf(s *scene, name string, bound int) types.UID {
	uid := types.UID(name)
	g := Gang{UID: uid, Namespace: "shop", Name: name, Missing: max(0, 3-bound), PartlyBound: bound < 3}
	for i := range bound {
		pod := types.UID(fmt.Sprint(name, "-", i))
		g.Bound = append(g.Bound, pod)
		s.seen.Pods[pod] = Pod{
			UID: pod, Name: string(pod), Controller: uid, Node: "node-a", Zone: "a", Grace: 30 * time.Second,
			Created: start.Add(-time.Hour),
		}
	}
	if s.seen.Gangs == nil {
		s.seen.Gangs = map[types.UID]Gang{}
		s.tried = map[types.UID]Tried{}
		s.seen.Tried = func(gang types.UID) Tried { return s.tried[gang] }
		s.refuse("")
	}
	s.seen.Gangs[uid] = g
	s.seen.Held = "the zones to settle"
	s.next()
	s.seen.Held = ""
	s.seen.Now = s.seen.Now.Add(5 * time.Minute)
	return uid
}

// changed changes a gang of a scene.
func (s *scene) changed(uid types.UID, change func(g *Gang)) {
	g := s.seen.Gangs[uid]
	change(&g)
	s.seen.Gangs[uid] = g
}

// names are those of the pods to evict.
func names(step Step) (out []string) {
	for i := range step.Evict {
		out = append(out, step.Evict[i].Name)
	}
	return out
}

// TestGangBoundInPart: its bound members are evicted together, before the moves of the plan, and the gang is whole or
// waits as a whole, or no gang is evicted for a while. In any case the moves of the plan follow.
func TestGangBoundInPart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *scene, uid types.UID)
		after  time.Duration
		state  v1alpha1.RebalanceMoveState
		why    string
		reason string // of the stop
	}{
		{name: "at once", change: func(*scene, types.UID) {}, state: evicted},
		{name: "whole", change: func(s *scene, uid types.UID) {
			s.changed(uid, func(g *Gang) { g.Bound, g.Missing = []types.UID{"x", "y", "z"}, 0 })
		}, state: moved, why: "the gang is whole"},
		{name: "not whole yet", change: func(s *scene, uid types.UID) {
			s.changed(uid, func(g *Gang) { g.Bound, g.Missing = []types.UID{"x"}, 2 })
		}, after: time.Minute, state: evicted},
		{
			name: "bound in part again", change: func(s *scene, uid types.UID) {
				s.changed(uid, func(g *Gang) { g.Bound, g.Missing = []types.UID{"x"}, 2 })
			},
			after: 6 * time.Minute, state: failed, why: "bound in part again: 1 members are bound, and 2 are missing", reason: v1alpha1.ReasonGangPartlyBound,
		},
		{name: "waits", change: func(*scene, types.UID) {}, after: 6 * time.Minute, state: moved, why: "the gang waits as a whole"},
		{name: "may still come", change: func(*scene, types.UID) {}, after: 5 * time.Minute, state: evicted},
		{
			name: "does not end", change: func(s *scene, _ types.UID) { s.seen.Pods["train-0"] = Pod{UID: "train-0", Ending: true} },
			after: 6 * time.Minute, state: failed, why: "train-0 has not ended", reason: v1alpha1.ReasonNotBound,
		},
		{name: "its PodGroup is gone", change: func(s *scene, uid types.UID) { delete(s.seen.Gangs, uid) }, state: moved, why: "the PodGroup is gone"},
		{name: "a pod gave way", change: func(s *scene, _ types.UID) {
			s.made("train", "train-new", "node-b", "b", false)
			s.seen.Pods["victim"] = Pod{UID: "victim", Name: "victim", Node: "node-b", Zone: "b", Ending: true, Preempted: s.seen.Now.Add(time.Second)}
		}, state: failed, why: "pod victim was preempted", reason: v1alpha1.ReasonPreemption},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			uid := partOf(s, "train", 2)
			step := s.next()
			require.Equal(t, []string{"train-0", "train-1"}, names(step), "two at once, and the plan waits")
			begun := s.seen.Now
			s.evicted(step)
			s.changed(uid, func(g *Gang) { g.Bound, g.Missing, g.PartlyBound = nil, 3, false })
			tc.change(s, uid)
			s.seen.Now = begun.Add(tc.after)
			step = s.next()
			var of []*v1alpha1.RebalanceMove
			for i := range s.Status.Moves {
				if m := &s.Status.Moves[i]; m.PodGroup == uid {
					of = append(of, m)
				}
			}
			require.Len(t, of, 2)
			for _, m := range of {
				require.Equal(t, tc.state, m.State)
				require.Equal(t, "PodGroup shop/train", m.Workload)
				require.Contains(t, m.Why, tc.why)
			}
			require.Nil(t, s.Status.Stop)
			require.Equal(t, tc.state == evicted, len(step.Evict) == 0 && !step.Replan, "then the plan goes on")
			if tc.reason == "" {
				require.Nil(t, s.Status.GangStop)
				return
			}
			require.Equal(t, tc.reason, s.Status.GangStop.Reason)
			require.Equal(t, []string{"web0"}, names(step), "a gang that fails stops no other moves, and the hour has room for one")
			Conclude(s.ZoneRebalance, step.Waits, s.seen.Now)
			c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStopped)
			require.Equal(t, tc.reason, c.Reason)
			require.Contains(t, c.Message, "no gang is evicted before")
		})
	}
}

// TestWhyAGangStays: what keeps the bound members of a gang from being evicted is said in the status.
func TestWhyAGangStays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *scene, uid types.UID)
		why    string
	}{
		{"for a moment", func(s *scene, _ types.UID) { s.seen.Now = s.seen.Now.Add(-time.Second) }, "has not been bound in part for 5m0s yet"},
		{"reported later", func(s *scene, uid types.UID) {
			s.changed(uid, func(g *Gang) { g.Since = s.seen.Now.Add(-time.Minute) })
		}, "has not been bound in part for 5m0s yet"},
		{"not asked for", func(s *scene, uid types.UID) { s.changed(uid, func(g *Gang) { g.Stays = "a wrong annotation" }) }, "a wrong annotation"},
		{"mode Plan", func(s *scene, _ types.UID) { s.Spec.Mode = v1alpha1.RebalancePlan }, "the mode is not Evict"},
		{"larger than the hour", func(s *scene, _ types.UID) {
			s.Spec.MaxPerHour = ptr.To[int32](1)
		}, "2 members are bound, which are evicted together, and maxPerHour is 1"},
		{"a budget", func(s *scene, _ types.UID) { s.refuse("a budget") }, "a budget"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			tc.change(s, partOf(s, "train", 2))
			step := s.next()
			require.Len(t, s.Status.PartlyBound, 1)
			require.Equal(t, tc.why, s.Status.PartlyBound[0].Why)
			require.Equal(t, s.Spec.Mode == v1alpha1.RebalancePlan, step.Replan)
			require.NotContains(t, names(step), "train-0", "the plan does not wait for it")
		})
	}
	t.Run("whole by now", func(t *testing.T) {
		s := newScene(t)
		s.changed(partOf(s, "train", 2), func(g *Gang) { g.PartlyBound, g.Missing = false, 0 })
		require.NotContains(t, names(s.next()), "train-0")
		require.Empty(t, s.Status.PartlyBound)
	})
}

// TestGangWaitsForTheHour: a gang is not evicted in part, and is not overtaken by moves that would leave no room for
// it.
func TestGangWaitsForTheHour(t *testing.T) {
	s := newScene(t)
	s.evicted(s.next()) // two moves of three in an hour
	s.made("web", "web-new", "node-b", "b", true)
	s.made("api", "api-new", "node-b", "b", true)
	s.excess = map[string]int64{"web": 2, "api": 2}
	s.seen.Held = "other moves"
	s.next()
	partOf(s, "train", 2)
	step := s.next()
	require.Empty(t, step.Evict)
	require.Contains(t, step.Waits, "PodGroup shop/train is evicted first")
	require.Equal(t, start.Add(time.Hour+time.Second), step.Again)
	require.Contains(t, s.Status.PartlyBound[0].Why, "waits for the hour")
	s.seen.Now = step.Again.Add(time.Second)
	require.Equal(t, []string{"train-0", "train-1"}, names(s.next()))
}

// TestGangRestsForTheCooldown: a gang that is bound in part again is left alone for the cooldown.
func TestGangRestsForTheCooldown(t *testing.T) {
	s := newScene(t)
	s.Spec.MaxPerHour = ptr.To[int32](20)
	uid := partOf(s, "train", 1)
	s.evicted(s.next())
	s.changed(uid, func(g *Gang) { g.Bound, g.Missing = nil, 0 })
	s.seen.Hash = "other"
	s.next()
	over := s.seen.Now
	partOf(s, "train", 2) // five minutes go by
	s.next()
	require.Equal(t, "its members were evicted within the cooldown", s.Status.PartlyBound[0].Why)
	s.seen.Now = over.Add(10*time.Minute + time.Second)
	require.Equal(t, []string{"train-0", "train-1"}, names(s.next()))
	seen := map[types.UID]bool{}
	for i := range s.Status.Moves {
		require.False(t, seen[s.Status.Moves[i].UID], "an entry for each pod")
		seen[s.Status.Moves[i].UID] = true
	}
}

// TestMembersThatAreRefused: what is left of a gang whose other members are gone is asked for again, until the gang is
// whole or the plan is stopped.
func TestMembersThatAreRefused(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprint("whole ", whole), func(t *testing.T) {
			s := newScene(t)
			uid := partOf(s, "train", 2)
			step := s.next()
			Record(s.ZoneRebalance, "train-0", nil, s.seen.Now)
			delete(s.seen.Pods, "train-0")
			Record(s.ZoneRebalance, "train-1", errors.New("a budget"), s.seen.Now)
			s.changed(uid, func(g *Gang) { g.Bound, g.Missing, g.PartlyBound = []types.UID{"train-1"}, 2, true })
			s.seen.Now = step.Again
			require.Equal(t, []string{"train-1"}, names(s.next()))
			if whole {
				s.changed(uid, func(g *Gang) { g.Bound, g.Missing = []types.UID{"train-1", "x", "y"}, 0 })
				step = s.next()
				require.NotContains(t, names(step), "train-1")
				s.next()
				require.Nil(t, s.Status.GangStop)
				return
			}
			s.seen.Now = s.seen.Now.Add(5 * time.Minute)
			require.Empty(t, s.next().Evict)
			require.Equal(t, v1alpha1.ReasonEvictionRefused, s.Status.GangStop.Reason)
		})
	}
}

// refuse has the API server refuse to evict the members of each gang, or accept it.
func (s *scene) refuse(why string) {
	s.seen.Try = func(gang types.UID) time.Time {
		s.tried[gang] = Tried{At: s.seen.Now, Refused: why}
		return time.Time{}
	}
}
