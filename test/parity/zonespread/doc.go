// Package parity runs ZoneSpread and the in-tree PodTopologySpread side by side in one process.
//
// [NewPair] builds both plugins on one snapshot, with the feature gates as the process has them, and
// [Run] takes one of them through a scheduling cycle as the framework would. The tests of this package
// compare the two; the benchmarks in test/performance time them.
//
// The in-tree plugin is the oracle everywhere except where it is known to be wrong: there, and for what
// AddPod and RemovePod do, the oracle is [Recount], which counts every pod again from the words of the
// API documentation and shares no code with either plugin.
package parity
