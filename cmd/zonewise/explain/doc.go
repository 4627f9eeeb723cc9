// Package explain says why a pod or a gang waits: what each zone is to it, whose pods, caps and holds are in the way,
// what the scheduler said, and what would let it go.
//
// The verdicts are those of the scheduler's own plugins, on a copy of the cluster (package sim), and so is what would let a
// pod go: each change is tried there. They are of the moment of the snapshot, and the scheduler's own words, which are shown
// beside them, are of its last attempt.
package explain
