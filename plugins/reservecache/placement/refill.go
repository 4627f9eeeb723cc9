package placement

import (
	"slices"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Refill lets the unfilled reservations collect capacity that has become free, by what a scheduling cycle
// sees, the oldest first and before the cycle's pod can take it. Call it at the start of each cycle with the
// cycle's nodes; not in a pod-group cycle, whose snapshot changes without its generations.
//
// In Headroom mode a slot that is collected takes the place of one that is used: its consumer becomes an
// ordinary pod, so that the claim has unused slots again.
//
// While no reservation is unfilled it costs one look at the ledger; else a look at the generation of each
// node and at the nodes that changed since the last cycle. Nodes that did not change are looked at again only
// when the last search of them did not end for lack of room.
func (k *Keeper) Refill(view View, nominated Nominated) Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	var result Result
	if len(k.demands) == 0 {
		return result
	}
	for range passes {
		freed := len(result.Freed)
		if k.collectLocked(view, nominated, &result); len(result.Freed) == freed {
			break
		}
	}
	return result.sorted()
}

// collectLocked lets each unfilled reservation collect once.
func (k *Keeper) collectLocked(view View, nominated Nominated, result *Result) {
	if v := k.ledger.ClaimsVersion(); v != k.queueVersion {
		k.queue, k.queueVersion = k.ledger.Queue(), v
	}
	if !slices.ContainsFunc(k.queue, func(id ledger.ClaimID) bool { return k.demands[id] != nil }) {
		return
	}
	b := k.cycle
	b.update(view)
	b.reserve(nominated)
	blocked := false
	for _, id := range k.queue {
		d := k.demands[id]
		switch {
		case d == nil:
			blocked = blocked || id.Kind == ledger.Gang
		case blocked:
			d.searched, d.dry = false, nil
		default:
			k.refillLocked(b, d, result)
		}
	}
}

// refillLocked lets one reservation collect.
func (k *Keeper) refillLocked(b *board, d *kept, result *Result) {
	b.under(d.Fit)
	if d.serial+1 != b.serial || d.verdicts != b.verdicts {
		d.searched, d.dry = false, nil
	}
	d.serial, d.verdicts = b.serial, b.verdicts
	if d.searched && d.version == k.queueVersion && !b.offers(&d.Demand) {
		return
	}
	d.version = k.queueVersion
	for range tries {
		status, ok := k.ledger.Claim(d.Claim.ID)
		if !ok {
			return
		}
		dr := newDraft(b, &d.Demand, d.known, &status)
		dr.trim(false)
		dr.fill(func(zone string) []*entry {
			if d.dry[zone] {
				return b.changedIn(zone)
			}
			return b.zones[zone]
		})
		dr.level()
		if k.commitLocked(dr, result, b.seen) {
			// What was not searched now may have got room since.
			d.dry = map[string]bool{}
			for zone, pk := range dr.pickers {
				d.dry[zone] = pk.at >= len(pk.candidates)
			}
			d.searched = dr.sum < d.wanted()
			return
		}
		d.dry = nil
	}
	d.searched = false
}

// changedIn returns the nodes of a zone that changed.
func (b *board) changedIn(zone string) []*entry {
	var changed []*entry
	for _, e := range b.changed {
		if e.zone == zone {
			changed = append(changed, e)
		}
	}
	return changed
}
