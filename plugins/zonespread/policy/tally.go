package policy

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Tally counts the live pods that a policy selects, for its status; gangs in place of pods if the policy counts those.
// Make one with NewTally.
type Tally struct {
	policy    *Policy
	live      amount
	workloads map[types.UID]*ownedPods // under "" the pods whose workload is not known
}

// ownedPods are the pods of a workload.
type ownedPods struct {
	Workload
	live   int64
	placed map[string]zoneAmounts // by Policy.Revision
	// barred are the zones that none of the pods may use, and barredFrom, by revision, those that some placed pod may
	// not.
	barred     zoneSet
	barredFrom map[string]zoneSet
}

// zoneSet is a set of zones.
type zoneSet = map[string]bool

// amount is a number of pods that count one by one, and of gangs.
type amount struct {
	pods  int64
	gangs map[string]bool
}

// add adds a pod. One of a gang that is there already makes no difference.
func (a *amount) add(gang string) {
	if gang == "" {
		a.pods++
		return
	}
	if a.gangs == nil {
		a.gangs = map[string]bool{}
	}
	a.gangs[gang] = true
}

func (a *amount) count() int64 { return a.pods + int64(len(a.gangs)) }

// zoneAmounts are amounts by zone.
type zoneAmounts map[string]*amount

// in returns the amount in a zone, to be changed.
func (z zoneAmounts) in(zone string) *amount {
	a := z[zone]
	if a == nil {
		a = &amount{}
		z[zone] = a
	}
	return a
}

// sumUp returns how many pods or gangs there are in each zone; a gang that is in several of the parts counts once.
func sumUp(parts ...zoneAmounts) map[string]int64 {
	sum := zoneAmounts{}
	for _, part := range parts {
		for zone, a := range part {
			total := sum.in(zone)
			total.pods += a.pods
			for gang := range a.gangs {
				total.add(gang)
			}
		}
	}
	counts := make(map[string]int64, len(sum))
	for zone, a := range sum {
		counts[zone] = a.count()
	}
	return counts
}

// NewTally returns an empty tally.
func (p *Policy) NewTally() *Tally {
	return &Tally{policy: p, workloads: map[types.UID]*ownedPods{}}
}

// Add counts a live pod of a workload, by its labels. zone is empty for a pod that waits or has no zone. barred are the
// zones that have nodes, but none that the pod's node affinity and tolerations admit as far as the policy honors them.
func (t *Tally) Add(w *Workload, podLabels labels.Set, zone string, barred map[string]bool) {
	owned := t.workloads[w.UID]
	if owned == nil {
		owned = &ownedPods{
			Workload: *w, placed: map[string]zoneAmounts{}, barred: maps.Clone(barred), barredFrom: map[string]zoneSet{},
		}
		t.workloads[w.UID] = owned
	}
	owned.live++
	maps.DeleteFunc(owned.barred, func(name string, _ bool) bool { return !barred[name] })
	gang := podLabels[t.policy.GroupBy()]
	t.live.add(gang)
	if zone == "" {
		return
	}
	revision := t.policy.Revision(podLabels)
	if owned.placed[revision] == nil {
		owned.placed[revision] = zoneAmounts{}
	}
	owned.placed[revision].in(zone).add(gang)
	if len(barred) > 0 {
		if owned.barredFrom[revision] == nil {
			owned.barredFrom[revision] = zoneSet{}
		}
		maps.Copy(owned.barredFrom[revision], barred)
	}
}

// Zones returns the placed pods by zone.
func (t *Tally) Zones() map[string]int64 {
	var all []zoneAmounts
	for _, owned := range t.workloads {
		all = slices.AppendSeq(all, maps.Values(owned.placed))
	}
	return sumUp(all...)
}

// heldBy returns the placed pods of a workload by zone.
func (t *Tally) heldBy(workload types.UID) map[string]int64 {
	owned := t.workloads[workload]
	if owned == nil {
		return nil
	}
	return sumUp(slices.Collect(maps.Values(owned.placed))...)
}

// barred returns the zones that none of the pods may use.
func (t *Tally) barred() zoneSet {
	var common zoneSet
	for _, owned := range t.workloads {
		if common == nil {
			common = maps.Clone(owned.barred)
		}
		maps.DeleteFunc(common, func(name string, _ bool) bool { return !owned.barred[name] })
	}
	return common
}

// revisionPods are the placed pods of a revision.
type revisionPods struct {
	parts    []zoneAmounts // by workload
	workload types.UID     // of one of them
	barred   zoneSet       // zones that some of them may not use
}

// byRevision returns the placed pods of each revision.
func (t *Tally) byRevision() map[string]revisionPods {
	revisions := map[string]revisionPods{}
	for uid, owned := range t.workloads {
		for revision, zones := range owned.placed {
			pods := revisions[revision]
			if pods.barred == nil {
				pods.barred = zoneSet{}
			}
			maps.Copy(pods.barred, owned.barredFrom[revision])
			revisions[revision] = revisionPods{append(pods.parts, zones), uid, pods.barred}
		}
	}
	return revisions
}

// capped yields what the caps are compared with, by zone: what the pods of each revision of each workload are held
// with, see HeldFor.
func (t *Tally) capped(yield func(workload types.UID, held map[string]int64) bool) {
	all, revisions := t.Zones(), t.byRevision()
	sums := map[string]map[string]int64{} // of revisions, those that are asked for
	sumOf := func(revision string) map[string]int64 {
		if sums[revision] == nil {
			sums[revision] = sumUp(revisions[revision].parts...)
		}
		return sums[revision]
	}
	for uid, owned := range t.workloads {
		own := t.heldBy(uid)
		for revision, zones := range owned.placed {
			held := sumUp(zones)
			switch {
			case t.policy.gangs || uid == "":
				held = sumOf(revision)
			case t.policy.ByOwner():
			case revision == "":
				held = all
			default:
				for zone, n := range all {
					held[zone] += n - own[zone]
				}
			}
			if !yield(uid, held) {
				return
			}
		}
	}
}
