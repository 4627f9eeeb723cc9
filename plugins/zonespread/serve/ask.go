package serve

import (
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/zonespread/policy"
)

// Answer has the input of one policy for one pod, besides the counts.
type Answer struct {
	// View, Replicas and Typical are parts of a policy.Question.
	View     policy.View
	Replicas int64
	Typical  bool
	// Workload is the pod's own workload, for the caps.
	Workload policy.Workload
	// Lacking are zones that may be full because their nodes lack what the pod requests: the caller looks for room, calls Took
	// or Lacks, and asks again if that was new.
	Lacking []string
	// Refusing: some zone has refused pods, so Took must be called when a node passes.
	Refusing bool

	changes uint64 // of the entry, at this time
}

// Ask returns the input of the policies that apply to a pod.
func (s *Policies) Ask(pod *v1.Pod, applied []*Applied, requests policy.Requests) []Answer {
	workload := s.cluster.workload(pod.Namespace, ownerOf(pod))
	answers := make([]Answer, len(applied))
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for i, a := range applied {
		// The entry may have a newer spec by now. This pod is still judged by the spec that it was found with: the change
		// wakes it.
		e, out := a.entry, &answers[i]
		matching := int64(-1)
		if e.filled {
			matching = e.members.matchingWith(pod.UID, pod.Labels[a.GroupBy()])
		}
		out.Workload, out.Replicas, out.changes = workload, a.Replicas(&workload, matching), e.changes
		out.View, out.Lacking, out.Refusing = e.zones.View(now, requests), e.zones.Lacking(now, requests), e.zones.Refusing()
		newest := e.members.newest()
		out.Typical = len(e.members.templates) == 0 || newest.key == templateOf(a.Policy, pod, s.comparisonOperators).key
	}
	return answers
}

// Took records that zones have room for a pod with these requests. It returns whether that is new.
func (s *Policies) Took(a *Applied, requests policy.Requests, zones ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for _, zone := range zones {
		changed = a.entry.zones.Took(s.clock.Now(), zone, requests) || changed
	}
	if changed && s.entries[a.UID()] == a.entry {
		s.factsChangedLocked(a.entry)
	}
	return changed
}

// Lacks records that no node of a zone has what a pod requests. It returns whether that is new.
func (s *Policies) Lacks(a *Applied, requests policy.Requests, zone string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, _ := a.entry.zones.Refused(s.clock.Now(), zone, requests, true)
	if changed && s.entries[a.UID()] == a.entry {
		s.factsChangedLocked(a.entry)
	}
	return changed
}

// Placed records that a pod has a node and no longer waits.
func (s *Policies) Placed(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil {
		s.forgetLocked(w)
	}
}
