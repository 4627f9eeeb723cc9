// Package rebalance plans moves: which pods to evict so that the pods of a cluster are spread over the zones again as
// their ZoneSpreadPolicies and topologySpreadConstraints say, after a zone has come back, a scale-down or a rollout.
//
// # Contract
//
// [Make] plans on a fork of a copy of the cluster (package sim), which stays as it is; [First] plans in the copy
// itself, up to the first batch. Neither writes anything. The same copy and options give the same plan.
//
// The potential of a cluster is how many pods stand in a zone where a rule that they carry allows fewer, added over
// all rules ([Standing].Excess). The packages policy and counts of ZoneSpread compute it, by the formulas with which
// its Filter decides. Constraints count whether or not they are hard, and only those over zones.
//
// A move is the eviction of one pod, through the copy's Eviction API. Where its replacement goes is the scheduler's
// answer, not a wish. The move is accepted only if with several seeds the replacement is bound within two minutes of
// the copy's time, the potential of the rules concerned falls, and nothing else is worse: no pod is preempted or waits
// that did not, no budget has fewer healthy pods, no reservation holds less, no other rule is broken further.
//
// The potential falls with each move, so a search ends. What was refused is then tried again, and a plan is complete
// only if nothing is accepted: a plan for the cluster that the plan leads to is empty. In the end of a whole plan the
// ZoneSurvivals are certified without the moves and with them, and the plan names those that the moves would break.
//
// [Read] is how the pods of a cluster as it was read stand to their rules. Its WhyNotMoved is asked a moment before
// an eviction: what keeps a pod where it is (stays.go, controllers.go) is one account for plans and for that.
//
// # Non-goals
//
// The package evicts no pod of a cluster. It makes no room: it moves no pod of one workload so that one of another
// can follow. Policies that count gangs, and those over other topology keys, are left out. Reservations that lack
// room are not mended by moves.
package rebalance
