// Package explain says why a pod or a gang waits: for each zone the nodes, pods, caps and holds, then what the scheduler
// said, and what would let it go.
//
// The verdicts come from the scheduler's plugins on a copy of the cluster (package sim). Changes that would let a pod go
// are tried there, too. The verdicts are of the moment of the snapshot; the scheduler's own words are of its last attempt.
package explain
