// Package placement chooses the nodes for the slots of reservations, and keeps the slots where they belong.
//
// It is pure, as package holds is, in which the slots are recorded. A [Planner] has the demands of all reservations and two
// entrances. [Planner.Reconcile] is for a goroutine of its own: it looks at the nodes as the ledger knows them. It repairs, moves
// and places all there is to place, a slice at a time. [Planner.Collect] is for the start of a scheduling cycle: it lets
// reservations that lack slots take what has become free, as the cycle's own nodes show it, ahead of the cycle's pod. Both work on
// one board, which an update makes equal to the nodes that the caller sees.
//
// # Where slots go
//
// Each zone gets its own number of slots; a number for all zones is shared out evenly, the first zones by name getting one more
// where it does not divide. Within a zone slots go to the node that is left with the least room (best fit): the one that has
// room for the fewest slots; of several, the one whose room is the smallest in terms of a slot; of several, the first by
// name. No more than PerNode of slots and owners together are on a node. What new slots hold together in a zone is bounded by
// a fraction of what the zone has, the oldest demands first.
//
// Slots stay where they are as long as the node may take them and has room for them. On a node that is too full the slots of the
// lowest priority, and of these the youngest claims', go first. A node that is not ready or not there counts for nothing until it is
// back; its consumers are still known then.
//
// A zone none of whose nodes may take slots is lost. With Shift its slots are shared out over the other zones until it is
// back, and then move home one by one as they find room there; with Keep they are lacking. When a zone is merely full, its
// slots are lacking; those of a demand without zones go to the other zones meanwhile.
//
// # Who comes first
//
// What becomes free is offered to the demands that lack slots, the oldest first. A younger one gets what the older ones can not
// use: nine of ten slots are worth nine tenths, so that no demand holds back room that it can not use by itself.
//
// # Headroom stays unused
//
// A slot of a Headroom claim that is used no longer counts: the claim lacks it. Without more, a rolling update in a full
// cluster would use up the slots for good, because pods that wait take the room that the old replicas leave. So room that
// becomes free goes to the unfilled claim first: a new slot is held there, and a consumer of the claim becomes an ordinary
// pod in exchange. Zones come into their own first; room in another zone is taken for a slot that is used, and moves home
// later.
//
// # Cost
//
// A node whose room has grown, or that may take slots that it could not take before, is freed: it goes to the front of its zone's
// list. A demand that has looked at all nodes and found no room needs to look at freed nodes only, so that what a cycle pays
// depends on what has changed, and not on how many demands lack slots. Collect stops at a number of looks and goes on in the next
// cycle; what takes more is left to Reconcile.
//
// # Non-goals
//
// The package does not evict, does not move slots to make room for others, and does not balance nodes.
package placement
