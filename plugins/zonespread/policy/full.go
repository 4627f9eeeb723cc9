package policy

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// RefusalGap is the longest time between two refusals of which the second continues the first. The framework tries
	// a waiting pod again within 5 minutes, and run.last may be older than the last refusal by renewInterval.
	RefusalGap = 15 * time.Minute
	// renewInterval is the resolution of run.last, so that it is not written with every attempt.
	renewInterval = 5 * time.Minute
	// maxRuns is how many runs the status of a policy has. Younger ones are left out, and begin again after a restart.
	maxRuns = 64
)

// run is what a zone's nodes do with the pods of one workload. Since is when all that are eligible began to refuse
// them, and last a later refusal; both are 0 while none is known. Recovering is when a run ended that had made the zone
// full.
type run struct{ since, last, recovering seconds }

// live reports whether another refusal continues the run.
func (r *run) live(now time.Time) bool { return r.last.set() && !r.last.passed(RefusalGap, now) }

// full reports whether the run has made the zone full: between the first refusal and the last there is fullAfter.
func (r *run) full(fullAfter time.Duration) bool {
	return r.last.set() && r.since.passed(fullAfter, r.last.time())
}

// fullNow reports whether the zone is full for the workload.
func (r *run) fullNow(fullAfter time.Duration, now time.Time) bool {
	return r.live(now) && r.full(fullAfter)
}

// recoversSince returns when the last run ended that had made the zone full, also if that is not recorded yet; 0 for
// never.
func (r *run) recoversSince(fullAfter time.Duration, now time.Time) seconds {
	if r.last.set() && !r.live(now) && r.full(fullAfter) {
		return max(r.recovering, roundUp(r.last.time().Add(RefusalGap)))
	}
	return r.recovering
}

// end ends the run: a pod of the workload fits, or it is over.
func (r *run) end(at seconds, wasFull bool) {
	r.since, r.last = 0, 0
	if wasFull {
		r.recovering = max(r.recovering, at)
	}
}

// RecordRefusal records that all nodes of a zone that are eligible for a pod of a workload refused it, for reasons
// other than spreading over the zones. It returns whether a fact has changed, and whether the zone has become full for
// the workload by it.
func (zs *Zones) RecordRefusal(now time.Time, name string, workload types.UID) (changed, full bool) {
	z := zs.zones[name]
	if z == nil || !z.opened {
		return false, false // no open node of it has been observed
	}
	changed = zs.expire(z, now)
	r := z.runs[workload]
	if r == nil {
		r = &run{}
		z.runs[workload] = r
	}
	at := roundUp(now)
	if !r.last.set() {
		r.since, r.last = at, at
		return true, false
	}
	full = !r.full(zs.policy.fullAfter) && r.since.passed(zs.policy.fullAfter, at.time())
	if full || r.last.passed(renewInterval, at.time()) {
		r.last, changed = at, true
	}
	return changed, full
}

// RecordFit records that a node of a zone passed all filters for a pod of a workload. It returns whether a fact has
// changed.
func (zs *Zones) RecordFit(now time.Time, name string, workload types.UID) (changed bool) {
	z := zs.zones[name]
	if z == nil || z.runs[workload] == nil {
		return false
	}
	changed = zs.expire(z, now)
	r := z.runs[workload]
	if r == nil || !r.last.set() {
		return changed
	}
	r.end(roundUp(now), r.full(zs.policy.fullAfter) && zs.policy.recoveryWindow > 0)
	if *r == (run{}) {
		delete(z.runs, workload)
	}
	return true
}

// HasRun reports whether some zone refuses pods of a workload; otherwise RecordFit need not be called.
func (zs *Zones) HasRun(workload types.UID) bool {
	for _, z := range zs.zones {
		if r := z.runs[workload]; r != nil && r.last.set() {
			return true
		}
	}
	return false
}

// expireRuns ends the runs that were not continued, and forgets those that make no difference any more.
func (zs *Zones) expireRuns(z *zone, now time.Time) (changed bool) {
	for workload, r := range z.runs {
		if r.last.set() && !r.live(now) {
			at := roundUp(r.last.time().Add(RefusalGap))
			r.end(at, r.full(zs.policy.fullAfter) && zs.policy.recoveryWindow > 0)
			changed = true
		}
		if r.recovering.set() && !zs.within(r.recovering, now) {
			r.recovering, changed = 0, true
		}
		if *r == (run{}) {
			delete(z.runs, workload)
		}
	}
	return changed
}

// exportRuns returns the runs of each zone, no more than maxRuns in all.
func (zs *Zones) exportRuns() map[string][]v1alpha1.FullRun {
	type exported struct {
		zone string
		v1alpha1.FullRun
	}
	var all []exported
	for name, z := range zs.zones {
		for workload, r := range z.runs {
			all = append(all, exported{name, v1alpha1.FullRun{
				Workload: workload, Since: r.since.toTime(), Last: r.last.toTime(), RecoveringSince: r.recovering.toTime(),
			}})
		}
	}
	slices.SortFunc(all, func(a, b exported) int {
		return cmp.Or(cmp.Compare(fromTime(a.Since), fromTime(b.Since)), cmp.Compare(a.zone, b.zone),
			cmp.Compare(a.Workload, b.Workload))
	})
	byZone := map[string][]v1alpha1.FullRun{}
	for _, e := range all[:min(len(all), maxRuns)] {
		byZone[e.zone] = append(byZone[e.zone], e.FullRun)
	}
	return byZone
}

func importRuns(list []v1alpha1.FullRun) map[types.UID]*run {
	runs := map[types.UID]*run{}
	for i := range list {
		r := &run{
			since: fromTime(list[i].Since), last: fromTime(list[i].Last),
			recovering: fromTime(list[i].RecoveringSince),
		}
		if r.since.set() == r.last.set() && *r != (run{}) && list[i].Workload != "" {
			runs[list[i].Workload] = r
		}
	}
	return runs
}

func fromTime(t *metav1.Time) seconds {
	if t == nil || t.IsZero() {
		return 0
	}
	return seconds(t.Unix())
}

func (s seconds) toTime() *metav1.Time {
	if !s.set() {
		return nil
	}
	t := metav1.NewTime(s.time())
	return &t
}
