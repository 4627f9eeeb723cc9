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
	balanced := func(status metav1.ConditionStatus, reason, format string, args ...any) {
		SetCondition(r, v1alpha1.ConditionBalanced, status, reason, fmt.Sprintf(format, args...), now)
	}
	end, why := StoppedUntil(r)
	stopped := now.Before(end)
	switch underWay := len(UnderWay(r)); {
	case underWay > 0:
		balanced(metav1.ConditionFalse, v1alpha1.ReasonMoving, "%d pods too many; moves under way: %d; waits for %s", s.Excess, underWay, waits)
	case s.Excess == 0:
		balanced(metav1.ConditionTrue, v1alpha1.ReasonBalanced, "no pod is too many in its zone")
	case stopped:
		balanced(metav1.ConditionFalse, v1alpha1.ReasonStopped, "%d pods too many, and moves have failed", s.Excess)
	case s.SearchedAt.IsZero():
		balanced(metav1.ConditionFalse, v1alpha1.ReasonNotPlannedYet, "%d pods too many, and no moves have been searched yet", s.Excess)
	case waits != "":
		balanced(metav1.ConditionFalse, v1alpha1.ReasonMoving, "%d pods too many; waits for %s", s.Excess, waits)
	case s.Planned > 0:
		balanced(metav1.ConditionFalse, v1alpha1.ReasonMovesPlanned, "%d pods too many, and %d moves would help", s.Excess, s.Planned)
	default:
		balanced(metav1.ConditionFalse, v1alpha1.ReasonNothingToMove, "%d pods too many, and no move would help", s.Excess)
	}
	if stopped {
		SetCondition(r, v1alpha1.ConditionStopped, metav1.ConditionTrue, v1alpha1.ReasonMovesFailed,
			fmt.Sprintf("no move begins before %s: %s", end.UTC().Format(time.RFC3339), why), now)
	} else {
		SetCondition(r, v1alpha1.ConditionStopped, metav1.ConditionFalse, v1alpha1.ReasonNotStopped, "moves have not failed in a row", now)
	}
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
