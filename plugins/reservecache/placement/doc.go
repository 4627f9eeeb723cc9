// Package placement chooses the nodes for what reservations hold, and repairs the placement.
//
// It is pure, like package holds, which records what is held. A [Planner] has the claims of all reservations. A
// worker calls [Planner.Reconcile] with the nodes of the ledger: it repairs, moves and places slots. Each scheduling
// cycle begins with [Planner.Collect]: claims that lack something take freed room on the cycle's nodes before the
// cycle's pod does. Each of the two has its own set of nodes, since ledger and cycles hear of events at different
// times; what is held is common to both. A node that the ledger does not have yet keeps what is held there; one that
// the ledger has removed counts as gone, even while cycles still see it.
//
// # Words
//
//   - The owners of a claim are the pods that may use what it holds.
//   - A claim has slots, for which the planner chooses nodes, or amounts on nodes that it names. It is unfilled while it
//     lacks some of that, and seeks room in the zones in which it lacks slots.
//   - A node is freed when its room has grown, or when it may have slots that it could not have before. Freed nodes are
//     offered to the claims that seek room. Freeings are numbered, so that a claim that has found none need only look at
//     later ones.
//   - A draft is what one claim is to hold. It is recorded as a whole, or not at all.
//   - A node is too full when what is unused there has no room beside its pods. The excess is given up.
//
// # Where slots go
//
// Each zone gets its own number of slots, its quota. A total for all zones is distributed evenly; the first zones by
// name get the remainder. Within a zone slots go to the node that has the least room (best fit): the one with room for
// the fewest slots, then the one with the smallest room in terms of a slot, then the first by name. A node has at most
// PerNode slots and owners together. New slots may hold at most a fraction of the zone, the oldest claims first.
//
// Slots stay where they are as long as the node may take them and has room for them. A node that is too full gives up
// slots of the lowest priority first, and among these those of the youngest claims. Slots on a node that is gone or not
// ready are given up.
//
// A zone without a node that may take slots is lost. With Shift its slots are distributed over the other zones until it
// is back, and then move home one by one as they find room there. With Keep they are missing. If a zone is only full,
// its slots are missing, except that those of a claim without zones go to other zones meanwhile.
//
// # Who comes first
//
// Freed room is offered to the oldest claim first. A younger one gets what the older ones cannot use:
// an incomplete reservation is still useful, so no claim keeps room that it cannot use.
//
// # Headroom stays unused
//
// A pod that takes a slot of a Headroom claim lowers what it holds, so the claim lacks one. A rolling update in a full
// cluster would then use up the slots for good, because waiting pods would take the room of the old replicas. So freed
// room goes to the unfilled claim first. Each zone is served first; as many slots as pods took may be replaced in
// another zone, and move home later.
//
// # Inclusive claims
//
// A claim that is not Headroom's is inclusive: what it holds on a node includes its pods there, so that a slot takes
// only the room that these leave of it. Slots go first to nodes on which owners run outside of slots, and follow
// owners within their zone: no room is held a second time for a pod that runs.
//
// # Amounts
//
// Of amounts there is nothing to choose: on each ready node that the claim names it holds the amount, its pods there
// among it, as far as there is room, each resource by itself. A missing part waits for freed room of its node, as
// missing slots do.
//
// # Cost
//
// A claim that found no room on any node looks at freed nodes only, so the cost of a cycle depends on what has changed,
// and not on how many claims lack something. Collect looks at a limited number of nodes and continues in the next
// cycle; the rest is left to Reconcile.
//
// # Non-goals
//
// The package does not evict pods, move slots to make room for others, or balance nodes.
package placement
