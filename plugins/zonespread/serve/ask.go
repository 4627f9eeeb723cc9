package serve

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// Answer has the input of one policy for one pod, besides the counts.
type Answer struct {
	*Applied
	// View, Replicas and Typical are parts of a policy.Question.
	View     policy.View
	Replicas int64
	Typical  bool
	// Selector selects the pods that count for the skew, and Held those that count for the caps; it is zero without caps.
	Selector labels.Selector
	Held     policy.Held
	// Eligible are the nodes that count for the skew, and Admitted those that the pod's node affinity admits; nil for all.
	Eligible, Admitted counts.Eligibility
	// Refusing: some zone has refused pods, so Took must be called when a node passes.
	Refusing bool

	workload types.UID
	changes  uint64 // of the entry, at this time
}

// Ask returns the input of the policies that apply to a pod. hasRoom reports whether a node of a zone that is eligible for
// the pod has what it requests. It is asked about zones that may be full because their nodes lacked that; it may be nil.
func (s *Policies) Ask(pod *v1.Pod, applied []*Applied, requests policy.Requests, hasRoom func(a *Answer, zone string) bool) []Answer {
	workload := s.cluster.workload(pod.Namespace, ownerOf(pod))
	answers := make([]Answer, len(applied))
	for i, a := range applied {
		t := templateOf(a.Policy, pod, s.comparisonOperators)
		out := &answers[i]
		*out = Answer{Applied: a, Selector: a.SelectorFor(pod.Labels), Eligible: t.eligible, Admitted: t.eligible, workload: workload.UID}
		if a.HonorsTaints() {
			out.Admitted = counts.EligibilityOf(pod, a.HonorsAffinity(), false, s.comparisonOperators)
		}
		if a.Caps() {
			out.Held = a.HeldFor(&workload, pod.Labels)
		}
		lacking := s.complete(out, pod, &workload, requests, t.key)
		if hasRoom == nil || len(lacking) == 0 {
			continue
		}
		for _, zone := range lacking {
			room := hasRoom(out, zone)
			s.learn(a, func(zones *policy.Zones, now time.Time) (changed bool) {
				if room {
					return zones.Took(now, zone, requests)
				}
				changed, _ = zones.Refused(now, zone, requests, true)
				return changed
			})
		}
		s.complete(out, pod, &workload, requests, t.key)
	}
	return answers
}

// complete adds what changes with time to an answer. It returns the zones that may be full because their nodes lack what the
// pod requests.
func (s *Policies) complete(out *Answer, pod *v1.Pod, workload *policy.Workload, requests policy.Requests, template string) (lacking []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The entry may have a newer spec by now. This pod is still judged by the spec that it was found with: the change
	// wakes it.
	e := out.entry
	matching := int64(-1)
	if e.filled {
		matching = e.matchingWith(pod.UID, pod.Labels[out.GroupBy()])
	}
	now := s.clock.Now()
	out.Replicas, out.changes = out.Policy.Replicas(workload, matching), e.changes
	out.View, out.Refusing = e.zones.View(now, requests), e.zones.Refusing()
	out.Typical = len(e.templates) == 0 || e.newest().key == template
	return e.zones.Lacking(now, requests)
}

// Took records that zones have room for a pod with these requests.
func (s *Policies) Took(a *Applied, requests policy.Requests, names ...string) {
	s.learn(a, func(zones *policy.Zones, now time.Time) (changed bool) {
		for _, name := range names {
			changed = zones.Took(now, name, requests) || changed
		}
		return changed
	})
}

// learn changes the facts of a policy, which may be deleted by now.
func (s *Policies) learn(a *Applied, change func(zones *policy.Zones, now time.Time) (changed bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change(a.entry.zones, s.clock.Now()) && s.entries[a.UID()] == a.entry {
		s.factsChangedLocked(a.entry)
	}
}

// Placed records that a pod has a node and no longer waits.
func (s *Policies) Placed(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil {
		s.forgetLocked(w)
	}
}
