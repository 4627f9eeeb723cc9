package serve

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
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

// report makes the leader update the outdated statuses, and schedules the next look.
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
	for uid, namespace := range stale {
		s.endRecoveries(uid)
		s.writer.Later(namespace, uid, 0)
	}
	s.schedule(task{kind: reportAll}, reportInterval)
}

// endRecoveries ends the recovery of zones that have caught up.
func (s *Policies) endRecoveries(uid types.UID) {
	s.mu.Lock()
	e := s.entries[uid]
	recovering := e != nil && e.object.Valid() && e.zones.Recovering()
	s.mu.Unlock()
	if !recovering {
		return
	}
	_, o := s.observe(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Tally != nil && s.entries[uid] == e && e.object.Valid() && e.zones.CaughtUp(s.clock.Now(), o.Tally.Zones()) {
		s.factsChangedLocked(e)
	}
}

// observe returns a policy and the data for its status; nil if it is gone or invalid. The pods are copied with the lock held
// and read without it.
func (s *Policies) observe(uid types.UID) (*policy.Policy, policy.Observation) {
	s.mu.Lock()
	e := s.entries[uid]
	if e == nil || !e.object.Valid() {
		s.mu.Unlock()
		return nil, policy.Observation{}
	}
	p := e.object.Spec
	facts := slices.AppendSeq(make([]fact, 0, len(e.facts)), maps.Values(e.facts))
	o := policy.Observation{Tally: p.NewTally(), Waiting: int64(len(e.refused))}
	s.mu.Unlock()

	owners := map[reference]types.UID{} // of workloads, empty for one that is not known
	live := map[types.UID]int64{}
	zones := map[string]string{}
	for i := range facts {
		f := &facts[i]
		uid, known := owners[f.owner]
		if !known {
			w := s.cluster.workload(p.Namespace(), f.owner)
			uid = w.UID
			owners[f.owner] = uid
			if _, known := live[uid]; !known && uid != "" {
				o.Workloads = append(o.Workloads, policy.OwnedPods{Workload: w})
			}
		}
		live[uid]++
		zone, known := zones[f.node]
		if !known {
			zone = s.zoneOf(p.TopologyKey(), f.node)
			zones[f.node] = zone
		}
		o.Tally.Add(uid, f.revision, f.gang, zone)
	}
	for i := range o.Workloads {
		o.Workloads[i].Live = live[o.Workloads[i].UID]
	}
	o.Unowned = live[""]
	return p, o
}

// desiredStatus returns a policy as last seen, and a copy with the status that it should have; false if it is gone.
func (s *Policies) desiredStatus(uid types.UID) (was, is *v1alpha1.ZoneSpreadPolicy, ok bool) {
	p, o := s.observe(uid)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || !s.served || e.object.Latest.DeletionTimestamp != nil {
		return nil, nil, false
	}
	was = e.object.Latest
	is = was.DeepCopy()
	now := s.clock.Now()
	switch {
	case !e.object.Valid():
		is.Status = policy.Rejected(was, e.object.Errs, now)
	case e.object.Spec != p || !e.observed || !e.filled:
		return nil, nil, false // not all is known yet; it is looked at again later
	default:
		is.Status = p.Status(e.zones, o, was.Status, now)
	}
	return was, is, true
}
