package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

const (
	// RefusalGap is the longest time between two refusals of which the second continues the first, as long as the run
	// has not made the zone full. The framework tries a waiting pod again within 5 minutes, and run.last may be older
	// than the last refusal by renewInterval.
	RefusalGap = 15 * time.Minute
	// renewInterval is the resolution of run.last, so that it is not written with every attempt.
	renewInterval = 5 * time.Minute
	// maxRuns is how many runs the status of a policy has. Others are left out, and begin again after a restart.
	maxRuns = 64
)

// run is what a zone's nodes do with the pods of one workload that the policy holds back elsewhere. Since is when all
// that are eligible began to refuse them, and last a later refusal. Once the run has lasted for fullAfter the zone is
// full, until a pod of the workload is bound there: since is then 0, and last is when that was.
type run struct{ since, last seconds }

// full reports whether the run, which may be nil, has made the zone full: between the first refusal and the last there
// is fullAfter.
func (zs *Zones) full(r *run) bool {
	return r != nil && r.since.set() && r.since.passed(zs.policy.fullAfter, r.last.time())
}

// recovering reports whether the zone was full, and has had room again for less than the recovery window.
func (zs *Zones) recovering(r *run, now time.Time) bool {
	return r != nil && !r.since.set() && !r.last.passed(zs.policy.recoveryWindow, now)
}

// over reports whether a run affects no answer any more.
func (zs *Zones) over(r *run, now time.Time) bool {
	if r.since.set() {
		return !zs.full(r) && r.last.passed(RefusalGap, now)
	}
	return !zs.recovering(r, now)
}

// RecordRefusal records that all nodes of a zone that are eligible for a pod of a workload refused it, for reasons
// other than spreading over the zones, while the policy held it back from others. It returns whether a fact has
// changed, and whether the zone has become full for the workload by it. A zone that recovers holds no pod back, and
// begins no run.
func (zs *Zones) RecordRefusal(now time.Time, name string, workload types.UID) (changed, full bool) {
	z := zs.zones[name]
	if z == nil || !z.opened || zs.availability(name, z, z.runs[workload], now) == Recovering {
		return false, false
	}
	at, r := roundUp(now), z.runs[workload]
	switch {
	case r == nil || zs.over(r, now):
		z.runs[workload] = &run{since: at, last: at}
		return true, false
	case zs.full(r):
		return false, false
	case r.since.passed(zs.policy.fullAfter, at.time()), r.last.passed(renewInterval, at.time()):
		r.last = at
		return true, zs.full(r)
	}
	return false, false
}

// RecordBind records that a pod of a workload was bound in a zone, which ends the run of its refusals. It returns
// whether a fact has changed.
func (zs *Zones) RecordBind(now time.Time, name string, workload types.UID) (changed bool) {
	z := zs.zones[name]
	if z == nil || z.runs[workload] == nil || !z.runs[workload].since.set() {
		return false
	}
	if zs.full(z.runs[workload]) && zs.policy.recoveryWindow > 0 {
		*z.runs[workload] = run{last: roundUp(now)}
	} else {
		delete(z.runs, workload)
	}
	return true
}

// ForgetRuns drops the runs of workloads that have no pods, as of a time; a run that is younger stays. It returns
// whether a fact has changed.
func (zs *Zones) ForgetRuns(asOf time.Time, hasPods func(workload types.UID) bool) (changed bool) {
	for _, z := range zs.zones {
		maps.DeleteFunc(z.runs, func(workload types.UID, r *run) bool {
			gone := r.last.time().Before(asOf) && !hasPods(workload)
			changed = changed || gone
			return gone
		})
	}
	return changed
}

// exportRuns returns the runs of each zone, no more than maxRuns in all: those first that decisions rest on for
// longest, which are the runs that have not ended, the oldest first.
func (zs *Zones) exportRuns() map[string][]v1alpha1.FullRun {
	type exported struct {
		zone     string
		workload types.UID
		run
	}
	var all []exported
	for name, z := range zs.zones {
		for workload, r := range z.runs {
			all = append(all, exported{name, workload, *r})
		}
	}
	ended := func(e *exported) int {
		if e.since.set() {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b exported) int {
		return cmp.Or(cmp.Compare(ended(&a), ended(&b)), cmp.Compare(a.since, b.since), cmp.Compare(b.last, a.last),
			cmp.Compare(a.zone, b.zone), cmp.Compare(a.workload, b.workload))
	})
	byZone := map[string][]v1alpha1.FullRun{}
	for _, e := range all[:min(len(all), maxRuns)] {
		byZone[e.zone] = append(byZone[e.zone],
			v1alpha1.FullRun{Workload: e.workload, Since: e.since.toTime(), Last: e.last.toTime()})
	}
	return byZone
}

func importRuns(list []v1alpha1.FullRun) map[types.UID]*run {
	runs := map[types.UID]*run{}
	for i := range list {
		if r := (run{fromTime(list[i].Since), fromTime(list[i].Last)}); r.last.set() && list[i].Workload != "" {
			runs[list[i].Workload] = &r
		}
	}
	return runs
}
