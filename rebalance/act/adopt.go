package act

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// MaxPlanned is how many moves of a plan a status lists. The next plan finds the rest.
	MaxPlanned = 200
	// maxRemembered is how many moves that are over it keeps beside those of the last hour.
	maxRemembered = 150
	// gangMemory is how long the last moves of a gang are remembered: longer than a plan is stopped, and for the
	// cooldown of other ZoneRebalances.
	gangMemory = longestStop + time.Hour
	// deniedRest is how long a workload rests of which the API server has refused an eviction: no less than the longest
	// stop, or it would stop each plan before the moves of others.
	deniedRest = longestStop
)

// Adopt makes a plan that of the status, in place of what is left of the one before. complete says that the plan is the
// whole one. A pod that is planned twice is moved once, and then there is another plan.
func Adopt(r *v1alpha1.ZoneRebalance, moves []v1alpha1.RebalanceMove, complete bool, now time.Time) {
	s := &r.Status
	goesOn := Left(r) > 0 || !s.Complete && s.Round > 0 && (s.Stop == nil || s.Stop.Resumed)
	drop(r)
	if s.Stop != nil {
		s.Stop.Resumed = true
	}
	known := map[types.UID]bool{}
	for i := range s.Moves {
		known[s.Moves[i].UID] = true
	}
	if !goesOn && len(moves) > 0 {
		s.Round++
	}
	for i := range moves {
		m := moves[i]
		if known[m.UID] || i == MaxPlanned {
			complete = false
			break
		}
		known[m.UID] = true
		m.State, m.Round, m.At = v1alpha1.MovePlanned, s.Round, second(now)
		s.Moves = append(s.Moves, m)
	}
	s.Complete, s.PlannedAt = complete, after(s.Moves, second(now))
	if complete && len(moves) == 0 {
		s.Stop = nil
	}
	Prune(r, now)
}

// after returns a time, or a second later if a move has ended in its second: which moves a plan knows of is told by
// whole seconds.
func after(moves []v1alpha1.RebalanceMove, planned metav1.Time) metav1.Time {
	for i := range moves {
		if m := &moves[i]; m.State != v1alpha1.MovePlanned && !m.At.Before(&planned) {
			planned = metav1.NewTime(m.At.Add(time.Second))
		}
	}
	return planned
}

// Prune forgets moves that decide nothing any more, and counts those that have not begun.
func Prune(r *v1alpha1.ZoneRebalance, now time.Time) {
	moves := slices.Clone(r.Status.Moves)
	last := map[string]time.Time{}
	for i := range moves {
		if m := &moves[i]; m.State != v1alpha1.MovePlanned && last[m.Workload].Before(m.At.Time) {
			last[m.Workload] = m.At.Time
		}
	}
	remembered := 0
	memory := func(m *v1alpha1.RebalanceMove) time.Duration {
		switch {
		case m.PodGroup != "":
			return max(Cooldown(r), gangMemory)
		case wasDenied(m):
			return max(Cooldown(r), deniedRest)
		}
		return Cooldown(r)
	}
	rank := func(m *v1alpha1.RebalanceMove) int {
		switch m.State {
		case v1alpha1.MovePlanned:
			return 2
		case v1alpha1.MoveEvicting, v1alpha1.MoveEvicted:
			return 1
		default:
			return 0
		}
	}
	slices.Reverse(moves) // the youngest are remembered first
	moves = slices.DeleteFunc(moves, func(m v1alpha1.RebalanceMove) bool {
		switch {
		case rank(&m) > 0 || counts(&m, now):
			return false
		case now.Sub(m.At.Time) > memory(&m) || !last[m.Workload].Equal(m.At.Time) || remembered == maxRemembered:
			return true
		}
		remembered++
		return false
	})
	slices.Reverse(moves)
	slices.SortStableFunc(moves, func(a, b v1alpha1.RebalanceMove) int { return cmp.Compare(rank(&a), rank(&b)) })
	r.Status.Moves = moves
	r.Status.Planned = int64(Left(r))
}

// Rests says why pods of a workload, or one pod, are left alone although a move would help; empty if nothing is against
// it. A plan that goes on in the same round is no new one.
func Rests(r *v1alpha1.ZoneRebalance, workload string, pod types.UID, now time.Time) string {
	goesOn := Left(r) > 0 || UnderWay(r) > 0 || !r.Status.Complete && (r.Status.Stop == nil || r.Status.Stop.Resumed)
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		if m.State == v1alpha1.MovePlanned || m.State == v1alpha1.MoveEvicting {
			continue
		}
		switch {
		case m.Workload == workload && wasDenied(m) && now.Sub(m.At.Time) < deniedRest:
			return "is of a workload of which the API server refused to evict a pod within a day"
		case m.UID == pod:
			return "was to be moved already within the hour"
		case m.Workload == workload && now.Sub(m.At.Time) < Cooldown(r) && (!goesOn || m.Round != r.Status.Round):
			return "is of a workload of which pods were moved within the cooldown"
		}
	}
	return ""
}

// RestsBeside says why pods of a workload are left alone because of what another ZoneRebalance has moved, for a
// cooldown; empty if nothing is against it.
func RestsBeside(other *v1alpha1.ZoneRebalance, workload string, cooldown time.Duration, now time.Time) string {
	for i := range other.Status.Moves {
		m := &other.Status.Moves[i]
		if m.State != v1alpha1.MovePlanned && m.Workload == workload && now.Sub(m.At.Time) < cooldown {
			return "is of a workload of which ZoneRebalance " + other.Name + " moved pods within the cooldown"
		}
	}
	return ""
}

// wasDenied reports whether the API server refused an eviction until its time was over.
func wasDenied(m *v1alpha1.RebalanceMove) bool {
	return m.State == v1alpha1.MoveRefused && m.At.Sub(m.Begun.Time) > refusedWithin
}
