// Package placement chooses the nodes for what reservations hold, and repairs the placement.
//
// It does no I/O and knows no types of the scheduling framework, like package holds, which records what is held. A
// [Planner] has the claims of all reservations. A worker calls [Planner.Reconcile] with the nodes of the ledger: it
// repairs, moves and places slots. Each scheduling cycle, but not that of a pod group nor that of a hypothetical pod,
// begins with [Planner.Collect]: claims that seek room take freed room on the cycle's nodes before the cycle's pod
// does. Each of the two has its own set of nodes, since ledger and cycles hear of events at different times; what is
// held is common to both. A node that the ledger does not have yet keeps what is held there; one that the ledger has
// removed counts as gone, even while cycles still see it, until another one of its name comes.
//
// # Words
//
//   - The owners of a claim are the pods that may use what it holds.
//   - A claim has slots, for which the planner chooses nodes, or amounts on nodes that it names. It is unfilled while
//     it lacks some of that. It seeks room in each zone in which one more of its slots is wanted, or in which a node
//     lacks a part of its amount; while it is unfilled, lost zones are among them, and those of which it does not know
//     yet that they may have something for it. A claim with all its slots seeks room too while some are in other zones
//     than they should be.
//   - A node is freed when it may have room for a claim that it had not before: it has more room, or its object allows
//     more, owners came or went, a nomination ended, a claim gave something up, or others may use what a claim holds.
//     Freed nodes are offered to the claims that seek room. Freeings are numbered, so that a claim that found no room
//     need only look at later ones.
//   - A draft is what one claim is to hold. It is recorded as a whole, or not at all. One of amounts has at most 256
//     nodes.
//   - A node is too full when what is unused there has no room beside its pods. The excess is given up.
//
// # Where slots go
//
// Each zone gets its own number of slots, its quota. A total for all zones is distributed evenly; the first zones by
// name get the remainder. Within a zone slots go to the node that has the least room (best fit): the one with room for
// the fewest slots, then the one with the smallest room in terms of a slot, then the first by name. A node has at most
// PerNode slots, or slots and owners together if the claim is not inclusive. New slots may hold at most a fraction of
// the zone, the oldest claims first. Room to which a pod is nominated is never taken.
//
// Slots stay where they are as long as the node may take them and has room for them, except that unused ones leave for
// the quota of another zone, for their own zone once that has room, or for a node with owners. On a node that may not
// take slots any more, such as a cordoned one, used slots stay. On a node that is too full they stay too, with what
// their pods leave of them; beside these the claims keep what has room in the order of priority, then of age, and give
// up the rest. Slots on a node that is gone or not ready are given up.
//
// A zone without a node that may take slots is lost. With Shift its slots are distributed over the other zones until it
// is back, and then move home one by one as they find room there; used ones on its nodes stay. A cycle that sees it back
// takes its room for slots that are missing. With Keep the slots that are not used there are missing. If a zone is only
// full, its slots are missing, except that those of a claim without zones go to other zones meanwhile.
//
// # Who comes first
//
// Claims are repaired in the order of age, and freed room is offered to the older ones before a younger one is repaired
// or gets an offer. An older claim does not block room that is too small for it: an incomplete reservation is still
// useful, so no claim keeps room that it cannot use.
//
// # Headroom stays unused
//
// A pod that takes a slot of a Headroom claim lowers what it holds, so the claim lacks one. A rolling update in a full
// cluster would then use up the slots for good, because waiting pods would take the room of the old replicas. So freed
// room goes to the unfilled claim first. Missing slots are placed in their own zone first; as many as pods took may be
// replaced in another zone, and move home later.
//
// # Inclusive claims
//
// Every claim except one of Headroom slots is inclusive: what it holds on a node includes its pods there, so that it
// takes only the room that these leave of it. Slots go first to nodes on which owners run outside of slots, and unused
// ones follow owners within their zone as far as there is room, lest room be held a second time for a pod that runs.
//
// # Amounts
//
// Of amounts there is nothing to choose: on each node that the claim names, and that meets its requirements, it holds
// the amount, its pods there among it, as far as there is room, each resource by itself. A missing part waits for freed
// room of its node, as missing slots do.
//
// # Cost
//
// A claim that found no room on any node looks at freed nodes only, so the cost of a cycle depends on what has changed,
// and not on how many claims lack something. Collect looks at a limited number of nodes in all, and continues in the
// next cycle; of each claim and zone it looks at a few, and leaves the rest to Reconcile.
//
// # Non-goals
//
// The package does not evict pods, move slots to make room for others, or balance nodes.
package placement
