// Package profiles says which profiles of a KubeSchedulerConfiguration the pack cannot work in.
//
// # Contract
//
// [Check] reads a configuration with its defaults and modifies nothing. The scheduler calls it at its start, and
// [zonewise.dev/sim.ParseConfig] for the controller and the command line: what one of them refuses, all refuse with the
// same words.
//
// # Non-goals
//
// What upstream's own validation refuses, and the plugins' args.
package profiles
