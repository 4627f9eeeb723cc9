// Package floor keeps what reservations promise as a floor: in each zone, so many slots of a claim fit beside the pods.
//
// Nothing is recorded. Held room is free room, so a new leader finds it free as well, wherever the old one thought that
// it was; what a status lists is a [Seed] for claims that compete. The package is pure: it knows no framework, no
// informers and no clock.
//
// # A cycle
//
//	SetClaims   the reservations have changed: an edit keeps what is held until its target has room
//	Update      a node has changed: slots that may not be there any more, or have no room, go
//	Settle      the oldest claim that lacks slots takes free room first
//	Fit         Filter asks for one node: does the pod fit beside the slots that it may not use?
//	Take        the pod is assumed: an owner takes the slots whose room it needs
//	(its node is an Update of the next cycle)
//
// So room that becomes free is a claim's that lacks slots before any waiting pod sees it.
//
// # Contract
//
// A claim is to have in each of its zones the slots that are desired there. Those of a claim that is Inclusive (a
// Guarantee, or Required) count the owners that run: what they ask for is rounded up to whole slots on each node, and
// the rest of those is held as well, before any further slot of the node. Slots lie on the nodes with the least room
// for them, and stay while they may. What a zone has no room for is held in the claim's other zones, as evenly as there
// is room, and moves home. The order is by age alone, and no claim takes what another one has.
//
// Where pods have taken the room of slots, these go: of the claims with the lowest priority first, and of these of the
// youngest. What owners leave of their slots goes last. Of an owner of headroom it is known when it takes room: then only
// slots go that it may use.
//
// After an edit, slots of another size, or on nodes that may not have them any more, stay as former slots. They are
// held as all others, count as missing, and are exchanged one by one; see edit.go.
//
// Settle costs what has changed. A claim that lacks slots looks at all nodes of a zone once, and then only at nodes
// that have got room; a pod that takes room costs nothing.
//
// # Non-goals
//
// A Floor chooses no node for a pod, and does not say which pod uses which slot: its own claim's slots are not in a
// pod's way, and Settle finds them room elsewhere, if there is any.
package floor
