package serve

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
)

// servedChanged turns everything on or off with the CustomResourceDefinition.
func (s *Policies) servedChanged(available bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == available {
		return
	}
	s.served = available
	s.publishLocked("")
	for _, e := range s.entries {
		s.releaseLocked(e, anyRefusal)
		if available && e.object.Valid() {
			s.refillLocked(e) // events of pods were not for it
		}
	}
}

// policySeen takes a policy as the API server shows it.
func (s *Policies) policySeen(obj *v1alpha1.ZoneSpreadPolicy) {
	s.cluster.startWorkloads()
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known := s.entries[obj.UID]
	if !known {
		e = &entry{members: newMembers(), refused: map[types.UID]*refusal{}}
		s.entries[obj.UID] = e
	}
	changed := e.object.See(obj, policy.Compile)
	if !s.served {
		s.served = true // servedChanged may come later
		s.publishLocked("")
	}
	switch {
	case changed:
		s.respecLocked(e)
	case !s.leading && e.object.Valid():
		// The facts that the leader decides by are all in the status: a standby that takes over goes on from there.
		e.zones = policy.NewZones(e.object.Spec, obj.Status.Zones)
		s.scheduleLocked(task{kind: lookAtNodes}, gatherInterval)
	}
}

// respecLocked takes in the spec of a policy that is new or has changed.
func (s *Policies) respecLocked(e *entry) {
	s.publishLocked(e.object.Latest.Namespace)
	s.releaseLocked(e, anyRefusal)
	s.writer.Now(e.object.Latest.UID)
	if !e.object.Valid() {
		return // what is known of its zones is kept until the spec is mended
	}
	if e.zones == nil {
		e.zones = policy.NewZones(e.object.Spec, e.object.Latest.Status.Zones)
	} else {
		e.zones.Respec(e.object.Spec)
	}
	s.refillLocked(e)
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
	s.publishLocked(obj.Namespace)
	s.releaseLocked(e, anyRefusal)
	s.agenda.remove(task{passDeadline, obj.UID})
	s.dropRefusalsLocked(e)
}

// refillLocked has the members of a policy collected again.
func (s *Policies) refillLocked(e *entry) {
	e.members, e.filled, e.seen = newMembers(), false, false
	s.scheduleLocked(task{fillMembers, e.object.Latest.UID}, 0)
}

// fillAll has the members of all policies collected, once pods and nodes are known.
func (s *Policies) fillAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, e := range s.entries {
		if e.object.Valid() && !e.filled {
			s.scheduleLocked(task{fillMembers, uid}, 0)
		}
	}
}

// fillStep is how many pods are taken in at a time, so that cycles need not wait for all of a policy's.
const fillStep = 256

// fill takes in the pods that a policy selects and that exist already.
func (s *Policies) fill(uid types.UID) {
	if !s.cluster.synced() {
		return // it is done again then
	}
	s.mu.Lock()
	e := s.entries[uid]
	var p *policy.Policy
	if e != nil && e.object.Valid() && !e.filled {
		p = e.object.Spec
	}
	s.mu.Unlock()
	if p == nil {
		return
	}
	all, _ := s.cluster.pods.Pods(p.Namespace()).List(labels.Everything()) // the lister of a cache has no errors
	var selected []*v1.Pod
	for _, pod := range all {
		if p.Selects(pod.Labels) {
			selected = append(selected, pod)
		}
	}
	for len(selected) > 0 {
		n := min(fillStep, len(selected))
		s.mu.Lock()
		if e.object.Spec != p {
			s.mu.Unlock()
			return // another spec, which is filled by itself
		}
		for _, listed := range selected[:n] {
			// The events of the pods come as well: only what the lister has now is no older than the last of them.
			if pod, err := s.cluster.pods.Pods(listed.Namespace).Get(listed.Name); err == nil {
				e.take(pod, s.comparisonOperators)
			}
		}
		s.mu.Unlock()
		selected = selected[n:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.object.Spec == p {
		e.filled, e.stale = true, true
		s.scheduleLocked(task{kind: lookAtNodes}, 0)
	}
}

// take brings the policy's members in line with a pod. It returns whether that is news.
func (e *entry) take(pod *v1.Pod, comparisonOperators bool) bool {
	p := e.object.Spec
	var changed bool
	if live(pod) && p.Selects(pod.Labels) {
		changed = e.members.take(p, pod, comparisonOperators)
	} else {
		changed = e.members.lose(pod.UID)
	}
	e.stale = e.stale || changed
	return changed
}

// podSeen takes a pod as the API server shows it.
func (s *Policies) podSeen(pod *v1.Pod, _ bool) { s.podChanged(nil, pod) }

// podGone takes a pod that was deleted.
func (s *Policies) podGone(pod *v1.Pod) { s.podChanged(pod, nil) }

// podChanged takes the change of a pod; was and is are nil for one that comes or goes.
func (s *Policies) podChanged(was, is *v1.Pod) {
	pod := is
	if pod == nil {
		pod = was
	}
	if s.in(pod.Namespace) == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waiting[pod.UID]; w != nil && (is == nil || is.Spec.NodeName != "" || is.DeletionTimestamp != nil) {
		s.forgetLocked(w)
	}
	for a := range s.each(pod) {
		s.memberChangedLocked(a, was, is)
	}
	if was != nil && is != nil && !maps.Equal(was.Labels, is.Labels) {
		for a := range s.each(was) {
			if !a.Selects(is.Labels) {
				s.memberChangedLocked(a, was, is)
			}
		}
	}
}

// memberChangedLocked takes the change of a pod that a policy selects or selected.
func (s *Policies) memberChangedLocked(a *Applied, was, is *v1.Pod) {
	e := a.entry
	if e.object.Spec != a.Policy {
		return // the change of its spec comes first
	}
	before := e.members.matching()
	if is != nil {
		e.take(is, s.comparisonOperators)
	} else if e.members.lose(was.UID) {
		e.stale = true
	}
	if e.members.newest().key != e.openTo {
		s.scheduleLocked(task{kind: lookAtNodes}, gatherInterval)
	}
	if was != nil && is != nil && live(was) && !live(is) {
		// The framework has no event for a pod that starts to terminate.
		s.releaseLocked(e, func(r *refusal) bool { return r.helpedByEndOf(was, s.zoneOf(a.TopologyKey(), was)) })
	}
	if after := e.members.matching(); e.filled && a.Matching() && !a.SameCaps(before, after) {
		s.releaseLocked(e, func(r *refusal) bool { return r.helpedByReplicas(before, after) })
	}
}
