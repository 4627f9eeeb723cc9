// Package worlds plays random worlds: a cluster, reservations, policies, gangs of both APIs and other workloads, and
// what happens to them, with the real kube-scheduler in the shipped profile on an API server in memory. Time is a
// bubble's (testing/synctest), so that hours pass in a second.
//
// # Layers
//
//	New       draws a World from a seed: plain values, which print as Go source that a test may have as it stands
//	Play      carries the steps of a World out, plays the controllers and the kubelets beside the scheduler, and lets the world come to rest
//	check     the invariants, each a function with a name: after each step and each pause, at rest, and after a restart at rest
//	          (checkSettled: those of an instant at which the scheduler has nothing left to do)
//	AtRest    of a World are steps for its end: a zone is lost as a certificate has foreseen, or the moves of plans are made
//	Shrink    takes steps and amounts away as long as the same invariant fails
//
// PlayAlone plays a world with kube-scheduler alone. Where that breaks an invariant, too, the check of it says so, with
// the reason, and a test shows it.
//
// The checks know the API alone: where pods are, and what the statuses of reservations say is held. They do not know
// how room is held, so that they stay when that changes. What is checked of a decision is checked in its cycle, with
// the NodeInfos that the scheduler has seen (checkDecision). A verdict on what fits is simple arithmetic and says
// "fits" only where nothing that it does not know could refuse: pods that a policy spreads, gangs with constraints of
// their own and gangs that have lost members are left out.
//
// # Seeds
//
// "make worlds SEED=1 N=1000" plays any seeds and shrinks what fails. With the flag -trace a world writes what happens
// in it:
//
//	go test ./test/worlds -run '^TestWorlds$' -args -seed 7 -worlds 1 -patience 0 -trace
//
// The lists in seeds_test.go, which "make test" and "make test-all" play, are of seeds that pass: a seed that is
// missing there breaks an invariant that this tree is known to break, or does so in some runs. The lists grow as those
// faults are mended; an invariant is not made weaker for them.
//
// Goroutines that outlive a world end the test, since the bubble waits for them. A world is not quite the same each
// time it is played: the order in which goroutines run at one instant is Go's.
package worlds
