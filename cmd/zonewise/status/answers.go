package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// Answer is a condition in which the controller beside the scheduler says what has come of a part of a spec.
type Answer struct {
	Condition string                 `json:"condition"`
	Status    metav1.ConditionStatus `json:"status"`
	Reason    string                 `json:"reason"`
	Message   string                 `json:"message"`
}

// AnswersOf returns the controller's answers among the conditions of an object.
func AnswersOf(conditions []metav1.Condition) (out []Answer) {
	for _, kind := range []string{v1alpha1.ConditionScaleDownOrdered, v1alpha1.ConditionBuying} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil {
			out = append(out, Answer{Condition: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return out
}

// Troubles says of each answer that is not True what it says, one line each.
func Troubles(answers []Answer) (out []string) {
	for _, a := range answers {
		if a.Status != metav1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s is %s, %s: %s", a.Condition, a.Status, a.Reason, a.Message))
		}
	}
	return out
}

// Messages returns a message, if there is one, and the troubles of answers.
func Messages(message string, answers []Answer) (out []string) {
	if message != "" {
		out = append(out, message)
	}
	return append(out, Troubles(answers)...)
}
