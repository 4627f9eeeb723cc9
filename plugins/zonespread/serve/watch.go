package serve

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
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
		if available {
			s.refillLocked(e) // events of pods were not for it
		}
	}
}

// policySeen handles the current state of a policy.
func (s *Policies) policySeen(obj *v1alpha1.ZoneSpreadPolicy) {
	s.cluster.startWorkloads()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[obj.UID]
	if !known {
		e = &entry{members: newMembers(), refused: map[types.UID]*refusal{}}
		s.entries[obj.UID] = e
		e.object.Latest = obj
		s.enterLocked(e, obj)
	}
	changed := e.object.See(obj, s.compileLocked)
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
	s.applyLocked(e)
	s.refillLocked(e)
	if !e.object.Valid() {
		if s.leading {
			s.writer.Later(e.object.Latest.Namespace, e.object.Latest.UID, 0) // however many there are, what decisions rest on is written first
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
	s.leaveLocked(e.object.Latest)
	s.active.replace(e.applied, nil)
	e.applied = nil
	s.releaseLocked(e, anyRefusal)
	s.dropRefusalsLocked(e)
}

// refillLocked schedules the members of a policy to be collected again.
func (s *Policies) refillLocked(e *entry) {
	e.members = newMembers()
	s.schedule(task{fillMembers, e.object.Latest.UID}, 0)
}

// fillAll schedules the members of all policies to be collected, once pods and nodes are known.
func (s *Policies) fillAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule(task{kind: observeNodes}, 0)
	for uid := range s.entries {
		s.schedule(task{fillMembers, uid}, 0)
	}
}

// fillStep is how many pods are added at a time, so that cycles do not wait for all pods of a policy.
const fillStep = 256

// fill adds the existing pods that a policy selects.
func (s *Policies) fill(uid types.UID) {
	if !s.cluster.synced() {
		return // it is done again then
	}
	s.mu.Lock()
	e := s.entries[uid]
	if e == nil || !e.object.Valid() || e.filled {
		s.mu.Unlock()
		return
	}
	p, collected := e.object.Spec, e.members
	s.mu.Unlock()
	all, _ := s.cluster.pods.Pods(p.Namespace()).List(labels.Everything()) // the lister of a cache has no errors
	var selected []*v1.Pod
	for _, pod := range all {
		if p.Selects(pod.Labels) {
			selected = append(selected, pod)
		}
	}
	for step := range slices.Chunk(selected, fillStep) {
		s.mu.Lock()
		if e.members != collected {
			s.mu.Unlock()
			return // of another spec, or of a newer list
		}
		for _, listed := range step {
			// The pods' events arrive at the same time. Only the lister's current state is not older than the last of them.
			if pod, err := s.cluster.pods.Pods(listed.Namespace).Get(listed.Name); err == nil {
				e.update(pod)
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.members == collected {
		e.filled, e.stale = true, true
	}
}

// update updates the policy's members for a pod. It returns whether that changed anything.
func (e *entry) update(pod *v1.Pod) bool {
	p := e.object.Spec
	var changed bool
	if live(pod) && p.Selects(pod.Labels) {
		changed = e.members.upsert(p, pod)
	} else {
		changed = e.members.remove(pod.UID)
	}
	e.stale = e.stale || changed
	return changed
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
	if !s.active.has(pod.Namespace) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil && (after == nil || after.Spec.NodeName != "" || after.DeletionTimestamp != nil) {
		s.forgetLocked(w)
	}
	for _, a := range s.active.of(pod) {
		s.memberChangedLocked(a, before, after)
	}
	if before != nil && after != nil && !maps.Equal(before.Labels, after.Labels) {
		for _, a := range s.active.of(before) {
			if !a.Selects(after.Labels) {
				s.memberChangedLocked(a, before, after)
			}
		}
	}
}

// memberChangedLocked handles the change of a pod that a policy selects or selected.
func (s *Policies) memberChangedLocked(a *Applied, before, after *v1.Pod) {
	e := a.entry
	if e.object.Spec != a.Policy {
		return // the change of its spec comes first
	}
	matchingBefore := e.matching()
	if after != nil {
		e.update(after)
	} else if e.remove(before.UID) {
		e.stale = true
	}
	if before != nil && after != nil && live(before) && !live(after) {
		// The framework has no event for a pod that starts to terminate.
		s.releaseLocked(e, func(r *refusal) bool { return r.helpedByEndOf(before, s.zoneOf(a.TopologyKey(), before.Spec.NodeName)) })
	}
	if matching := e.matching(); e.filled && a.Matching() && !a.SameCaps(matchingBefore, matching) {
		s.releaseLocked(e, func(r *refusal) bool { return r.helpedByReplicas(matchingBefore, matching) })
	}
}
