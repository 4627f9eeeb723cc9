package rebalance

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/sim"
)

// WhyGangStays says why members of a gang may not be evicted together; empty if they may be. It evicts them in the
// copy, by the copy's Eviction API. Of the options it uses Selects.
func WhyGangStays(s *sim.Sim, options Options, members []*v1.Pod) string {
	stay := newStayers(s, options)
	for _, pod := range members {
		if why := stay.whyMember(pod); why != "" {
			return "member " + pod.Name + " " + why
		}
	}
	for _, pod := range members {
		if err := s.Evict(pod); err != nil {
			return "the eviction of member " + pod.Name + " would be refused: " + err.Error()
		}
	}
	for _, pod := range members { // with all of them gone: a Job may have failed
		if why := s.WhyNotReplaced(pod); why != "" {
			return "member " + pod.Name + " would not be replaced: " + why
		}
	}
	return ""
}

// whyMember returns why a bound member of a gang is not evicted with the others; empty if it may be.
func (s *stayers) whyMember(pod *v1.Pod) string {
	switch over := metav1.GetControllerOfNoCopy(pod); {
	case !s.options.selects(pod):
		return "is not selected"
	case AsksToStay(pod) != "":
		return AsksToStay(pod)
	case s.sim.OfOtherScheduler(pod):
		return "belongs to the scheduler " + pod.Spec.SchedulerName
	case over != nil && s.rollouts[over.UID] != "":
		return "takes part in " + s.rollouts[over.UID]
	}
	return ""
}
