package permitgate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// complaint is something about a PodGroup or its members that a person should correct, or know of.
type complaint struct {
	reason string // of the event
	text   string // empty when all is well
}

// complaintsLocked returns what there is to complain of a gang whose PodGroup exists.
func (s *Shared) complaintsLocked(e *entry, now time.Time) []complaint {
	_, timeout := timeoutOf(e.group)
	_, policy := recoveryPolicyOf(e.group, s.args.RecoveryPolicy)
	return []complaint{
		{reasonInvalidTimeout, timeout},
		{reasonInvalidPolicy, policy},
		{reasonMixed, s.mixedMembersLocked(e)},
		{reasonPartlyBound, s.depletedLocked(e, now)},
	}
}

// mixedMembersLocked says in what the members differ that makes a gang weaker than it looks. The answer is
// kept until the members change.
func (s *Shared) mixedMembersLocked(e *entry) string {
	if !e.mixed.stale {
		return e.mixed.text
	}
	var priorities []int32
	foreign := map[string]bool{}
	for _, pod := range e.pods {
		priorities = append(priorities, priorityOf(pod))
		if _, ours := s.profiles[pod.Spec.SchedulerName]; !ours && pod.Spec.NodeName == "" {
			foreign[pod.Spec.SchedulerName] = true
		}
	}
	var parts []string
	if len(priorities) > 0 {
		if low, high := slices.Min(priorities), slices.Max(priorities); low != high {
			parts = append(parts, fmt.Sprintf("the members have different priorities, from %d to %d: the gang is only as safe from preemption as the lowest of them", low, high))
		}
	}
	names := make([]string, 0, len(foreign))
	for name := range foreign {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("some members name the scheduler %q, which does not run this gang: they count once they are bound", name))
	}
	e.mixed = mixed{text: strings.Join(parts, "; ")}
	return e.mixed.text
}

// mixed is what the members differ in, in words.
type mixed struct {
	stale bool
	text  string
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// strandedNoteLocked says that a gang stays bound in part, and what becomes of it.
func (s *Shared) strandedNoteLocked(e *entry) string {
	live, _, settled := e.gang.Counts()
	note := fmt.Sprintf("%d of %d members have been bound for %s, and the other %d cannot join them", settled, e.gang.MinMember(), s.args.RecoveryTimeout.Round(time.Second), live-settled)
	if failure := e.gang.LastFailure(); failure != "" {
		note += ": " + failure
	}
	if policy, _ := recoveryPolicyOf(e.group, s.args.RecoveryPolicy); policy == RecoveryEvict {
		return note + "; recoveryPolicy Evict: the bound ones are evicted"
	}
	return note + "; recoveryPolicy Keep: the bound ones run on"
}

// depletedLocked says that a part of a gang stays bound while members of its quorum do not exist. A gang that is on its way
// to its end is none: who has succeeded has had a turn with the others, whoever made the pod.
func (s *Shared) depletedLocked(e *entry, now time.Time) string {
	if !e.gang.Depleted(now) || s.historySynced == nil || !s.historySynced() {
		return ""
	}
	bound, succeeded := 0, 0
	for _, pod := range e.pods {
		if pod.Spec.NodeName != "" {
			bound++
		}
	}
	for _, f := range e.facts {
		if f.phase == v1.PodSucceeded {
			succeeded++
		}
	}
	live, _, _ := e.gang.Counts()
	if minMember := e.gang.MinMember(); bound+succeeded < minMember {
		return fmt.Sprintf("bound in part for %s: needs %d members, %d exist, %d of them bound; the bound ones run on, whatever recoveryPolicy says, since their eviction would not bring the others",
			s.args.RecoveryTimeout.Round(time.Second), minMember, live, bound)
	}
	return ""
}
