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
}

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

// Add counts a live pod of a workload, by its labels. zone is empty for a pod that waits or has no zone.
func (t *Tally) Add(w *Workload, podLabels labels.Set, zone string) {
	owned := t.workloads[w.UID]
	if owned == nil {
		owned = &ownedPods{Workload: *w, placed: map[string]zoneAmounts{}}
		t.workloads[w.UID] = owned
	}
	owned.live++
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
}

// placement is the placed pods of a Tally, by zone.
type placement struct {
	zones      map[string]int64
	byWorkload map[types.UID]map[string]int64
	byRevision map[string]revisionPods
	tally      *Tally
}

// revisionPods are the placed pods of a revision.
type revisionPods struct {
	zones    map[string]int64
	workload types.UID // of all of them if it is alone
	alone    bool
}

// Zones returns the placed pods by zone.
func (t *Tally) Zones() map[string]int64 {
	var all []zoneAmounts
	for _, owned := range t.workloads {
		all = slices.AppendSeq(all, maps.Values(owned.placed))
	}
	return sumUp(all...)
}

// placement sums up the placed pods.
func (t *Tally) placement() *placement {
	revisions := map[string][]zoneAmounts{}
	p := &placement{
		zones: t.Zones(), byWorkload: make(map[types.UID]map[string]int64, len(t.workloads)),
		byRevision: map[string]revisionPods{}, tally: t,
	}
	for uid, owned := range t.workloads {
		var parts []zoneAmounts
		for revision, zones := range owned.placed {
			parts = append(parts, zones)
			revisions[revision] = append(revisions[revision], zones)
			p.byRevision[revision] = revisionPods{workload: uid, alone: len(revisions[revision]) == 1}
		}
		p.byWorkload[uid] = sumUp(parts...)
	}
	for revision, parts := range revisions {
		r := p.byRevision[revision]
		r.zones = sumUp(parts...)
		p.byRevision[revision] = r
	}
	return p
}

// capped yields what the caps are compared with, by zone: what the pods of each revision of each workload are held
// with, see HeldFor.
func (p *placement) capped(yield func(workload types.UID, held map[string]int64) bool) {
	policy := p.tally.policy
	for uid, owned := range p.tally.workloads {
		for revision, zones := range owned.placed {
			var held map[string]int64
			switch {
			case policy.gangs || uid == "":
				held = p.byRevision[revision].zones
			case policy.ByOwner():
				held = sumUp(zones)
			case revision == "":
				held = p.zones
			default:
				held = sumUp(zones)
				for zone, n := range p.zones {
					held[zone] += n - p.byWorkload[uid][zone]
				}
			}
			if !yield(uid, held) {
				return
			}
		}
	}
}
