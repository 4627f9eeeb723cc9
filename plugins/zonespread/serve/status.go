package serve

import (
	"context"
	"runtime"
	"time"

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
	// recountStep is how many pods are counted at a time. A scheduling cycle that has become ready meanwhile goes
	// first: left to itself the Go runtime lets a goroutine run for 10 ms before another one.
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
// look. Between events, facts expire and zones close.
func (s *Policies) report() {
	s.mu.Lock()
	now := s.clock.Now()
	s.reported = now
	var stale []types.UID
	reported := map[types.UID]string{} // with their namespaces
	for uid, e := range s.entries {
		if e.object.Valid() && e.zones.Changing() {
			reported[uid] = e.object.Latest.Namespace
			if e.zones.Expire(now) {
				s.factsChangedLocked(e)
			}
		}
		if e.stale {
			reported[uid] = e.object.Latest.Namespace
			stale = append(stale, uid)
			e.stale = false
		}
	}
	s.mu.Unlock()
	s.recount(now, stale...)
	for uid, namespace := range reported {
		s.writer.Later(namespace, uid, 0)
	}
	s.schedule(task{kind: reportAll}, reportInterval)
}

// recount counts the pods of some policies, in one walk through all pods, without the lock.
func (s *Policies) recount(now time.Time, uids ...types.UID) {
	r := &recount{policies: map[*Applied]*counting{}, serve: s}
	namespaces := map[string]bool{}
	s.mu.Lock()
	for _, uid := range uids {
		if e := s.entries[uid]; e != nil && e.applied != nil {
			r.policies[e.applied] = &counting{tally: e.applied.NewTally(), withPods: map[types.UID]bool{}}
			namespaces[e.applied.Namespace()] = true
		}
	}
	s.mu.Unlock()
	if len(r.policies) == 0 || !s.cluster.synced() {
		return
	}
	listed, _ := s.cluster.pods.List(labels.Everything()) // the lister of a cache has no errors
	for i, pod := range listed {
		if i%recountStep == 0 {
			runtime.Gosched()
		}
		if namespaces[pod.Namespace] && pods.Live(pod) {
			r.add(pod)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, c := range r.policies {
		if a.entry.applied != a {
			continue
		}
		a.entry.counted = &policy.Observation{Tally: c.tally}
		if a.entry.zones.ForgetRuns(now, func(workload types.UID) bool { return c.withPods[workload] }) {
			s.factsChangedLocked(a.entry)
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
	if s.leases.Yields(context.Background(), s.lease(), latest.Status.Scheduler) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.stale = true // the next report looks whether the other one still leads
		return nil, nil, false
	}
	desired = latest.DeepCopy()
	if zones == nil {
		desired.Status = policy.Rejected(latest, errs, now)
	} else {
		desired.Status = p.Status(zones, observation, latest.Status, now)
	}
	desired.Status.Scheduler = s.lease()
	return latest, desired, true
}
