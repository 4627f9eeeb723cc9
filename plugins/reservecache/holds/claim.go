package holds

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Use says when an owner uses what its claim holds.
type Use int

// The uses.
const (
	// UseLast is Headroom's: it means that an owner uses what is held only if it does not fit beside all that is held.
	UseLast Use = iota
	// UseFirst is a Guarantee's: it means that an owner goes where a slot of its claim is unused, if there is one.
	UseFirst
	// UseOnly is that of ownerPolicy Required: it means that an owner runs in what is held or not at all.
	UseOnly
)

// Claim says who holds capacity, and on what terms. It does not change: a new version takes its place.
type Claim struct {
	// UID is that of the object behind the claim.
	UID types.UID
	// Name is for messages: "ZoneReservation shop-failover".
	Name string
	// Priority is that of what is held: a pod of a higher priority may take its room.
	Priority int32
	Use      Use
	// Since is the claim's age.
	Since time.Time
	// Slot is the size of one slot: what is held on a node is a number of slots, each with its place for one pod. It is
	// empty for a claim of amounts, which names its nodes and what to hold on each. Its Use is UseLast.
	Slot ledger.Resources
}

// HasSlots reports whether what is held on a node is a number of slots.
func (c *Claim) HasSlots() bool { return !c.Slot.IsZero() }

// Inclusive reports whether what is held on a node includes what the claim's pods there ask for. Otherwise all of it is
// for pods that are yet to come: one that needs a part of it lowers it, see [Holds.Take].
func (c *Claim) Inclusive() bool { return c.Use != UseLast || !c.HasSlots() }

// SlotsAmount returns n slots as an amount.
func (c *Claim) SlotsAmount(n int) ledger.Resources {
	amount := c.Slot.Times(int64(n))
	amount.Pods = int64(n)
	return amount
}

// Unused returns what is unused of an amount on a node where the claim's pods ask for owned. It may share its map with
// the amount.
func (c *Claim) Unused(amount, owned *ledger.Resources) ledger.Resources {
	if !c.Inclusive() || owned.IsZero() {
		return *amount
	}
	return amount.Beyond(owned)
}

// UnusedSlots returns how many of a number of slots on a node no pod of the claim uses, if its pods there ask for
// owned. What they leave of the slots that they use is unused, too, but is no slot.
func (c *Claim) UnusedSlots(slots int, owned *ledger.Resources) int {
	if !c.Inclusive() || slots == 0 {
		return slots
	}
	amount := c.SlotsAmount(slots)
	unused := c.Unused(&amount, owned)
	return int(unused.Slots(&c.Slot))
}

// CompareAge orders claims by age, and those of one age by name.
func CompareAge(a, b *Claim) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// compareRank orders claims by who keeps its slots where there is not room for all: the higher priority, then the
// older.
func compareRank(a, b *Claim) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), CompareAge(a, b))
}

// SlotsCovering returns how many slots of a size a request takes when it lies in slots only. It is at least 1; a
// resource that the slot does not name does not count.
func SlotsCovering(request, slot *ledger.Resources) int {
	n := int64(1)
	for name := range slot.Named() {
		n = max(n, ceil(request.Amount(name), slot.Amount(name)))
	}
	return int(n)
}

func ceil(a, b int64) int64 { return (max(a, 0) + b - 1) / b }
