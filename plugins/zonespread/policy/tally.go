package policy

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
)

// Tally counts the pods that a policy selects, for its status: gangs in place of pods where the policy counts those.
// Make one with NewTally.
type Tally struct {
	policy *Policy
	live   int64
	// zones has the placed pods by zone, placed those of each revision (Policy.Revision), byWorkload those of each
	// workload, and held those of each revision of a workload.
	zones      map[string]int64
	placed     map[string]map[string]int64
	byWorkload map[types.UID]map[string]int64
	held       map[heldKey]map[string]int64
	gangs      map[gangIn]bool   // what has been counted
	owners     map[string]owners // by revision
}

type heldKey struct {
	workload types.UID
	revision string
}

// gangIn is a gang in one of the places where it counts once.
type gangIn struct {
	gang, zone string
	key        heldKey
	counter    byte // live, zones, placed, byWorkload or held
}

// NewTally returns an empty tally.
func (p *Policy) NewTally() *Tally {
	return &Tally{
		policy: p, placed: map[string]map[string]int64{}, held: map[heldKey]map[string]int64{},
		byWorkload: map[types.UID]map[string]int64{}, zones: map[string]int64{}, gangs: map[gangIn]bool{},
		owners: map[string]owners{},
	}
}

// Add counts a live pod. gang is the value of Policy.GroupBy, and zone is empty for a pod that waits or has no zone.
func (t *Tally) Add(workload types.UID, revision, gang, zone string) {
	t.live += t.once(gangIn{gang: gang, counter: 'l'})
	if zone == "" {
		return
	}
	key := heldKey{workload, revision}
	if t.held[key] == nil {
		t.owners[revision] = owners{cmp.Or(t.owners[revision].first, workload), t.owners[revision].n + 1}
	}
	t.zones[zone] += t.once(gangIn{gang, zone, heldKey{}, 'z'})
	count(t.placed, revision)[zone] += t.once(gangIn{gang, zone, heldKey{revision: revision}, 'p'})
	count(t.byWorkload, workload)[zone] += t.once(gangIn{gang, zone, heldKey{workload: workload}, 'w'})
	count(t.held, key)[zone] += t.once(gangIn{gang, zone, key, 'h'})
}

// once is 1 for a pod, and for the first of a gang.
func (t *Tally) once(g gangIn) int64 {
	if t.policy.gangs && g.gang != "" {
		if t.gangs[g] {
			return 0
		}
		t.gangs[g] = true
	}
	return 1
}

// Zones returns the placed pods by zone; the map must not be changed.
func (t *Tally) Zones() map[string]int64 { return t.zones }

func count[K comparable](m map[K]map[string]int64, key K) map[string]int64 {
	zones := m[key]
	if zones == nil {
		zones = map[string]int64{}
		m[key] = zones
	}
	return zones
}

// workloadOf returns the workload of a revision, and false when several have it.
func (t *Tally) workloadOf(revision string) (types.UID, bool) {
	owners := t.owners[revision]
	return owners.first, owners.n == 1
}

// owners are the workloads that have pods of one revision.
type owners struct {
	first types.UID
	n     int
}

// capped yields what the caps are compared with, by zone: what the pods of each revision of each workload are held
// with, see HeldFor.
func (t *Tally) capped(yield func(workload types.UID, held map[string]int64) bool) {
	for key, own := range t.held {
		held := own
		switch {
		case t.policy.gangs || key.workload == "":
			held = t.placed[key.revision]
		case t.policy.ByOwner():
		case key.revision == "":
			held = t.zones
		default:
			held = make(map[string]int64, len(t.zones))
			for zone, n := range t.zones {
				held[zone] = n - t.byWorkload[key.workload][zone] + own[zone]
			}
		}
		if !yield(key.workload, held) {
			return
		}
	}
}
