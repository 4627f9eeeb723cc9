package serve

import (
	"maps"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/zonespread/policy"
)

// reportLater marks the statuses of a namespace as out of date.
func (s *Policies) reportLater(name string) {
	applied := s.active.inNamespace(name)
	if len(applied) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range applied {
		a.entry.stale = true
	}
}

const (
	// reportInterval is how often the leader brings statuses up to date.
	reportInterval = 10 * time.Second
	// newReportInterval is the least time between two reports, however often specs change.
	newReportInterval = time.Second
	// recountStep is how many pods are counted at a time. A scheduling cycle that has become ready meanwhile goes first:
	// left to itself the Go runtime lets a goroutine run for 10 ms before another one.
	recountStep = 64
)

// reportSoonLocked has the statuses that are not known yet written soon.
func (s *Policies) reportSoonLocked() {
	now := s.clock.Now()
	at := s.reported.Add(newReportInterval)
	if soon := now.Add(gatherInterval); at.Before(soon) {
		at = soon
	}
	s.agenda.AddAt(task{kind: reportAll}, at)
}

// report has the leader count the pods of outdated policies again and write their statuses, and schedules the next
// look.
func (s *Policies) report() {
	s.mu.Lock()
	s.reported = s.clock.Now()
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
	e := s.entries[uid]
	if e == nil || e.counted == nil || !e.object.Valid() || !e.zones.Recovering() {
		s.mu.Unlock()
		return
	}
	counted := e.counted
	s.mu.Unlock()
	placed := counted.Tally.Zones()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.counted == counted && e.zones.CaughtUp(s.clock.Now(), placed) {
		s.factsChangedLocked(e)
	}
}

// recount counts the pods of some policies, in one walk through all pods, without the lock.
func (s *Policies) recount(uids ...types.UID) {
	counted := map[*Applied]*policy.Observation{}
	namespaces := map[string]bool{}
	s.mu.Lock()
	for _, uid := range uids {
		if e := s.entries[uid]; e != nil && e.applied != nil {
			counted[e.applied] = &policy.Observation{Tally: e.applied.NewTally(), Beside: map[*policy.Policy]bool{}}
			namespaces[e.applied.Namespace()] = true
		}
	}
	s.mu.Unlock()
	if len(counted) == 0 {
		return
	}
	listed, _ := s.cluster.pods.List(labels.Everything()) // the lister of a cache has no errors
	workloads := map[types.UID]*policy.Workload{}
	for i, pod := range listed {
		if i%recountStep == 0 {
			runtime.Gosched()
		}
		if !namespaces[pod.Namespace] || !pods.Live(pod) {
			continue
		}
		owner := ownerOf(pod)
		workload, known := workloads[owner.uid]
		if !known {
			w, _ := s.cluster.workload(pod.Namespace, owner)
			workload = &w
			workloads[owner.uid] = workload
		}
		s.addToObservations(counted, pod, workload)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, observation := range counted {
		if a.entry.applied == a {
			a.entry.counted = observation
		}
	}
}

// addToObservations counts a pod for the policies that apply to it.
func (s *Policies) addToObservations(counted map[*Applied]*policy.Observation, pod *v1.Pod, w *policy.Workload) {
	applied := s.active.selecting(pod)
	for _, a := range applied {
		observation := counted[a]
		if observation == nil {
			continue
		}
		observation.Tally.Add(w, pod.Labels, s.zoneOf(a.TopologyKey(), pod.Spec.NodeName))
		for _, other := range applied {
			if other != a && other.Hard() && other.TopologyKey() == a.TopologyKey() {
				observation.Beside[other.Policy] = true
			}
		}
	}
}

// desiredStatus returns a policy as last seen, and a copy with the status that it should have; false if it is gone. The
// status is computed without the lock, from copies.
func (s *Policies) desiredStatus(uid types.UID) (latest, desired *v1alpha1.ZoneSpreadPolicy, ok bool) {
	s.mu.Lock()
	e := s.entries[uid]
	if e == nil || !s.served || e.object.Latest.DeletionTimestamp != nil || e.object.Valid() &&
		(e.counted == nil || !e.observed) {
		s.mu.Unlock()
		return nil, nil, false // not all is known yet; the next report looks at it again
	}
	latest = e.object.Latest
	p, errs, now := e.object.Spec, e.object.Errs, s.clock.Now()
	var zones *policy.Zones
	var observation policy.Observation
	if e.object.Valid() {
		zones, observation = e.zones.Clone(), *e.counted
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
