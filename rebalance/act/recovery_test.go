package act

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestPausesOfAGangDouble: a gang that is bound in part again each time, and one of which a member is refused each
// time, is evicted after a pause that doubles up to a day, although plans in between have no moves, or are carried
// out.
func TestPausesOfAGangDouble(t *testing.T) {
	for _, refuses := range []bool{true, false} {
		t.Run(fmt.Sprint("a member is refused: ", refuses), func(t *testing.T) {
			s := newScene(t)
			s.Spec.MaxPerHour = ptr.To[int32](20)
			Adopt(s.ZoneRebalance, nil, true, start)
			uid := partOf(s, "train", 2)
			var begun []time.Time
			made := 0
			for len(begun) < 10 {
				require.Less(t, s.seen.Now.Sub(start), 30*24*time.Hour)
				step := s.next()
				asked := map[types.UID]bool{}
				for i := range step.Evict {
					m := &step.Evict[i]
					asked[m.UID] = true
					if refuses && m.UID == s.seen.Gangs[uid].Bound[0] {
						Record(s.ZoneRebalance, m.UID, errors.New("a webhook"), s.seen.Now)
						continue
					}
					Record(s.ZoneRebalance, m.UID, nil, s.seen.Now)
					delete(s.seen.Pods, m.UID)
				}
				if len(asked) == 2 { // each member that is gone is replaced by one that is bound
					begun = append(begun, s.seen.Now)
					s.changed(uid, func(g *Gang) {
						for i, pod := range g.Bound {
							if _, there := s.seen.Pods[pod]; !there {
								made++
								g.Bound[i] = types.UID(fmt.Sprint("new-", made))
								s.seen.Pods[g.Bound[i]] = Pod{
									UID: g.Bound[i], Name: string(g.Bound[i]), Node: "node-a", Zone: "a",
									Grace: 10 * time.Minute, Created: s.seen.Now,
								}
							}
						}
					})
				}
				if step.Replan {
					Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
				}
				next := s.seen.Now.Add(10 * time.Minute)
				if step.Again.After(s.seen.Now) && step.Again.Before(next) {
					next = step.Again
				}
				s.seen.Now = next
			}
			for i := 2; i < len(begun); i++ {
				before, now := begun[i-1].Sub(begun[i-2]), begun[i].Sub(begun[i-1])
				require.Greater(t, now, min(before+before/3, 23*time.Hour), "pause %d: %s after %s", i, now, before)
			}
			s.changed(uid, func(g *Gang) { g.PartlyBound, g.Missing = false, 0 })
			s.seen.Now = s.Status.GangStop.ResumesAt.Add(2 * time.Hour)
			s.next()
			s.next()
			Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
			require.Nil(t, s.Status.GangStop, "the gang is whole")
		})
	}
}

// TestPlanDoesNotForgiveAGang: a plan that is carried out leaves the pauses as they are while a gang that has failed is
// still bound in part.
func TestPlanDoesNotForgiveAGang(t *testing.T) {
	for _, listed := range []bool{true, false} {
		s := newScene(t)
		s.Spec.MaxAtOnce = ptr.To[int32](4)
		s.Spec.MaxPerHour = ptr.To[int32](20)
		s.Status.GangStop = &v1alpha1.RebalanceStop{Reason: v1alpha1.ReasonGangPartlyBound, ResumesAt: second(start), Times: 3}
		Adopt(s.ZoneRebalance, []v1alpha1.RebalanceMove{{
			Namespace: "shop", Name: "web0", UID: "web0", Workload: "web", Controller: "web",
			From: "a", To: []string{"b"}, Batch: 1,
		}}, true, start)
		s.Status.Moves = append(s.Status.Moves, v1alpha1.RebalanceMove{
			UID: "gone", PodGroup: "train", Workload: "PodGroup shop/train", State: failed, At: second(start),
		})
		if listed {
			partOf(s, "train", 2)
			s.seen.Now = start
		} else {
			s.seen.Gangs = map[types.UID]Gang{}
		}
		s.evicted(s.next())
		s.made("web", "web-new", "node-b", "b", true)
		s.excess["web"] = 0
		s.seen.Now = start.Add(time.Minute)
		s.next()
		require.Equal(t, listed, s.Status.GangStop != nil)
	}
}

// TestRefusedGangsDoNotBlock: moves of the plan wait for a gang only if its members could be evicted.
func TestRefusedGangsDoNotBlock(t *testing.T) {
	for _, tc := range []struct {
		why    string
		begins bool
	}{{"a budget", true}, {"", false}} {
		t.Run(tc.why, func(t *testing.T) {
			s := newScene(t)
			s.Spec.MaxAtOnce, s.Spec.MaxPerHour = ptr.To[int32](1), ptr.To[int32](2)
			s.evicted(s.next()) // one of two in an hour
			s.made("web", "web-new", "node-b", "b", true)
			s.excess["web"] = 2
			s.seen.Held = "other moves"
			s.next()
			partOf(s, "train", 2)
			s.refuse(tc.why)
			step := s.next()
			require.Equal(t, tc.begins, len(step.Evict) == 1, "there is room for one move, not for the gang")
			require.Len(t, s.Status.PartlyBound, 1)
			if tc.begins {
				require.Equal(t, tc.why, s.Status.PartlyBound[0].Why)
			} else {
				require.Contains(t, s.Status.PartlyBound[0].Why, "waits for the hour")
			}
		})
	}
}

// TestGangWithdrawn: members that are not evicted yet are left alone when the PodGroup does not ask for it any more, is
// gone, or a member asks to stay.
func TestGangWithdrawn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *scene, uid types.UID)
		state  v1alpha1.RebalanceMoveState
		why    string
	}{
		{"not asked for", func(s *scene, uid types.UID) {
			s.changed(uid, func(g *Gang) { g.Stays = "the annotation is gone" })
		}, refused, "the annotation is gone"},
		{"the PodGroup is gone", func(s *scene, uid types.UID) { delete(s.seen.Gangs, uid) }, refused, "the PodGroup is gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			uid := partOf(s, "train", 2)
			step := s.next()
			for i := range step.Evict {
				Record(s.ZoneRebalance, step.Evict[i].UID, errors.New("a webhook"), s.seen.Now)
			}
			tc.change(s, uid)
			s.seen.Now = step.Again
			require.NotContains(t, names(s.next()), "train-0")
			for i := range s.Status.Moves {
				if m := &s.Status.Moves[i]; m.PodGroup == uid {
					require.Equal(t, tc.state, m.State)
					require.Equal(t, tc.why, m.Why)
				}
			}
			require.Nil(t, s.Status.Stop)
		})
	}
}

// TestGangIsRememberedForADay: other ZoneRebalances, whose cooldown may be longer, ask when a gang was evicted.
func TestGangIsRememberedForADay(t *testing.T) {
	s := newScene(t)
	s.Status.Moves = []v1alpha1.RebalanceMove{
		{UID: "1", PodGroup: "u", Workload: "PodGroup shop/train", State: moved, At: second(start)},
		{UID: "2", Workload: "web", State: moved, At: second(start)},
	}
	Prune(s.ZoneRebalance, start.Add(23*time.Hour))
	require.Len(t, s.Status.Moves, 1)
	require.False(t, GangRests(s.ZoneRebalance, "PodGroup shop/train", 24*time.Hour, start.Add(23*time.Hour)).IsZero())
	Prune(s.ZoneRebalance, start.Add(26*time.Hour))
	require.Empty(t, s.Status.Moves)
}

// TestDueRunsFromTheAnswer: a pod that was refused for minutes has as long to be replaced as any other.
func TestDueRunsFromTheAnswer(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
			s := newScene(t)
			s.Spec.MaxAtOnce = ptr.To[int32](1)
			s.next()
			Record(s.ZoneRebalance, "web0", errors.New("a budget"), s.seen.Now)
			s.seen.Now = start.Add(4 * time.Minute)
			if answered {
				Record(s.ZoneRebalance, "web0", nil, s.seen.Now)
			}
			delete(s.seen.Pods, "web0")
			s.next()
			require.Equal(t, evicted, s.Status.Moves[0].State)
			require.Equal(t, metav1.NewTime(start.Add(4*time.Minute+bindWithin+30*time.Second)), s.Status.Moves[0].Due)
		})
	}
}

// TestSinceIsSeen: a report may be older than what it says now. It counts from when it was seen, or from later on if it
// says so.
func TestSinceIsSeen(t *testing.T) {
	s := newScene(t)
	uid := partOf(s, "train", 2)
	s.changed(uid, func(g *Gang) { g.Since = start.Add(-time.Hour) })
	s.next()
	require.Equal(t, second(start), s.Status.PartlyBound[0].Since)
	s.changed(uid, func(g *Gang) { g.Since = start.Add(time.Minute) })
	s.next()
	require.Equal(t, second(start.Add(time.Minute)), s.Status.PartlyBound[0].Since)
}

// TestGangsThatStayHideNone: of more gangs than a status lists, those are listed that may be evicted.
func TestGangsThatStayHideNone(t *testing.T) {
	s := newScene(t)
	for i := range maxPartlyBound {
		s.changed(partOf(s, fmt.Sprintf("old-%03d", i), 1), func(g *Gang) { g.Stays = "a wrong annotation" })
	}
	partOf(s, "young", 2)
	require.Equal(t, []string{"young-0", "young-1"}, names(s.next()))
	require.Len(t, s.Status.PartlyBound, maxPartlyBound)
}

// TestWhyIsUpToDate: status.partlyBound says what a gang waits for while nothing may begin, too.
func TestWhyIsUpToDate(t *testing.T) {
	s := newScene(t)
	partOf(s, "train", 2)
	s.seen.Held = "moves of ZoneRebalance other"
	s.next()
	require.Equal(t, "waits for moves of ZoneRebalance other", s.Status.PartlyBound[0].Why)
	s.seen.Held = ""
	s.next()
	require.Empty(t, s.Status.PartlyBound[0].Why, "its members are evicted")
	second := partOf(s, "second", 2)
	s.next()
	why := func() string {
		for _, g := range s.Status.PartlyBound {
			if g.UID == second {
				return g.Why
			}
		}
		return "is not listed"
	}
	require.Equal(t, "waits for moves that are under way", why())
	s.changed(second, func(g *Gang) { g.Stays = "a wrong annotation" })
	s.next()
	require.Equal(t, "a wrong annotation", why())
	s.changed(second, func(g *Gang) { g.Stays = "" })
	s.Status.Moves = nil
	Stop(s.ZoneRebalance, v1alpha1.ReasonGangPartlyBound, "again", s.seen.Now)
	s.next()
	require.Contains(t, why(), "waits for the end of the stop, ")
}

// TestGangsAreTriedInTurn: each gang is tried once, and the moves of the plan begin only then. Of those that would be
// refused one is tried again every five minutes, that which was tried longest ago, and is evicted once it may be.
func TestGangsAreTriedInTurn(t *testing.T) {
	s := newScene(t)
	for _, name := range []string{"a", "b", "c"} {
		partOf(s, name, 2)
	}
	var tries []types.UID
	why := "a budget"
	s.seen.Try = func(gang types.UID) time.Time {
		tries = append(tries, gang)
		s.tried[gang] = Tried{At: s.seen.Now, Refused: why}
		return time.Time{}
	}
	for i := range 3 {
		require.Len(t, tries, i)
		step := s.next()
		require.Equal(t, i == 2, len(step.Evict) > 0, "moves of the plan")
		if i < 2 {
			require.Equal(t, s.seen.Now.Add(time.Second), step.Again)
			s.seen.Now = step.Again
		}
	}
	require.Equal(t, []types.UID{"a", "b", "c"}, tries)
	s.Status.Moves = nil
	for range 4 {
		step := s.next()
		require.Equal(t, s.seen.Now.Add(refusedWithin), step.Again)
		require.True(t, step.Replan)
		s.seen.Now = step.Again
		s.next()
	}
	require.Equal(t, []types.UID{"a", "b", "c", "a", "b", "c", "a"}, tries)
	s.seen.Now = s.seen.Now.Add(refusedWithin)
	why = ""
	require.Equal(t, []string{"b-0", "b-1"}, names(s.next()))
}

// TestGangWaitsForItsTry: while a gang cannot be tried, for want of CPU, moves wait for one that may be evicted for all
// that is known, and not for one that would be refused.
func TestGangWaitsForItsTry(t *testing.T) {
	for _, refused := range []string{"", "a budget"} {
		s := newScene(t)
		uid := partOf(s, "train", 2)
		s.tried[uid] = Tried{At: start.Add(-time.Hour), Refused: refused}
		s.seen.Try = func(types.UID) time.Time { return s.seen.Now.Add(7 * time.Second) }
		step := s.next()
		require.Equal(t, s.seen.Now.Add(7*time.Second), step.Again)
		require.Equal(t, refused != "", len(step.Evict) > 0)
		require.NotContains(t, names(step), "train-0")
	}
}
