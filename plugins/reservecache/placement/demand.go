package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"zonewise.dev/plugins/reservecache/ledger"
)

// LossPolicy says what becomes of the slots of a zone that has no node any longer that may take them.
type LossPolicy int

// The policies.
const (
	// Shift means that they are held in the demand's other zones until the zone is back.
	Shift LossPolicy = iota
	// Keep means that they are held nowhere until the zone is back.
	Keep
)

// Zone is a number of slots in a zone.
type Zone struct {
	Name  string
	Slots int
}

// Demand is the slots that a reservation is to have.
type Demand struct {
	// Claim identifies the reservation. Wanted and Filling are set by the Keeper.
	Claim ledger.Claim
	// Slot is the size of one slot.
	Slot ledger.Resources
	// Zones says how many slots each zone is to have. When it is empty, Slots are spread evenly over all
	// zones that have nodes which the fit selects.
	Zones      []Zone
	Slots      int
	Fit        *Fit
	OnZoneLoss LossPolicy
	// Prefer says on which nodes how many slots were before a restart. They go there again as far as there
	// is room.
	Prefer map[string]int
}

// ErrBadDemand means that a demand makes no sense, whatever the cluster looks like.
var ErrBadDemand = errors.New("invalid demand")

func (d *Demand) validate() error {
	switch {
	case d.Claim.ID.UID == "" || d.Claim.ID.Kind != ledger.Reservation:
		return fmt.Errorf("%w: %s is not a reservation's claim", ErrBadDemand, d.Claim.Name)
	case d.Fit == nil:
		return fmt.Errorf("%w: %s has no fit", ErrBadDemand, d.Claim.Name)
	case len(d.Zones) > 0 && d.Slots != 0:
		return fmt.Errorf("%w: %s names zones and a number of slots for all", ErrBadDemand, d.Claim.Name)
	case d.Slots < 0 || d.Slots > math.MaxInt32:
		return fmt.Errorf("%w: %s wants %d slots", ErrBadDemand, d.Claim.Name, d.Slots)
	}
	seen := map[string]bool{}
	for _, z := range d.Zones {
		if z.Slots < 0 || z.Slots > math.MaxInt32 || seen[z.Name] {
			return fmt.Errorf("%w: %s wants %d slots in zone %q, or names it twice", ErrBadDemand, d.Claim.Name, z.Slots, z.Name)
		}
		seen[z.Name] = true
	}
	return nil
}

// wanted is the number of slots in all zones.
func (d *Demand) wanted() int {
	if len(d.Zones) == 0 {
		return d.Slots
	}
	n := 0
	for _, z := range d.Zones {
		n += z.Slots
	}
	return n
}

// quota is how many slots a zone is to have for now.
type quota struct {
	zone  string
	slots int
	// own is how many it is to have when no zone is lost.
	own  int
	lost bool
}

// quotas shares the slots out over the zones. known are the zones over which slots without zones were
// spread before: a zone that lost its last node is one of them still.
func (d *Demand) quotas(nodes *fitted, known map[string]struct{}) []quota {
	var all []quota
	if len(d.Zones) > 0 {
		for _, z := range d.Zones {
			all = append(all, quota{zone: z.Name, slots: z.Slots, own: z.Slots})
		}
	} else {
		for zone, t := range nodes.tally {
			if t.selected > 0 {
				known[zone] = struct{}{}
			}
		}
		for zone := range known {
			all = append(all, quota{zone: zone})
		}
	}
	slices.SortFunc(all, func(a, b quota) int { return strings.Compare(a.zone, b.zone) })
	if len(d.Zones) == 0 {
		spread(d.Slots, all, func(q *quota) { q.slots++; q.own++ })
	}
	shifting := 0
	for i := range all {
		q := &all[i]
		t := nodes.tally[q.zone]
		q.lost = t == nil || t.usable == 0
		if q.lost && d.OnZoneLoss == Shift {
			shifting += q.slots
		}
	}
	var left []quota
	for _, q := range all {
		if !q.lost {
			left = append(left, q)
		}
	}
	if shifting == 0 || len(left) == 0 {
		return all
	}
	extra := map[string]int{}
	spread(shifting, left, func(q *quota) { extra[q.zone]++ })
	for i := range all {
		q := &all[i]
		if q.lost {
			q.slots = 0
		}
		q.slots += extra[q.zone]
	}
	return all
}

// spread gives n to the zones in turn.
func spread(n int, zones []quota, give func(*quota)) {
	for i := 0; i < n && len(zones) > 0; i++ {
		give(&zones[i%len(zones)])
	}
}
