package policy

import "k8s.io/apimachinery/pkg/types"

// Tally counts the pods that a policy selects, for its status: gangs in place of pods where the policy counts those. Make
// one with NewTally.
type Tally struct {
	policy *Policy
	// placed has the placed pods by revision (Policy.Revision) and zone, and held those of a revision of a workload.
	placed map[string]map[string]int64
	held   map[heldKey]map[string]int64
	// byWorkload sums up held.
	byWorkload map[types.UID]map[string]int64
	zones      map[string]int64
	live       int64
	gangs      map[gangAt]bool // what has been counted
}

type heldKey struct {
	workload types.UID
	revision string
}

// gangAt is a gang in one of the places where it counts once.
type gangAt struct {
	gang string
	zone string // empty for all places together
	by   heldKey
	kind byte
}

// NewTally returns an empty tally.
func (p *Policy) NewTally() *Tally {
	return &Tally{
		policy: p, placed: map[string]map[string]int64{}, held: map[heldKey]map[string]int64{},
		byWorkload: map[types.UID]map[string]int64{}, zones: map[string]int64{}, gangs: map[gangAt]bool{},
	}
}

// Add counts a live pod. gang is the value of Policy.GroupBy, and zone is empty for a pod that waits or has no zone.
func (t *Tally) Add(workload types.UID, revision, gang, zone string) {
	by := heldKey{workload, revision}
	t.live += t.once(gangAt{gang: gang, kind: 'l'})
	if zone == "" {
		return
	}
	t.zones[zone] += t.once(gangAt{gang: gang, zone: zone, kind: 'z'})
	count(t.placed, revision)[zone] += t.once(gangAt{gang: gang, zone: zone, by: heldKey{revision: revision}, kind: 'r'})
	n := t.once(gangAt{gang: gang, zone: zone, by: by, kind: 'h'})
	count(t.held, by)[zone] += n
	count(t.byWorkload, workload)[zone] += n
}

// once is 1 for a pod, and for the first of a gang.
func (t *Tally) once(at gangAt) int64 {
	if t.policy.gangs && at.gang != "" {
		if t.gangs[at] {
			return 0
		}
		t.gangs[at] = true
	}
	return 1
}

// Live is how many live pods were counted.
func (t *Tally) Live() int64 { return t.live }

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
	found, n := types.UID(""), 0
	for key := range t.held {
		if key.revision == revision {
			found = key.workload
			n++
		}
	}
	return found, n == 1
}

// capped yields what the caps are compared with, by zone: what the pods of each revision of each workload are held with,
// see HeldFor.
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
