// Package placement chooses the nodes for the slots of reservations, and keeps the slots where they belong.
//
// It is pure, as package ledger is, in which the slots are held. A [Keeper] has the demands of all reservations
// and two entrances. [Keeper.Reconcile] is for a goroutine of its own: it looks at everything that the ledger
// knows. [Keeper.Refill] is for the start of a scheduling cycle: it lets unfilled reservations collect what has
// become free since the last cycle, by what this cycle sees.
//
// # Where slots go
//
// Each zone gets its own number of slots; a number for all zones is shared out evenly, the first zones by name
// getting one more where it does not divide. Zones take turns neither by load nor by chance, so that a restart
// comes to the same numbers.
//
// Within a zone slots go to the node that is left with the least room (best fit): the one that has room for the
// fewest slots; of several, the one whose room is the smallest in terms of a slot; of several, the first by
// name. Nodes on which slots were before a restart (Demand.Prefer) come before all others. The rule looks at
// nothing but the nodes, the pods and the slots of older reservations, so that a scheduler that starts anew
// places the same slots as one that has just placed them.
//
// Slots stay where they are as long as the node may take them and has room for them. They leave a node that is
// cordoned, not ready, tainted, relabelled out of the selection or overcommitted. On an overcommitted node the
// slots of the lowest priority, and of these the youngest claims', go first.
//
// A zone none of whose nodes may take slots is lost. With Shift its slots are shared out over the other zones
// until it is back, and then move home one by one as they find room there; with Keep they are lacking. When a
// zone is merely full, its slots are lacking; those of a demand without zones go to the other zones meanwhile.
//
// # Who comes first
//
// There is one queue of unfilled claims, by age, for reservations and starving gangs together
// ([ledger.Ledger.Queue]). Reservations collect what they can, the oldest first: part of a reservation is of use
// by itself. Gangs are not: one that is older than a reservation and collects keeps it from collecting at all,
// or the two would hold what the other waits for.
//
// # Headroom stays unused
//
// A slot of a Headroom claim that is used no longer counts: the claim lacks it. Without more, a rolling update
// in a full cluster would use up the slots for good, because pods that wait take the room that the old replicas
// leave. So room that becomes free goes to the unfilled claim first: a new slot is held there, and a consumer of
// the claim becomes an ordinary pod in exchange. Zones come into their own first; room in another zone is taken
// for a slot that is used, and moves home later.
//
// What has become free is judged by the nodes that the cycle sees, since these are what the cycle's pod is going
// to be judged by, and the scheduler's cache and the ledger hear of a pod's end in no fixed order. Refill comes
// before Filter and everything happens within one cycle, so that no pod can get between. Only nodes that changed
// since the last cycle are looked at, once a search of all has ended for lack of room.
//
// # Non-goals
//
// The package does not plan gangs, whose members have constraints between them. It does not evict. It does not
// move slots to make room for others, nor to balance nodes.
package placement
