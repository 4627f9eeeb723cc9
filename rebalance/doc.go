// Package rebalance plans moves: which pods to evict so that the pods of a cluster are spread over the zones again as
// their ZoneSpreadPolicies and topologySpreadConstraints say, after a zone has come back, a scale-down or a rollout.
//
// # Contract
//
// [Make] plans on forks of a copy of the cluster (package sim). It writes nothing, and the copy stays as it is. The
// same copy and options give the same plan.
//
// The potential of a cluster is how many pods stand in a zone where a rule that they carry allows fewer, added over
// all rules ([Standing].Excess). The packages policy and counts of ZoneSpread compute it, by the formulas with which
// its Filter decides. Constraints count whether or not they are hard, and only those over zones.
//
// A move is the eviction of one pod, through the copy's Eviction API. Where its replacement goes is the scheduler's
// answer, not a wish. The move is accepted only if on several copies with different seeds the replacement is bound
// within two minutes of the copy's time, the potential of the rules concerned falls, and nothing else is worse: no
// pod is preempted or waits that did not, no budget has fewer healthy pods, no reservation holds less, no other rule
// is broken further.
//
// In the end the ZoneSurvivals are certified without the moves and with them, and the plan names those that the moves
// would break.
//
// The potential falls with each move, so a search ends. After it another one begins on the copy with all moves made,
// and a plan is complete only if that one finds nothing: a plan for the cluster that the plan leads to is empty.
//
// [Recheck] tries moves of a plan on the cluster as it is by then, and [WhyGangStays] whether members of a gang may
// be evicted together.
//
// [Standing].Least is a lower bound: fewer moves than that leave a pod in a zone with too many although it may move.
// It knows which pods may not be moved and which zones take none, and assumes that there is room.
//
// # What is not moved
//
// Pods that ask not to be disrupted (karpenter.sh/do-not-disrupt, cluster-autoscaler.kubernetes.io/safe-to-evict:
// false), that no controller replaces, that are of a workload in a rollout, have a volume tied to nodes, are members
// of gangs or belong to another scheduler.
//
// # Non-goals
//
// The package evicts no pod of a cluster. It makes no room: it moves no pod of one workload so that one of another
// can follow. Policies that count gangs, and those over other topology keys, are left out. Reservations that lack
// room are not mended by moves.
package rebalance
