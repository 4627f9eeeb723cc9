package placement

import (
	"errors"
	"slices"
	"sync"

	"zonewise.dev/plugins/reservecache/ledger"
)

// tries is how often a draft that no longer fits the ledger is made anew.
const tries = 3

// passes is how often a Reconcile looks at all demands at the most, while one goes on giving up what another
// may want.
const passes = 10

// Keeper keeps the slots of reservations in a ledger as their demands say. Make one with NewKeeper. It may
// be used from several goroutines: one mutex guards all of it.
type Keeper struct {
	ledger *ledger.Ledger

	mu      sync.Mutex // guards all fields below and everything that they lead to
	demands map[ledger.ClaimID]*kept
	// own is what the ledger knows, and cycle what the scheduling cycles see.
	own, cycle *board
	snapshot   *ledger.Snapshot
	// looked is the version of the ledger's claims, and verdicts that of the board's, before the last pass.
	looked, verdicts uint64
	// queue are the unfilled claims as of a version of the ledger's claims.
	queue        []ledger.ClaimID
	queueVersion uint64
}

// kept is one demand and what is known of it.
type kept struct {
	Demand
	// known are the zones over which slots without zones have been spread.
	known map[string]struct{}
	// searched means that, with the claims of that version, the cycle's board of that serial and with that
	// many verdicts, no node had room for a slot that is missing. dry are the zones that were searched to the
	// end, whether they still lack slots or not.
	searched bool
	version  uint64
	serial   uint64
	verdicts uint64
	dry      map[string]bool
	// lacks means that at the last pass a zone had less than its quota.
	lacks bool
}

// Result is what a Keeper did.
type Result struct {
	// Freed are the nodes on which less is held than before, sorted.
	Freed []string
	// Changed are the claims whose slots changed.
	Changed []ledger.ClaimID
	// Gone are the claims that the ledger no longer has, since they expired. The Keeper has forgotten them.
	Gone []ledger.ClaimID
}

func (r *Result) add(id ledger.ClaimID, freed []string) {
	if !slices.Contains(r.Changed, id) {
		r.Changed = append(r.Changed, id)
	}
	r.Freed = append(r.Freed, freed...)
}

func (r *Result) sorted() Result {
	slices.Sort(r.Freed)
	r.Freed = slices.Compact(r.Freed)
	return *r
}

// NewKeeper returns a Keeper without demands.
func NewKeeper(l *ledger.Ledger) *Keeper {
	return &Keeper{
		ledger:   l,
		demands:  map[ledger.ClaimID]*kept{},
		own:      newBoard(l),
		cycle:    newBoard(l),
		snapshot: ledger.NewSnapshot(),
	}
}

// Set makes a demand known, or replaces it by a newer version of itself, and registers its claim with the
// ledger. Nothing is placed before the next Reconcile.
//
// It fails with ErrBadDemand; what was known of the claim then stays.
func (k *Keeper) Set(d Demand) error {
	if err := d.validate(); err != nil {
		return err
	}
	d.Slot = d.Slot.Clone()
	d.Slot.Pods = 1
	d.Zones = slices.Clone(d.Zones)
	d.Claim.Wanted, d.Claim.Filling = d.wanted(), true

	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.ledger.SetClaim(d.Claim); err != nil {
		return err
	}
	k.demands[d.Claim.ID] = &kept{Demand: d, known: map[string]struct{}{}}
	k.forgetFits()
	return nil
}

// Remove forgets a demand, releases its claim and returns the nodes on which less is held than before.
func (k *Keeper) Remove(id ledger.ClaimID) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.demands, id)
	k.forgetFits()
	return k.ledger.ReleaseHolds(id)
}

// forgetFits drops what was worked out for fits that no demand has any longer.
func (k *Keeper) forgetFits() {
	used := map[string]bool{}
	for _, d := range k.demands {
		used[d.Fit.key] = true
	}
	for _, b := range []*board{k.own, k.cycle} {
		for key := range b.fits {
			if !used[key] {
				delete(b.fits, key)
			}
		}
	}
}

// Nominated is what pods that are nominated to a node, and not on it yet, will take of it, by the node's
// name. Slots are placed beside it.
type Nominated map[string]ledger.Resources

// reserve takes what is nominated out of the rooms of a board. The nodes count as changed at the next update,
// since a nomination can end without a change of its node.
func (b *board) reserve(nominated Nominated) {
	for name, r := range nominated {
		if e := b.byName[name]; e != nil {
			e.room.Add(&r, -1)
			e.generation = -1
		}
	}
}

// Reconcile brings the slots of all demands to where they are to be, by what the ledger knows, the oldest
// demand first: it drops those that are not worth anything, places what is missing, and drops what is too
// much, in one step for each demand. Slots that are where they may be stay. While an older gang collects
// capacity, a reservation gets no more than it has.
//
// It is for a goroutine of its own and takes some milliseconds on a large cluster, during which Refill waits.
func (k *Keeper) Reconcile(nominated Nominated) Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	var result Result
	if len(k.demands) == 0 {
		return result
	}
	for range passes {
		freed := len(result.Freed)
		k.passLocked(nominated, &result)
		if len(result.Freed) == freed {
			break
		}
		// What one demand gave up is another's to take.
	}
	return result.sorted()
}

// passLocked looks at each demand once, unless nothing can have changed for it.
func (k *Keeper) passLocked(nominated Nominated, result *Result) {
	version := k.ledger.ClaimsVersion()
	k.ledger.UpdateSnapshot(k.snapshot)
	k.own.update(snapshotView{k.snapshot})
	k.own.reserve(nominated)
	all := version != k.looked || k.own.verdicts != k.verdicts
	k.looked, k.verdicts = version, k.own.verdicts
	touched := k.own.touched()
	for _, id := range k.byAgeLocked() {
		d := k.demands[id]
		if _, mine := touched[id]; !all && !mine && (!d.lacks || !k.own.offers(&d.Demand)) {
			continue
		}
		for range tries {
			status, ok := k.ledger.Claim(id)
			if !ok {
				delete(k.demands, id)
				result.Gone = append(result.Gone, id)
				break
			}
			dr := newDraft(k.own, &d.Demand, d.known, &status)
			dr.trim(true)
			if k.ledger.MayCollect(id) {
				dr.fill(func(zone string) []*entry { return k.own.zones[zone] })
			}
			dr.level()
			d.lacks = slices.ContainsFunc(dr.quotas, func(q quota) bool { return dr.counted[q.zone] < q.slots })
			if k.commitLocked(dr, result, func(*entry) *ledger.Seen { return nil }) {
				break
			}
		}
	}
}

// byAgeLocked returns the demands, the oldest first.
func (k *Keeper) byAgeLocked() []ledger.ClaimID {
	ids := make([]ledger.ClaimID, 0, len(k.demands))
	for id := range k.demands {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b ledger.ClaimID) int {
		return ledger.CompareAge(&k.demands[a].Claim, &k.demands[b].Claim)
	})
	return ids
}

// commitLocked puts a draft into the ledger. It reports false when the ledger has moved on, so that the draft
// has to be made anew; the board is then as if it had not been made.
func (k *Keeper) commitLocked(dr *draft, result *Result, seen func(*entry) *ledger.Seen) bool {
	changes := dr.changes(seen)
	if len(changes) == 0 {
		return true
	}
	id := dr.demand.Claim.ID
	freed, err := k.ledger.ChangeHolds(id, changes)
	if err == nil {
		result.add(id, freed)
		return true
	}
	for _, p := range dr.places {
		if p.entry != nil {
			dr.board.load(p.entry, p.entry.object)
		}
	}
	// A claim that went in between has nothing to be made anew for.
	return !errors.Is(err, ledger.ErrNoRoom)
}
