package ledger

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Errors of holds, to be tested with errors.Is.
var (
	// ErrNoRoom means that a slot fits on its node only at the expense of pods or of another claim.
	ErrNoRoom = errors.New("no room for the slot")
	// ErrHeld means that a node has room for a pod only in slots that the pod may not use.
	ErrHeld = errors.New("the room is held")
	// ErrNoSlot means that a pod that has to run in a slot finds none on its node.
	ErrNoSlot = errors.New("no slot for the pod")
	// ErrNoClaim means that the ledger does not know a claim.
	ErrNoClaim = errors.New("no such claim")
	// ErrNotItsTurn means that a gang may not collect capacity piece by piece while an older claim does.
	ErrNotItsTurn = errors.New("an older claim collects capacity")
	// ErrBadSlot means that a slot or its claim makes no sense, whatever the cluster looks like.
	ErrBadSlot = errors.New("invalid hold")
)

// ClaimKind says what stands behind a claim.
type ClaimKind string

// The kinds of claims.
const (
	// Reservation is a ZoneReservation.
	Reservation ClaimKind = "Reservation"
	// Gang is a PodGroup.
	Gang ClaimKind = "Gang"
)

// ClaimID identifies who holds capacity: the object of that kind with that UID.
type ClaimID struct {
	Kind ClaimKind
	UID  types.UID
}

// Mode says what becomes of a slot that is used.
type Mode int

// The modes of a claim.
const (
	// Headroom means that the slots are to be unused: a claim lacks as many as are used, until it has
	// collected others in their place.
	Headroom Mode = iota
	// Guarantee means that a slot that is used counts as held.
	Guarantee
)

// Claim says who holds capacity, and on what terms. The ledger keeps a copy, which never changes: a new
// version takes its place.
type Claim struct {
	ID ClaimID
	// Name is for messages: "ZoneReservation shop-failover".
	Name string
	// Priority is that of the claim's slots: a pod of a higher priority may take their space.
	Priority int32
	Mode     Mode
	// Since is the claim's age, by which unfilled claims are served.
	Since time.Time
	// Deadline is when the claim ends by itself; zero if it does not.
	Deadline time.Time
	// Wanted is how many slots the claim is to have. In Headroom mode it counts unused ones only.
	Wanted int
	// Filling means that the claim collects its slots piece by piece, and so stands in the queue of
	// unfilled claims while it has fewer than it wants. A reservation always does; a gang does when it is
	// starving, and otherwise gets all its slots in one step or none.
	Filling bool
}

// compareAge orders claims by age, and those of one age by UID and kind.
func compareAge(a, b *Claim) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID.UID, b.ID.UID), cmp.Compare(a.ID.Kind, b.ID.Kind))
}

// CompareAge orders claims by age, as the queue of unfilled claims does.
func CompareAge(a, b *Claim) int { return compareAge(a, b) }

// compareRank orders claims by who keeps its slots where there is not room for all: the higher priority,
// then the older.
func compareRank(a, b *Claim) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), compareAge(a, b))
}

// Slot is a number of equal slots on one node. One pod uses one slot.
type Slot struct {
	Node string
	// Requests is the size of one slot. Pods is taken for 1, whatever it says.
	Requests Resources
	// Count is how many there are to be, those that are used included.
	Count int
	// For is the only pod that may use the slot, a member of a gang; empty when all pods of the claim
	// may. Such a slot is used as soon as the pod is on the node, however it came there, and a pod has one at
	// most. A claim has one entry for each node and For.
	For types.UID
	// Settle is how many of the present consumers, the oldest first, become ordinary pods before Count is
	// applied: they keep their place on the node and no longer use a slot. It does nothing to a slot that is
	// for one pod.
	Settle int
	// Seen is the node as a scheduling cycle sees it; nil outside of one. The room for the slot is then
	// judged by it, since the ledger may trail the scheduler's cache.
	Seen *Seen
}

// Seen is a node in the snapshot of a scheduling cycle.
type Seen struct {
	Allocatable, Requested Resources
	// Present says which pods are on the node. It is called under the ledger's lock and must not call the
	// ledger.
	Present func(types.UID) bool
}

// holdKey tells the holds of one claim apart.
type holdKey struct {
	node string
	pod  types.UID
}

// claim is the ledger's record of a claim.
type claim struct {
	spec  *Claim
	holds map[holdKey]*hold
	// slots and used are the sums over holds.
	slots, used int
}

// hold is the ledger's record of the slots of a claim on a node.
type hold struct {
	claim    *claim
	node     *node
	requests Resources
	slots    int
	pod      types.UID
	// consumers are the pods that use a slot, in the order in which they came. There are never more than
	// slots.
	consumers []*pod
}

func (h *hold) unused() int { return h.slots - len(h.consumers) }

func (h *hold) key() holdKey { return holdKey{node: h.node.name, pod: h.pod} }

// missing is how many slots the claim lacks.
func (c *claim) missing() int {
	if c.spec.Mode == Headroom {
		return max(0, c.spec.Wanted-(c.slots-c.used))
	}
	return max(0, c.spec.Wanted-c.slots)
}

// unfilled reports whether the claim stands in the queue.
func (c *claim) unfilled() bool {
	return c.missing() > 0 && (c.spec.Filling || c.spec.ID.Kind == Reservation)
}
