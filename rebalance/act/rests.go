package act

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// longestRest is how long a workload rests at most, and a ZoneRebalance is stopped.
	longestRest = 24 * time.Hour
	// settledAfter is how long a move has to last: one that is undone later was not undone, the workload has drifted.
	settledAfter = longestRest / 2
	// memory is how long the last move of a workload is remembered: longer than it rests, or its failures would be
	// forgotten at the end of the longest rest.
	memory = 2 * longestRest
	// tooManyFailures is how many different workloads whose moves fail in a row stop all moves.
	tooManyFailures = 3
	// maxMoves is how many moves a status has.
	maxMoves = 400
)

// countsFor is how long after it has begun a move counts for maxPerHour: from when its pod may have been evicted last.
const countsFor = time.Hour + AskWithin + 2*time.Second

// MayBegin returns how many moves may begin, and if there are none, why and from when on some may; zero is after a
// change of the cluster.
func MayBegin(r *v1alpha1.ZoneRebalance, now time.Time) (moves int, why string, from time.Time) {
	if len(UnderWay(r)) > 0 {
		m := UnderWay(r)[0]
		return 0, fmt.Sprintf("the pod in place of %s/%s", m.Namespace, m.Name), time.Time{}
	}
	if end, _ := StoppedUntil(r); now.Before(end) {
		return 0, "the end of the stop, " + end.UTC().Format(time.RFC3339), end
	}
	moves = int(MaxPerHour(r))
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		if !counts(m, now) {
			continue
		}
		moves--
		if end := m.Begun.Add(countsFor + time.Second); from.IsZero() || end.Before(from) {
			from = end
		}
	}
	if moves <= 0 {
		return 0, fmt.Sprintf("the hour: maxPerHour is %d", MaxPerHour(r)), from
	}
	return min(moves, int(ptr.Deref(r.Spec.MaxAtOnce, v1alpha1.DefaultMaxAtOnce))), "", time.Time{}
}

// counts reports whether a move counts among those of this hour.
func counts(m *v1alpha1.RebalanceMove, now time.Time) bool {
	switch m.State {
	case v1alpha1.MoveNotEvicted, v1alpha1.MoveBudgetExhausted, v1alpha1.MoveRefused:
		return false
	}
	return now.Sub(m.Begun.Time) <= countsFor
}

// Rests says why pods of a workload are left alone although a move would help; empty if nothing is against it. all are
// the ZoneRebalances, any of which may have moved the workload.
func Rests(all []*v1alpha1.ZoneRebalance, cooldown time.Duration, workload string, o *Observed) string {
	for _, r := range all {
		m := lastOf(r, workload)
		if m == nil {
			continue
		}
		rest, why := time.Duration(0), ""
		switch {
		case m.State == v1alpha1.MoveEvicting || m.State == v1alpha1.MoveEvicted:
			return "is of a workload of which a pod is being moved"
		case Failed(m):
			rest, why = doubled(cooldown, m.Failures-1), "of which a move has failed or was undone"
		case m.State == v1alpha1.MoveBudgetExhausted:
			rest, why = cooldown, "whose PodDisruptionBudget does not allow an eviction"
		}
		if end := m.At.Add(rest); o.Now.Before(end) {
			return fmt.Sprintf("is of a workload that rests until %s, %s (%s)", end.UTC().Format(time.RFC3339), why, m.State)
		}
	}
	return ""
}

// lastOf returns the last move of a workload; nil if there is none.
func lastOf(r *v1alpha1.ZoneRebalance, workload string) *v1alpha1.RebalanceMove {
	for i := range slices.Backward(r.Status.Moves) {
		if m := &r.Status.Moves[i]; m.Workload == workload {
			return m
		}
	}
	return nil
}

// doubled returns a length, doubled so many times, up to the longest rest.
func doubled(length time.Duration, times int64) time.Duration {
	for range min(max(times, 0), 12) {
		length = min(2*length, longestRest)
	}
	return length
}

// StoppedUntil returns until when no move begins because moves of different workloads have failed in a row, and why;
// zero if that is not so.
func StoppedUntil(r *v1alpha1.ZoneRebalance) (end time.Time, why string) {
	over := slices.Clone(r.Status.Moves)
	slices.SortStableFunc(over, func(a, b v1alpha1.RebalanceMove) int { return b.At.Compare(a.At.Time) })
	failed := map[string]bool{}
	for i := range over {
		m := &over[i]
		if m.State == v1alpha1.MoveMoved || m.State == v1alpha1.MoveUndone || m.Generation != r.Generation {
			break // the copy was right
		}
		if !Failed(m) {
			continue
		}
		if len(failed) == 0 {
			end, why = m.At.Time, fmt.Sprintf("the last: pod %s/%s, %s: %s", m.Namespace, m.Name, m.State, m.Why)
		}
		failed[m.Workload] = true
	}
	if len(failed) < tooManyFailures {
		return time.Time{}, ""
	}
	return end.Add(doubled(Cooldown(r), int64(len(failed)-tooManyFailures))),
		fmt.Sprintf("moves of %d workloads in a row have failed; %s", len(failed), why)
}

// prune forgets moves that decide nothing any more. The order stays that in which they have begun.
func prune(r *v1alpha1.ZoneRebalance, now time.Time) {
	last := map[string]int{}
	for i := range r.Status.Moves {
		last[r.Status.Moves[i].Workload] = i
	}
	type kept struct {
		move v1alpha1.RebalanceMove
		rank int // 0: cannot be spared
	}
	var keep []kept
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		switch {
		case counts(m, now) || m.State == v1alpha1.MoveEvicting || m.State == v1alpha1.MoveEvicted:
			keep = append(keep, kept{*m, 0})
		case last[m.Workload] == i && now.Sub(m.At.Time) <= memory:
			keep = append(keep, kept{*m, 1})
		}
	}
	for at := 0; len(keep) > maxMoves && at < len(keep); {
		if keep[at].rank > 0 { // the oldest that can be
			keep = slices.Delete(keep, at, at+1)
		} else {
			at++
		}
	}
	r.Status.Moves = nil
	for i := range keep {
		r.Status.Moves = append(r.Status.Moves, keep[i].move)
	}
	slices.SortStableFunc(r.Status.Moves, func(a, b v1alpha1.RebalanceMove) int {
		return cmp.Compare(a.Begun.Unix(), b.Begun.Unix())
	})
}
