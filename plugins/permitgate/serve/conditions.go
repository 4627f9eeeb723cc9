package serve

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Autoscalers look for pods with the condition PodScheduled=False, reason Unschedulable. For a refused gang
// kube-scheduler writes it only on the member that was in a cycle; the others are written here.

// isUnschedulable reports whether the members of a gang that was refused are unschedulable, and not about to get room by
// a preemption. So they are while it waits for its turn to be looked at again. kube-scheduler writes those of native
// gangs.
func (g *Gang) isUnschedulable() bool {
	return g.Group != nil && !g.Group.Native && (g.Phase == gang.Backoff || g.Phase == gang.Queued) && !g.Preempting &&
		(g.Last.Cause == gang.CauseNoRoom || g.Last.Cause == gang.CauseUnschedulable || g.Last.Cause == gang.CauseCycleFailed)
}

// queueConditions has the members of a gang written if it was refused.
func (s *Server) queueConditions(id podgroup.ID, g *Gang) {
	if g.isUnschedulable() {
		s.agenda.Add(job{kind: jobConditions, gang: id})
	}
}

// writeConditions writes the condition on the members of a gang that lack it. Several gangs are written at a time, so
// that a large one does not keep others waiting.
func (s *Server) writeConditions(ctx context.Context, id podgroup.ID) error {
	g, known := s.Gangs.Get(id)
	if !known || !g.isUnschedulable() {
		return nil
	}
	prefix := "PodGroup " + id.String() + ": "
	message := prefix + g.Last.ConditionMessage()
	var pods []*v1.Pod
	for _, m := range s.Gangs.Members(id) {
		if m.Missing && m.Pod.Status.NominatedNodeName == "" && len(m.Pod.Spec.SchedulingGates) == 0 && needsCondition(m.Pod, prefix, message) {
			pods = append(pods, m.Pod)
		}
	}
	now := metav1.Time{Time: s.Clock.Now()}
	return forAll(pods, func(pod *v1.Pod) error {
		if g, known := s.Gangs.Get(id); !known || !g.isUnschedulable() {
			return nil // something has changed since
		}
		err := s.patcher.Condition(ctx, pod, &v1.PodCondition{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			Message: message, LastTransitionTime: now, ObservedGeneration: pod.Generation,
		})
		if apierrors.IsConflict(err) {
			return nil // another pod has the name
		}
		return err
	})
}

// needsCondition reports whether a pod must get the condition. A condition of kube-scheduler's stays.
func needsCondition(pod *v1.Pod, prefix, message string) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
			return strings.HasPrefix(c.Message, prefix) && c.Message != message
		}
	}
	return true
}
