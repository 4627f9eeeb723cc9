// Package explain says why a pod or a gang waits: for each zone the nodes, pods, caps and holds, then what the
// scheduler said, and what would let the pod or gang be scheduled.
//
// The verdicts come from the scheduler's plugins on a copy of the cluster (package sim). Changes that would let a pod
// be scheduled are tried there, too. The verdicts are about the moment of the snapshot; what the scheduler said is
// about its last attempt.
package explain
