package holds

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Use says when an owner takes a slot of its claim, and whether a used slot is replaced.
type Use int

// The uses of slots.
const (
	// UseLast means that an owner takes a slot only if it does not fit beside all that is held. A used slot is replaced by
	// an unused one.
	UseLast Use = iota
	// UseFirst means that an owner takes a slot if there is one. A used slot counts as held.
	UseFirst
	// UseOnly means that an owner runs in slots or not at all. A used slot counts as held.
	UseOnly
)

// Claim says who holds capacity, and on what terms. It does not change: a new version takes its place.
type Claim struct {
	// UID is that of the object behind the claim.
	UID types.UID
	// Name is for messages: "ZoneReservation shop-failover".
	Name string
	// Priority is that of the claim's slots: a pod of a higher priority may take their space.
	Priority int32
	Use      Use
	// Since is the claim's age.
	Since time.Time
	// Slot is the size of one slot, its place for one pod included. What is held is a number of slots, of which a pod takes whole ones.
	// It is empty if Amounts is set.
	Slot ledger.Resources
	// Amounts means that what is held on a node is not divided into slots: a pod takes what it lacks. A used amount counts as
	// held, and Use is UseLast.
	Amounts bool
}

// Slots returns n slots as an amount.
func (c *Claim) Slots(n int) ledger.Resources {
	amount := c.Slot.Times(int64(n))
	amount.Pods = int64(n)
	return amount
}

// Counts is how many of a claim's slots count as held when used of them are used.
func (c *Claim) Counts(slots, used int) int {
	if c.Use == UseLast {
		return slots - used
	}
	return slots
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

// Cover returns how many slots of a size a request takes when it lies in slots only. It is at least 1; a resource that the
// slot does not name does not count.
func Cover(request, slot *ledger.Resources) int {
	n := int64(1)
	for name := range slot.Named() {
		n = max(n, ceil(request.Amount(name), slot.Amount(name)))
	}
	return int(n)
}

func ceil(a, b int64) int64 { return (max(a, 0) + b - 1) / b }
