// Package skew turns counts of matching pods into verdicts and scores. All formulas of ZoneSpread for
// native topologySpreadConstraints live here.
//
// # Contract
//
// The functions are pure: they look at their arguments only, allocate nothing and may be called from any
// goroutine. Counts are numbers of pods, scores have no unit.
//
// The formulas are those of PodTopologySpread: KEP-895 (Pod Topology Spread), with KEP-3022 for
// minDomains. The floating-point expressions keep its order of operations, so that rounded scores come
// out equal.
//
// # Non-goals
//
// Which pods match and which domains take part is decided by package counts.
package skew
