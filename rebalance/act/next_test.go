package act

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// scene is a ZoneRebalance of two workloads with two moves each, from zone a to zone b, and what is seen of the
// cluster.
type scene struct {
	*v1alpha1.ZoneRebalance
	seen   *Observed
	excess map[string]int64
	stays  map[types.UID]string
	tried  map[types.UID]Tried
}

func newScene(t *testing.T) *scene {
	t.Helper()
	r := &v1alpha1.ZoneRebalance{Spec: v1alpha1.ZoneRebalanceSpec{
		Mode: v1alpha1.RebalanceEvict, MaxAtOnce: ptr.To[int32](2), MaxPerHour: ptr.To[int32](3), Cooldown: &metav1.Duration{Duration: 10 * time.Minute},
	}}
	s := &scene{ZoneRebalance: r, excess: map[string]int64{"web": 4, "api": 4}, stays: map[types.UID]string{}}
	s.seen = &Observed{
		Now: start, Hash: "h", Pods: map[types.UID]Pod{}, Excess: func(workload string) int64 { return s.excess[workload] },
		Stays:   func(uid types.UID) string { return s.stays[uid] },
		Follows: func([]v1alpha1.RebalanceMove) (string, time.Time) { return "", time.Time{} },
	}
	var moves []v1alpha1.RebalanceMove
	for batch := range 2 {
		for _, workload := range []string{"web", "api"} {
			uid := types.UID(fmt.Sprint(workload, batch))
			moves = append(moves, v1alpha1.RebalanceMove{
				Namespace: "shop", Name: string(uid), UID: uid, Workload: workload, Controller: types.UID(workload),
				From: "a", To: []string{"b"}, Batch: int64(batch + 1),
			})
			s.seen.Pods[uid] = Pod{
				UID: uid, Name: string(uid), Controller: types.UID(workload), Node: "node-a", Zone: "a", Ready: true,
				Grace: 30 * time.Second, Created: start.Add(-time.Hour),
			}
		}
	}
	Adopt(r, moves, true, start)
	r.Status.Cluster.Hash = "h"
	return s
}

func (s *scene) next() Step { return Next(s.ZoneRebalance, s.seen) }

// evicted lets the API server evict what a step says, and the pods be gone.
func (s *scene) evicted(step Step) {
	for i := range step.Evict {
		Record(s.ZoneRebalance, step.Evict[i].UID, nil, s.seen.Now)
		delete(s.seen.Pods, step.Evict[i].UID)
	}
}

// made puts a pod in place of one of a workload.
func (s *scene) made(workload, name, node, zone string, ready bool) {
	s.seen.Pods[types.UID(name)] = Pod{
		UID: types.UID(name), Name: name, Controller: types.UID(workload), Node: node, Zone: zone, Ready: ready,
		Created: s.seen.Now,
	}
}

func (s *scene) states() (out []v1alpha1.RebalanceMoveState) {
	for i := range s.Status.Moves {
		out = append(out, s.Status.Moves[i].State)
	}
	return out
}

const (
	planned  = v1alpha1.MovePlanned
	evicting = v1alpha1.MoveEvicting
	evicted  = v1alpha1.MoveEvicted
	moved    = v1alpha1.MoveMoved
	refused  = v1alpha1.MoveRefused
	failed   = v1alpha1.MoveFailed
)

// TestCarriedOut: a plan of two batches ends as planned, and the hour's budget lets the last move wait.
func TestCarriedOut(t *testing.T) {
	s := newScene(t)
	step := s.next()
	require.Len(t, step.Evict, 2)
	require.Equal(t, []v1alpha1.RebalanceMoveState{evicting, evicting, planned, planned}, s.states(), "the intention is in the status first")
	require.EqualValues(t, 2, s.Status.Planned)
	s.evicted(step)
	require.Empty(t, s.next().Evict, "the next batch waits for the one before")
	s.made("web", "web-new", "node-b", "b", false)
	s.made("api", "api-new", "", "", false)
	require.Empty(t, s.next().Evict)
	s.seen.Now = start.Add(time.Minute)
	s.made("web", "web-new", "node-b", "b", true)
	s.made("api", "api-new", "node-b", "b", true)
	s.excess = map[string]int64{"web": 2, "api": 2}
	step = s.next()
	require.Equal(t, []v1alpha1.RebalanceMoveState{moved, moved, evicting, planned}, s.states(), "three in an hour")
	require.Equal(t, types.UID("web-new"), s.Status.Moves[0].ReplacedBy)
	s.evicted(step)
	require.Equal(t, evicted, s.states()[2], "the pod that came for the first move is not taken for that of the second")
	s.made("web", "web-newer", "node-b", "b", true)
	s.excess["web"] = 0
	step = s.next()
	require.Empty(t, step.Evict)
	require.Contains(t, step.Waits, "maxPerHour")
	require.Equal(t, start.Add(time.Hour+time.Minute+time.Second), step.Again)
	s.seen.Now = start.Add(time.Hour + time.Minute + 2*time.Second)
	s.Status.PlannedAt = metav1.NewTime(start.Add(time.Hour)) // made anew meanwhile
	s.evicted(s.next())
	s.made("api", "api-newer", "node-b", "b", true)
	s.excess["api"] = 0
	step = s.next()
	require.True(t, step.Replan, "the next plan is to be empty")
	require.Zero(t, UnderWay(s.ZoneRebalance)+Left(s.ZoneRebalance))
	require.Nil(t, s.Status.Stop)
}

// TestStops: what stops a plan, and what does not.
func TestStops(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *scene)
		after  time.Duration
		reason string // empty if it goes on
	}{
		{name: "ready in another zone", change: func(s *scene) { s.made("web", "new", "node-c", "c", true) }, reason: v1alpha1.ReasonOtherZone},
		{name: "bound in another zone", change: func(s *scene) { s.made("web", "new", "node-a", "a", false) }, reason: v1alpha1.ReasonOtherZone},
		{name: "one of two is in the zone", change: func(s *scene) {
			s.made("web", "new", "node-c", "c", true)
			s.made("web", "newer", "node-b", "b", false)
		}},
		{name: "no pod in its place yet", change: func(*scene) {}, after: 5 * time.Minute},
		{name: "no pod in its place", change: func(*scene) {}, after: 6 * time.Minute, reason: v1alpha1.ReasonNotBound},
		{name: "no node", change: func(s *scene) { s.made("web", "new", "", "", false) }, after: 6 * time.Minute, reason: v1alpha1.ReasonNotBound},
		{name: "not ready yet", change: func(s *scene) { s.made("web", "new", "node-b", "b", false) }, after: 15 * time.Minute},
		{
			name: "not ready", change: func(s *scene) { s.made("web", "new", "node-b", "b", false) },
			after: 16 * time.Minute, reason: v1alpha1.ReasonPodNotReady,
		},
		{name: "as many are too many", change: func(s *scene) {
			s.made("web", "new", "node-b", "b", true)
			s.excess["web"] = 4
		}, reason: v1alpha1.ReasonNotBetter},
		{name: "the evicted pod still counts", change: func(s *scene) {
			s.made("web", "new", "node-b", "b", true)
			s.seen.Pods["web0"] = Pod{UID: "web0", Controller: "web", Node: "node-a", Zone: "a", Ending: true}
			s.excess["web"] = 4
		}},
		{name: "a pod gave way", change: func(s *scene) {
			s.made("web", "new", "node-b", "b", true)
			s.seen.Pods["victim"] = Pod{UID: "victim", Name: "victim", Node: "node-b", Zone: "b", Ending: true, Preempted: start.Add(time.Second)}
		}, reason: v1alpha1.ReasonPreemption},
		{name: "a pod gave way elsewhere", change: func(s *scene) {
			s.made("web", "new", "node-b", "b", false)
			s.seen.Pods["victim"] = Pod{UID: "victim", Name: "victim", Node: "node-c", Zone: "c", Ending: true, Preempted: start.Add(time.Second)}
		}},
		{name: "an older pod", change: func(s *scene) {
			s.made("web", "old", "node-c", "c", true)
			p := s.seen.Pods["old"]
			p.Created = start.Add(-time.Minute)
			s.seen.Pods["old"] = p
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t)
			s.Spec.MaxAtOnce = ptr.To[int32](1)
			s.evicted(s.next())
			s.excess["web"] = 2
			tc.change(s)
			s.seen.Now = start.Add(tc.after)
			step := s.next()
			require.Empty(t, step.Evict)
			if tc.reason == "" {
				require.Nil(t, s.Status.Stop)
				require.Equal(t, evicted, s.states()[0])
				require.EqualValues(t, 3, s.Status.Planned)
				return
			}
			require.Equal(t, tc.reason, s.Status.Stop.Reason)
			require.Equal(t, []v1alpha1.RebalanceMoveState{failed}, s.states(), "the rest of the plan is dropped")
			require.Contains(t, s.Status.Stop.Message, "shop/web0")
			require.False(t, step.Replan)
			s.seen.Now = s.Status.Stop.ResumesAt.Add(-time.Second)
			require.False(t, s.next().Replan)
			s.seen.Now = s.Status.Stop.ResumesAt.Time
			require.True(t, s.next().Replan)
		})
	}
}

// TestRefused: an eviction that the API server refuses is tried again for some minutes, and then the plan is stopped.
func TestRefused(t *testing.T) {
	s := newScene(t)
	step := s.next()
	Record(s.ZoneRebalance, step.Evict[0].UID, errors.New("would violate the pod's disruption budget"), s.seen.Now)
	Record(s.ZoneRebalance, step.Evict[1].UID, nil, s.seen.Now)
	delete(s.seen.Pods, step.Evict[1].UID)
	s.made("api", "api-new", "node-b", "b", true)
	s.excess["api"] = 2
	s.seen.Now = start.Add(5 * time.Minute)
	step = s.next()
	require.Len(t, step.Evict, 1)
	require.Equal(t, []v1alpha1.RebalanceMoveState{moved, evicting, planned, planned}, s.states())
	s.seen.Now = start.Add(5*time.Minute + time.Second)
	require.Empty(t, s.next().Evict)
	require.Equal(t, v1alpha1.ReasonEvictionRefused, s.Status.Stop.Reason)
	require.Contains(t, s.Status.Stop.Message, "disruption budget")
	require.Equal(t, []v1alpha1.RebalanceMoveState{moved, refused}, s.states())
}

// TestYoungPods: no move begins while the controller has a pod that would be taken for the one in place of the evicted
// pod.
func TestYoungPods(t *testing.T) {
	s := newScene(t)
	s.seen.Now = start.Add(500 * time.Millisecond)
	s.made("web", "scaled-up", "node-c", "c", true)
	young := s.seen.Pods["scaled-up"]
	young.Created = start
	s.seen.Pods["scaled-up"] = young
	step := s.next()
	require.Empty(t, step.Evict)
	require.False(t, step.Replan)
	require.Contains(t, step.Waits, "shop/scaled-up")
	require.Equal(t, start.Add(11*time.Second), step.Again)
	s.seen.Now = step.Again
	step = s.next()
	require.Len(t, step.Evict, 2)
	s.evicted(step)
	s.next()
	require.Nil(t, s.Status.Stop, "it runs in another zone, and is not in place of the evicted pod")
	require.Equal(t, evicted, s.states()[0])
}

// TestLongReasons: what the API server or a list of names says fits the status, whatever its length.
func TestLongReasons(t *testing.T) {
	s := newScene(t)
	step := s.next()
	Record(s.ZoneRebalance, step.Evict[0].UID, errors.New(strings.Repeat("é", 2000)), s.seen.Now)
	require.LessOrEqual(t, len(s.Status.Moves[0].Why), 512)
	Stop(s.ZoneRebalance, v1alpha1.ReasonCertificateBroken, strings.Repeat("é", 2000), s.seen.Now)
	require.LessOrEqual(t, len(s.Status.Stop.Message), 1024)
	require.True(t, utf8.ValidString(s.Status.Stop.Message))
	Conclude(s.ZoneRebalance, strings.Repeat("é", 2000), s.seen.Now)
	for _, c := range s.Status.Conditions {
		require.LessOrEqual(t, len(c.Message), 1024, c.Type)
	}
}

// TestTheLastStopsLongest: each further stop in a row lasts twice as long, and a plan that is carried out ends the row.
func TestTheLastStopsLongest(t *testing.T) {
	s := newScene(t)
	for times, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
		Stop(s.ZoneRebalance, v1alpha1.ReasonOtherZone, "there", s.seen.Now)
		require.EqualValues(t, times+1, s.Status.Stop.Times)
		require.Equal(t, want, s.Status.Stop.ResumesAt.Sub(s.seen.Now))
		s.seen.Now = s.Status.Stop.ResumesAt.Time
		require.True(t, s.next().Replan)
		Adopt(s.ZoneRebalance, []v1alpha1.RebalanceMove{{UID: "x", Workload: "web", From: "a", Batch: 1}}, true, s.seen.Now)
		require.EqualValues(t, times+2, s.Status.Round, "it is another round")
	}
	for range 20 {
		Stop(s.ZoneRebalance, v1alpha1.ReasonOtherZone, "there", s.seen.Now)
		s.Status.Stop.Resumed = true
	}
	require.Equal(t, 24*time.Hour, s.Status.Stop.ResumesAt.Sub(s.seen.Now))
	s.Status.Stop.Resumed = false
	require.True(t, Stopped(s.ZoneRebalance, s.seen.Now))
	s.Generation++
	require.False(t, Stopped(s.ZoneRebalance, s.seen.Now), "whoever changes the spec resumes")
	Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
	require.Nil(t, s.Status.Stop)
}

// TestNothingBegins: while something is in the way no move begins, and what has begun goes on.
func TestNothingBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *scene)
		replan bool
	}{
		"the nodes are others":         {func(s *scene) { s.seen.Hash = "other" }, true},
		"the plan is old":              {func(s *scene) { s.seen.Now = start.Add(PlanLife + time.Second) }, true},
		"a pod is gone":                {func(s *scene) { delete(s.seen.Pods, "web0") }, true},
		"a pod is not to be disrupted": {func(s *scene) { s.stays["web0"] = "has an annotation" }, true},
		"a pod was moved":              {func(s *scene) { s.seen.Pods["web0"] = Pod{UID: "web0", Zone: "b"} }, true},
		"nothing is wrong":             {func(s *scene) { s.excess["web"] = 0 }, true},
		"the mode is Plan":             {func(s *scene) { s.Spec.Mode = v1alpha1.RebalancePlan }, true},
		"it is held":                   {func(s *scene) { s.seen.Held = "the zones to settle" }, false},
		"it was stopped":               {func(s *scene) { Stop(s.ZoneRebalance, "Reason", "", start) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tc.change(s)
			step := s.next()
			require.Empty(t, step.Evict)
			require.Equal(t, tc.replan, step.Replan)
			require.Zero(t, UnderWay(s.ZoneRebalance))
		})
	}
}

// TestOnlyWhatTheClusterFollows: moves begin only if a copy of the cluster follows them now. Otherwise the plan is made
// again, in the same round.
func TestOnlyWhatTheClusterFollows(t *testing.T) {
	s := newScene(t)
	why, from := "", start.Add(time.Minute)
	s.seen.Follows = func(moves []v1alpha1.RebalanceMove) (string, time.Time) {
		require.Len(t, moves, 2)
		return why, from
	}
	step := s.next()
	require.Empty(t, step.Evict)
	require.False(t, step.Replan)
	require.Equal(t, from, step.Again)
	why, from = "its replacement would wait", time.Time{}
	require.True(t, s.next().Replan)
	why = ""
	require.True(t, s.next().Replan, "by another process too")
	Adopt(s.ZoneRebalance, []v1alpha1.RebalanceMove{s.Status.Moves[0], s.Status.Moves[1]}, true, s.seen.Now)
	s.Status.Cluster.Hash = "h"
	require.EqualValues(t, 1, s.Status.Round)
	require.Len(t, s.next().Evict, 2)
}

// TestModePlanEvictsNothing: a move that has begun and not been made is given up when the mode becomes Plan.
func TestModePlanEvictsNothing(t *testing.T) {
	s := newScene(t)
	s.next()
	s.Spec.Mode = v1alpha1.RebalancePlan
	require.Empty(t, s.next().Evict)
	require.Equal(t, []v1alpha1.RebalanceMoveState{refused, refused, planned, planned}, s.states())
	require.Contains(t, Rests(s.ZoneRebalance, "web", "web0", s.seen.Now), "within the hour")
}

// TestRests: a workload rests for the cooldown after a round, and not while the round goes on.
func TestRests(t *testing.T) {
	s := newScene(t)
	s.evicted(s.next())
	s.made("web", "web-new", "node-b", "b", true)
	s.made("api", "api-new", "node-b", "b", true)
	s.excess = map[string]int64{"web": 2, "api": 2}
	s.seen.Hash = "other"
	require.True(t, s.next().Replan)
	require.Empty(t, Rests(s.ZoneRebalance, "web", "web1", s.seen.Now), "the plan is made again because nodes have changed")
	Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
	require.NotEmpty(t, Rests(s.ZoneRebalance, "web", "web1", s.seen.Now))
	require.Empty(t, Rests(s.ZoneRebalance, "other", "x", s.seen.Now))
	require.Empty(t, Rests(s.ZoneRebalance, "web", "web1", s.seen.Now.Add(10*time.Minute)))
}

// TestDeniedRests: a workload of which the API server refuses to evict a pod stops one plan in a day, and not those of
// the others.
func TestDeniedRests(t *testing.T) {
	s := newScene(t)
	s.Status.Moves = s.Status.Moves[:1] // of web
	step := s.next()
	Record(s.ZoneRebalance, step.Evict[0].UID, errors.New("a webhook refuses"), s.seen.Now)
	s.seen.Now = start.Add(refusedWithin + time.Second)
	s.next()
	require.Equal(t, v1alpha1.ReasonEvictionRefused, s.Status.Stop.Reason)
	for _, since := range []time.Duration{10 * time.Minute, 2 * time.Hour, 23 * time.Hour} {
		now := s.seen.Now.Add(since)
		Prune(s.ZoneRebalance, now)
		require.Contains(t, Rests(s.ZoneRebalance, "web", "web1", now), "the API server refused", since)
		require.Empty(t, Rests(s.ZoneRebalance, "api", "api1", now))
	}
	Prune(s.ZoneRebalance, s.seen.Now.Add(24*time.Hour+time.Second))
	require.Empty(t, s.Status.Moves)
}

// TestConclude: what is said of a plan, of moves that are made in the second of the next plan too.
func TestConclude(t *testing.T) {
	s := newScene(t)
	balanced := func() string {
		Conclude(s.ZoneRebalance, "", s.seen.Now)
		return meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionBalanced).Reason
	}
	s.Status.Before.Excess = 4
	require.Equal(t, v1alpha1.ReasonMovesPlanned, balanced())
	s.Spec.MaxAtOnce = ptr.To[int32](1)
	s.seen.Now = start.Add(time.Second)
	s.evicted(s.next())
	require.Equal(t, v1alpha1.ReasonMoving, balanced())
	s.made("web", "new", "node-b", "b", true)
	s.excess["web"] = 2
	s.seen.Hash = "other"
	require.True(t, s.next().Replan)
	drop(s.ZoneRebalance)
	require.Equal(t, v1alpha1.ReasonMoving, balanced(), "the next plan is to say what is left")
	Adopt(s.ZoneRebalance, nil, true, s.seen.Now)
	require.Equal(t, v1alpha1.ReasonNothingToMove, balanced())
	s.Status.Before.Excess = 0
	require.Equal(t, v1alpha1.ReasonBalanced, balanced())
	Stop(s.ZoneRebalance, v1alpha1.ReasonOtherZone, "there", s.seen.Now)
	require.Equal(t, v1alpha1.ReasonStopped, balanced())
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStopped))
}

// TestBounded: a status does not grow with what was moved, and forgets nothing of the last hour.
func TestBounded(t *testing.T) {
	s := newScene(t)
	s.Spec.Cooldown = &metav1.Duration{Duration: 24 * time.Hour}
	s.Status.Moves = nil
	for i := range 1000 {
		m := v1alpha1.RebalanceMove{
			UID: types.UID(fmt.Sprint("u", i)), Workload: fmt.Sprint("w", i%400), State: moved,
			At: metav1.NewTime(start.Add(-time.Duration(i) * time.Minute)),
		}
		s.Status.Moves = append([]v1alpha1.RebalanceMove{m}, s.Status.Moves...)
	}
	var moves []v1alpha1.RebalanceMove
	for i := range 500 {
		moves = append(moves, v1alpha1.RebalanceMove{UID: types.UID(fmt.Sprint("p", i)), Batch: 1})
	}
	Adopt(s.ZoneRebalance, moves, true, start)
	require.EqualValues(t, MaxPlanned, s.Status.Planned)
	require.False(t, s.Status.Complete, "the rest is found later")
	require.Len(t, s.Status.Moves, MaxPlanned+61+maxRemembered)
	require.Equal(t, types.UID("u0"), s.Status.Moves[len(s.Status.Moves)-MaxPlanned-1].UID)
}

// TestRefusedMoveMayStillBeAskedFor: another replica of the controller may have read that a pod is to be evicted
// before its move was given up. Until that cannot be, nothing begins.
func TestRefusedMoveMayStillBeAskedFor(t *testing.T) {
	s := newScene(t)
	s.Spec.MaxAtOnce = ptr.To[int32](1)
	require.Len(t, s.next().Evict, 1)
	s.Spec.Mode = v1alpha1.RebalancePlan
	s.next()
	require.Equal(t, refused, s.states()[0])
	s.Spec.Mode = v1alpha1.RebalanceEvict
	step := s.next()
	require.Empty(t, step.Evict)
	require.Equal(t, start.Add(AskWithin+time.Second), step.Again)
	s.seen.Now = step.Again
	require.Len(t, s.next().Evict, 1)
}
