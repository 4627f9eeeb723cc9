// Package floor keeps what reservations promise as a floor: in each zone so many slots of a claim fit beside the pods.
//
// # Contract
//
// Nothing is recorded: where the slots lie follows from the room that the nodes have left. Held room is free room, so that a
// new leader finds it free as well, wherever the one before thought that it was; a [Seed] has it look there first. Update and
// Remove take in nodes that have changed, SetClaims the claims, and Settle brings the slots in line, the oldest claim first.
// Fit is what a filter asks about one node. A [Floor] is not synchronized, see there.
//
// # Non-goals
//
// The package knows no framework, informer or clock. The plugin does not use it yet: packages placement and holds do its work.
package floor
