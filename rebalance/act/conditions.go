package act

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// Conclude sets the conditions Balanced and Stopped by what the status says. waits is what the next move waits for,
// empty if nothing.
func Conclude(r *v1alpha1.ZoneRebalance, waits string, now time.Time) {
	s := &r.Status
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		SetCondition(r, kind, status, reason, message, now)
	}
	stopped := Stopped(r, now)
	switch left, underWay := Left(r), UnderWay(r); {
	case s.PlannedAt.IsZero():
		set(v1alpha1.ConditionBalanced, metav1.ConditionUnknown, v1alpha1.ReasonNotPlannedYet, "no plan has been made yet")
	case underWay > 0 || left > 0 && waits != "":
		message := fmt.Sprintf("%d pods too many; moves under way: %d, left: %d", s.Before.Excess, underWay, left)
		if waits != "" {
			message += "; waits for " + waits
		}
		set(v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonMoving, message)
	case left > 0:
		set(v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonMovesPlanned,
			fmt.Sprintf("%d pods too many, %d with %d moves; %d is the least",
				s.Before.Excess, s.After.Excess, left, s.Before.LeastMoves))
	case stopped:
		set(v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonStopped, "the plan was stopped")
	case movedSince(r):
		set(
			v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonMoving,
			"the moves of the plan are made, and the next plan says what is left",
		)
	case s.Before.Excess == 0:
		set(v1alpha1.ConditionBalanced, metav1.ConditionTrue, v1alpha1.ReasonBalanced, "no pod is too many in its zone")
	default:
		set(
			v1alpha1.ConditionBalanced, metav1.ConditionFalse, v1alpha1.ReasonNothingToMove,
			fmt.Sprintf("%d pods too many, and no move would help", s.Before.Excess),
		)
	}
	switch {
	case stopped:
		set(v1alpha1.ConditionStopped, metav1.ConditionTrue, s.Stop.Reason,
			fmt.Sprintf("%s; a plan is made again after %s", s.Stop.Message, s.Stop.ResumesAt.UTC().Format(time.RFC3339)))
	case GangsStopped(r, now):
		set(v1alpha1.ConditionStopped, metav1.ConditionTrue, s.GangStop.Reason,
			fmt.Sprintf("%s; no gang is evicted before %s, and other moves go on",
				s.GangStop.Message, s.GangStop.ResumesAt.UTC().Format(time.RFC3339)))
	default:
		set(v1alpha1.ConditionStopped, metav1.ConditionFalse, v1alpha1.ReasonNotStopped, "nothing has stopped the plan")
	}
}

// movedSince reports whether a move has ended since the last plan.
func movedSince(r *v1alpha1.ZoneRebalance) bool {
	for i := range r.Status.Moves {
		if m := &r.Status.Moves[i]; m.State != v1alpha1.MovePlanned && !m.At.Before(&r.Status.PlannedAt) {
			return true
		}
	}
	return false
}

// SetCondition sets a condition of the spec that is there.
func SetCondition(
	r *v1alpha1.ZoneRebalance, kind string, status metav1.ConditionStatus, reason, message string, now time.Time,
) {
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: shortened(message, maxMessage),
		ObservedGeneration: r.Generation, LastTransitionTime: second(now),
	})
}
