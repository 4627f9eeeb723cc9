// Package parity runs ZoneSpread and the in-tree PodTopologySpread side by side in one process.
//
// [NewPair] builds both plugins on one snapshot, with the feature gates of the process, and
// [Run] takes one of them through a scheduling cycle as the framework would. The tests of this package
// compare the two; the benchmarks in test/performance time them.
//
// The in-tree plugin is the oracle except where it is known to be wrong. There, and for the effects of
// AddPod and RemovePod, the oracle is [Recount], which counts every pod again as the
// API documentation says and shares no code with either plugin.
package parity
