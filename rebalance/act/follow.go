package act

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// AskWithin is how long after a status is written the evictions are asked for that it says. Two controllers may
	// work at a time, and one of them may have stood still: what it has written is no longer true then.
	AskWithin = 10 * time.Second
	// answerWithin is how long an eviction may go without an answer. After that a pod that runs was not evicted.
	answerWithin = 2 * AskWithin
	// bindWithin is how long a pod in place of an evicted one may have no node, beside the time that the evicted one
	// takes to end.
	bindWithin = 5 * time.Minute
)

// Replicas are the pods of a controller as they are seen.
type Replicas struct {
	// Gone: there is no such controller any more.
	Gone bool
	// Wanted is how many pods it wants; negative if its kind does not say.
	Wanted int64
	// Live are its pods that do not terminate, Bound those of them on a node that is seen, and Ready those that are
	// ready there, too.
	Live, Bound, Ready int64
	// ReadyWithin is how long after its node a pod may take to be ready.
	ReadyWithin time.Duration
}

// Observed is what is seen of the cluster.
type Observed struct {
	Now time.Time
	// Runs reports whether the pod of a move is there and does not terminate.
	Runs func(m *v1alpha1.RebalanceMove) bool
	// Replicas are the pods of a controller.
	Replicas func(controller types.UID) Replicas
	// Excess is how many pods of the rules of a workload are too many.
	Excess func(workload string) int64
}

// UnderWay returns the moves that have begun and are not over.
func UnderWay(r *v1alpha1.ZoneRebalance) (out []*v1alpha1.RebalanceMove) {
	for i := range r.Status.Moves {
		if m := &r.Status.Moves[i]; m.State == v1alpha1.MoveEvicting || m.State == v1alpha1.MoveEvicted {
			out = append(out, m)
		}
	}
	return out
}

// Follow brings the moves that are under way up to date.
func Follow(r *v1alpha1.ZoneRebalance, o *Observed) {
	for _, m := range UnderWay(r) {
		runs := o.Runs(m)
		switch {
		case m.State == v1alpha1.MoveEvicting && !runs:
			enter(m, v1alpha1.MoveEvicted, "", o.Now)
		case m.State == v1alpha1.MoveEvicting && o.Now.Sub(m.Begun.Time) > answerWithin:
			enter(m, v1alpha1.MoveNotEvicted, "the pod runs: its eviction was not asked for, or not answered", o.Now)
		case runs && o.Now.After(m.Due.Time):
			enter(m, v1alpha1.MoveNotEvicted, "the pod runs, although its eviction was accepted", o.Now)
		}
		if m.State == v1alpha1.MoveEvicted && !runs {
			follow(m, o)
		}
	}
	prune(r, o.Now)
	for i := range r.Status.Moves {
		m := &r.Status.Moves[i]
		if m.State != v1alpha1.MoveMoved || o.Now.Sub(m.At.Time) >= settledAfter || lastOf(r, m.Workload) != m {
			continue
		}
		if excess := o.Excess(m.Workload); excess > m.Excess { // it rests from the end of the move on
			enter(m, v1alpha1.MoveUndone, fmt.Sprintf("%d pods of its workload are too many again, %d after the move", excess, m.Excess), m.At.Time)
		}
	}
}

// follow ends the move of a pod that is evicted, if it is over.
func follow(m *v1alpha1.RebalanceMove, o *Observed) {
	c, excess := o.Replicas(m.Controller), o.Excess(m.Workload)
	if c.Gone {
		enter(m, v1alpha1.MoveNotNeeded, "the controller of the pod is gone", o.Now)
		return
	}
	if c.Wanted >= 0 && c.Wanted != m.Replicas {
		enter(m, v1alpha1.MoveNotNeeded, fmt.Sprintf("the controller of the pod wants %d pods by now, not %d", c.Wanted, m.Replicas), o.Now)
		return
	}
	missing := m.Replicas - c.Live
	switch {
	case missing <= 0 && c.Ready == c.Live && excess < m.Excess:
		enter(m, v1alpha1.MoveMoved, fmt.Sprintf("%d pods of its workload are too many, %d before", excess, m.Excess), o.Now)
	case missing <= 0 && c.Ready == c.Live:
		enter(m, v1alpha1.MoveNotBetter, fmt.Sprintf("all pods are ready, and %d are too many, %d before", excess, m.Excess), o.Now)
	case (missing > 0 || c.Bound < c.Live) && o.Now.After(m.Due.Time):
		enter(m, v1alpha1.MoveNotBound, fmt.Sprintf("%d of %d pods have no node", m.Replicas-c.Bound, m.Replicas), o.Now)
	case o.Now.After(m.Due.Add(c.ReadyWithin)):
		enter(m, v1alpha1.MoveNotReady, fmt.Sprintf("%d of %d pods are not ready", m.Replicas-c.Ready, m.Replicas), o.Now)
	default:
		return
	}
	m.Excess = excess
}

// NextChange is when a move may be over without a change of the cluster; zero if none is under way.
func NextChange(r *v1alpha1.ZoneRebalance, o *Observed) (at time.Time) {
	for _, m := range UnderWay(r) {
		next := m.Due.Time
		switch {
		case m.State == v1alpha1.MoveEvicting:
			next = m.Begun.Add(answerWithin)
		case o.Now.After(next):
			next = next.Add(o.Replicas(m.Controller).ReadyWithin)
		}
		if at.IsZero() || next.Before(at) {
			at = next
		}
	}
	if at.IsZero() {
		return at
	}
	return at.Add(time.Second)
}

// Begin enters moves that are about to be made. Their Grace is how long the pods may take to end.
func Begin(r *v1alpha1.ZoneRebalance, moves []v1alpha1.RebalanceMove, graces []time.Duration, o *Observed) {
	for i := range moves {
		m := moves[i]
		m.Excess, m.Generation, m.Failures = o.Excess(m.Workload), r.Generation, 0
		if last := lastOf(r, m.Workload); last != nil && (last.State != v1alpha1.MoveMoved || o.Now.Sub(last.At.Time) < settledAfter) {
			m.Failures = last.Failures
		}
		enter(&m, v1alpha1.MoveEvicting, "", o.Now)
		m.Begun, m.Due = m.At, second(o.Now.Add(graces[i]+bindWithin))
		r.Status.Moves = append(withoutPod(r.Status.Moves, m.UID), m)
	}
	prune(r, o.Now)
}

// withoutPod returns the moves without that of a pod, which was not evicted then.
func withoutPod(moves []v1alpha1.RebalanceMove, uid types.UID) (out []v1alpha1.RebalanceMove) {
	for i := range moves {
		if moves[i].UID != uid {
			out = append(out, moves[i])
		}
	}
	return out
}

// Answer is what the API server has answered to an eviction.
type Answer int

// The answers.
const (
	Unknown   Answer = iota // none, or one that does not say whether the pod is evicted
	Accepted                // the pod is evicted
	Declined                // the pod is not evicted, for a reason that is none of its workload's
	Exhausted               // a PodDisruptionBudget does not allow it
	Refused                 // it is not allowed for another reason
)

// Record enters an answer.
func Record(r *v1alpha1.ZoneRebalance, uid types.UID, answer Answer, why string, now time.Time) {
	states := map[Answer]v1alpha1.RebalanceMoveState{
		Accepted: v1alpha1.MoveEvicted, Declined: v1alpha1.MoveNotEvicted, Exhausted: v1alpha1.MoveBudgetExhausted,
		Refused: v1alpha1.MoveRefused,
	}
	for _, m := range UnderWay(r) {
		if state, known := states[answer]; known && m.UID == uid && m.State == v1alpha1.MoveEvicting {
			enter(m, state, why, now)
		}
	}
}

// enter gives a move another state.
func enter(m *v1alpha1.RebalanceMove, state v1alpha1.RebalanceMoveState, why string, now time.Time) {
	m.State, m.At, m.Why = state, second(now), ShortReason(why)
	if Failed(m) {
		m.Failures++
	}
}

// Failed reports whether a move is a failure of its workload.
func Failed(m *v1alpha1.RebalanceMove) bool {
	switch m.State {
	case v1alpha1.MoveRefused, v1alpha1.MoveNotBound, v1alpha1.MoveNotReady, v1alpha1.MoveNotBetter, v1alpha1.MoveUndone:
		return true
	}
	return false
}

// second is a time as the API server keeps it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// How many bytes the API lets a reason have, and a message.
const (
	maxReason  = 512
	maxMessage = 1024
)

// ShortReason returns a text that fits a field of the status.
func ShortReason(text string) string { return shortened(text, maxReason) }

// shortened returns a text, cut between two characters if it is too long.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
