package placement

import (
	"cmp"
	"maps"
	"slices"
)

// quota is how many slots a zone should have for now.
type quota struct {
	zone  string
	slots int
	// whole is how many it should have when it is not lost.
	whole int
	// lost means that the zone has no node that may take slots.
	lost bool
}

// apportion distributes the slots over the zones. nodes counts those of each zone.
func (c *claimState) apportion(nodes map[string]*zoneCount) {
	all := c.quotas[:0]
	for _, z := range c.Zones {
		all = append(all, quota{zone: z.Name, slots: z.Slots})
	}
	if len(c.Zones) == 0 {
		for zone, count := range nodes {
			if count.selected > 0 {
				c.known[zone] = struct{}{}
			}
		}
		for zone := range c.known {
			all = append(all, quota{zone: zone})
		}
	}
	slices.SortFunc(all, func(a, b quota) int { return cmp.Compare(a.zone, b.zone) })
	if len(c.Zones) == 0 {
		spread(c.Slots, all)
	}
	for i := range all {
		count := nodes[all[i].zone]
		all[i].lost, all[i].whole = count == nil || count.usable == 0, all[i].slots
	}
	c.quotas = all
	if c.OnZoneLoss == Shift {
		c.shiftLost()
	}
}

// shiftLost distributes the slots of lost zones over the others, if there are others. Pods that keep running in slots
// of a lost zone keep these.
func (c *claimState) shiftLost() {
	var left []quota
	for _, q := range c.quotas {
		if !q.lost {
			left = append(left, quota{zone: q.zone})
		}
	}
	if len(left) == 0 {
		return
	}
	shifting := 0
	for i := range c.quotas {
		if q := &c.quotas[i]; q.lost {
			stays := min(q.slots, c.counts[q.zone].used)
			shifting += q.slots - stays
			q.slots = stays
		}
	}
	spread(shifting, left)
	for _, extra := range left {
		c.quota(extra.zone).slots += extra.slots
	}
}

// spread distributes n over the zones in turn.
func spread(n int, zones []quota) {
	for i := 0; i < n && len(zones) > 0; i++ {
		zones[i%len(zones)].slots++
	}
}

// quota returns the zone's, or nil.
func (c *claimState) quota(zone string) *quota {
	for i := range c.quotas {
		if c.quotas[i].zone == zone {
			return &c.quotas[i]
		}
	}
	return nil
}

// beyondQuota is how many more slots a zone has than it should have; negative if it has fewer. A zone without a quota
// should have none.
func (c *claimState) beyondQuota(zone string) int {
	if q := c.quota(zone); q != nil {
		return c.slotsIn(zone) - q.slots
	}
	return c.slotsIn(zone)
}

// wantedInAnyZone is how many slots are wanted in any zone, once no zone that has room lacks part of its quota. For a
// claim without zones that is all that is missing. For one with zones these slots replace those that pods took: during
// a rolling update, a pod may leave another zone than the one that the next pod comes to.
func (c *claimState) wantedInAnyZone() int {
	n := c.total - c.slotsInAllZones()
	if len(c.Zones) > 0 {
		n = min(n, c.taken)
	}
	// Slots that a lost zone lacks are not wanted elsewhere here.
	for i := range c.quotas {
		if q := &c.quotas[i]; q.lost {
			n -= max(0, q.slots-c.slotsIn(q.zone))
		}
	}
	return n
}

// mayAddSlot reports whether one more slot is wanted in a zone that lacks one: slots are missing, or surplus unused
// ones in other zones can be given up for it.
func (c *claimState) mayAddSlot() bool {
	spare := c.total - c.slotsInAllZones()
	for zone, n := range c.counts {
		spare += max(0, min(n.slots-n.used, c.beyondQuota(zone)))
	}
	return spare > 0
}

// updateSeeks computes the zones in which more is wanted. Lost ones are among them while slots are missing: a cycle may
// see the node of such a zone, and give it to its pod, before Reconcile does.
func (c *claimState) updateSeeks() {
	c.seeks, c.seeksNew = c.seeks[:0], false
	if !c.HasSlots() {
		zones := map[string]bool{}
		for _, lack := range c.lacks {
			if lack.usable {
				zones[lack.zone] = true
			} else {
				c.seeksNew = true
			}
		}
		c.seeks = slices.AppendSeq(c.seeks, maps.Keys(zones))
		slices.Sort(c.seeks)
		return
	}
	anywhere, grows, missing := c.wantedInAnyZone() > 0, c.mayAddSlot(), c.slotsInAllZones() < c.total
	c.seeksNew = missing && len(c.Zones) == 0
	for i := range c.quotas {
		q := &c.quotas[i]
		wanted := anywhere || grows && c.slotsIn(q.zone) < q.slots
		if q.lost {
			wanted = missing && (anywhere || c.seeksNew || c.slotsIn(q.zone) < q.whole)
		}
		if wanted {
			c.seeks = append(c.seeks, q.zone)
		}
	}
}
