package serve

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

// reportLater marks the statuses of a namespace as out of date.
func (s *Policies) reportLater(name string) {
	applied := s.active.in(name)
	if len(applied) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range applied {
		a.entry.stale = true
	}
}

// report has the leader count the pods of outdated policies again and write their statuses, and schedules the next
// look.
func (s *Policies) report() {
	s.mu.Lock()
	stale := map[types.UID]string{} // their namespaces
	for uid, e := range s.entries {
		if e.stale {
			stale[uid] = e.object.Latest.Namespace
			e.stale = false
		}
	}
	s.mu.Unlock()
	s.recount(slices.Collect(maps.Keys(stale))...)
	for uid, namespace := range stale {
		s.endRecovery(uid)
		s.writer.Later(namespace, uid, 0)
	}
	s.schedule(task{kind: reportAll}, reportInterval)
}

// endRecovery ends the recovery of zones that have caught up.
func (s *Policies) endRecovery(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.counted == nil || !e.object.Valid() || !e.zones.Recovering() {
		return
	}
	if e.zones.CaughtUp(s.clock.Now(), e.counted.observation.Tally.Zones()) {
		s.factsChangedLocked(e)
	}
}

// recount is what a count of a policy's pods has found.
type recount struct {
	policy      *policy.Policy
	observation policy.Observation
	workloads   map[types.UID]int // the places of observation.Workloads
	beside      map[*policy.Policy]bool
}

// recount counts the pods of some policies, in one walk through all pods, without the lock.
func (s *Policies) recount(uids ...types.UID) {
	counted := map[*entry]*recount{}
	namespaces := map[string]bool{}
	s.mu.Lock()
	for _, uid := range uids {
		if e := s.entries[uid]; e != nil && e.applied != nil {
			p := e.object.Spec
			counted[e] = &recount{
				policy: p, observation: policy.Observation{Tally: p.NewTally()}, workloads: map[types.UID]int{}, beside: map[*policy.Policy]bool{},
			}
			namespaces[p.Namespace()] = true
		}
	}
	s.mu.Unlock()
	if len(counted) == 0 {
		return
	}
	all, _ := s.cluster.pods.List(labels.Everything()) // the lister of a cache has no errors
	workloads := map[reference]policy.Workload{}
	for _, pod := range all {
		if !namespaces[pod.Namespace] || !pods.Live(pod) {
			continue
		}
		applied := s.active.of(pod)
		for _, a := range applied {
			r := counted[a.entry]
			if r == nil || r.policy != a.Policy {
				continue
			}
			owner := ownerOf(pod)
			w, known := workloads[owner]
			if !known {
				w, _ = s.cluster.workload(pod.Namespace, owner)
				workloads[owner] = w
			}
			r.add(pod, &w, s.zoneOf(a.TopologyKey(), pod.Spec.NodeName))
			for _, other := range applied {
				if other != a && other.Hard() && other.TopologyKey() == a.TopologyKey() {
					r.beside[other.Policy] = true
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for e, r := range counted {
		if e.object.Spec == r.policy {
			r.observation.Beside = slices.SortedFunc(maps.Keys(r.beside),
				func(a, b *policy.Policy) int { return cmp.Compare(a.Key(), b.Key()) })
			e.counted = r
		}
	}
}

// add counts a pod. zone is empty while it has none.
func (r *recount) add(pod *v1.Pod, w *policy.Workload, zone string) {
	o := &r.observation
	o.Tally.Add(w.UID, r.policy.Revision(pod.Labels), pod.Labels[r.policy.GroupBy()], zone)
	if w.UID == "" {
		o.Unowned++
		return
	}
	place, known := r.workloads[w.UID]
	if !known {
		place = len(o.Workloads)
		r.workloads[w.UID] = place
		o.Workloads = append(o.Workloads, policy.OwnedPods{Workload: *w})
	}
	o.Workloads[place].Live++
}

// desiredStatus returns a policy as last seen, and a copy with the status that it should have; false if it is gone. The
// status is computed without the lock, from copies.
func (s *Policies) desiredStatus(uid types.UID) (latest, desired *v1alpha1.ZoneSpreadPolicy, ok bool) {
	s.mu.Lock()
	if e := s.entries[uid]; e != nil && e.object.Valid() && e.counted == nil {
		s.mu.Unlock()
		s.recount(uid) // for the first time
		s.mu.Lock()
	}
	e := s.entries[uid]
	if e == nil || !s.served || e.object.Latest.DeletionTimestamp != nil || e.object.Valid() &&
		(e.counted == nil || !e.observed) {
		s.mu.Unlock()
		return nil, nil, false // not all is known yet; it is looked at again later
	}
	latest = e.object.Latest
	p, errs, now := e.object.Spec, e.object.Errs, s.clock.Now()
	var zones *policy.Zones
	var observation policy.Observation
	if e.object.Valid() {
		zones, observation = e.zones.Clone(), e.counted.observation
		observation.Waiting = int64(len(e.refused))
	}
	s.mu.Unlock()
	desired = latest.DeepCopy()
	if zones == nil {
		desired.Status = policy.Rejected(latest, errs, now)
	} else {
		desired.Status = p.Status(zones, observation, latest.Status, now)
	}
	return latest, desired, true
}
