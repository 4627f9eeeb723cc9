package serve

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

// servedChanged turns policies on or off with the CustomResourceDefinition.
func (s *Policies) servedChanged(available bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setServedLocked(available)
}

func (s *Policies) setServedLocked(available bool) {
	if s.served == available {
		return
	}
	s.served = available
	for _, e := range s.entries {
		s.applyLocked(e)
		if available { // events of pods were not for it
			e.counted, e.matching, e.stale = nil, nil, true
			s.resetMatchingLocked(e)
		}
	}
}

// policySeen handles the current state of a policy.
func (s *Policies) policySeen(obj *v1alpha1.ZoneSpreadPolicy) {
	s.cluster.startJobs()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[obj.UID]
	if !known {
		e = &entry{refused: map[types.UID]*Attempt{}}
		s.entries[obj.UID] = e
	}
	changed := e.object.See(obj, policy.Compile)
	s.setServedLocked(true) // servedChanged may come later
	switch {
	case changed:
		s.respecLocked(e)
	case !s.leading && e.object.Valid():
		// All facts that the leader decides by are in the status: a standby that takes over continues from there.
		e.zones = policy.NewZones(e.object.Spec, obj.Status.Zones)
		s.schedule(task{kind: observeNodes}, gatherInterval)
	default:
		e.stale = true // the status may be an older one than the last that was looked at, or not ours
	}
}

// respecLocked applies the spec of a new or changed policy.
func (s *Policies) respecLocked(e *entry) {
	e.counted = nil
	s.applyLocked(e)
	s.resetMatchingLocked(e)
	if !e.object.Valid() {
		if s.leading {
			// however many there are, what decisions rest on is written first
			s.writer.Later(e.object.Latest.Namespace, e.object.Latest.UID, 0)
		}
		return // the facts about its zones are kept until the spec is corrected
	}
	if e.zones == nil {
		e.zones = policy.NewZones(e.object.Spec, e.object.Latest.Status.Zones)
	} else {
		e.zones.Respec(e.object.Spec)
	}
	e.observed = false
	s.schedule(task{kind: observeNodes}, 0)
}

// policyGone forgets a policy and wakes the pods that it refused.
func (s *Policies) policyGone(obj *v1alpha1.ZoneSpreadPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[obj.UID]
	if !ok {
		return
	}
	delete(s.entries, obj.UID)
	s.active.replace(e.applied, nil)
	e.applied = nil
	s.wakeAllLocked(e)
	s.dropRefusalsLocked(e)
}

// podsAndNodesSynced schedules what waited for the first lists of pods and nodes.
func (s *Policies) podsAndNodesSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule(task{kind: observeNodes}, 0)
	for uid := range s.entries {
		s.schedule(task{fillMatching, uid}, 0)
	}
}

// podSeen handles the current state of a pod.
func (s *Policies) podSeen(pod *v1.Pod, _ bool) { s.podChanged(nil, pod) }

// podGone handles the deletion of a pod.
func (s *Policies) podGone(pod *v1.Pod) { s.podChanged(pod, nil) }

// podChanged handles the change of a pod; before is nil for a new pod, after for a deleted one.
func (s *Policies) podChanged(before, after *v1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	if !s.active.hasNamespace(pod.Namespace) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil &&
		(after == nil || after.Spec.NodeName != "" || after.DeletionTimestamp != nil) {
		s.forgetLocked(w)
	}
	for _, a := range s.active.selecting(pod) {
		s.countChangedLocked(a, before, after)
	}
	if before != nil && after != nil && !maps.Equal(before.Labels, after.Labels) {
		for _, a := range s.active.selecting(before) {
			if !a.Selects(after.Labels) {
				s.countChangedLocked(a, before, after)
			}
		}
	}
}

// countChangedLocked handles the change of a pod that a policy selects or selected.
func (s *Policies) countChangedLocked(a *Applied, before, after *v1.Pod) {
	e := a.entry
	if e.object.Spec != a.Policy {
		return // the change of its spec comes first
	}
	e.stale = true
	if before != nil && after != nil && pods.Live(before) && !pods.Live(after) {
		// The framework has no event for a pod that starts to terminate.
		s.wakeIfLocked(e, func(refused *Attempt) bool { return refused.counts(before) })
	}
	if e.matching == nil {
		return
	}
	matching := e.matching.count()
	if after != nil {
		e.matching.update(after)
	} else {
		e.matching.remove(before.UID)
	}
	// With every pod that comes or goes R is another one, so that only those are woken that it may help.
	if now := e.matching.count(); matching >= 0 && !a.SameCaps(matching, now) {
		s.wakeIfLocked(e, func(refused *Attempt) bool { return refused.helpedByReplicas(matching, now) })
	}
}
