// Package demo and the packages below it are the project's showpiece: a real
// control plane on loopback, the real scheduler with the three plugins, a
// workload drawn from published production traces, the loss of a zone, and a
// closing board that is computed from what the API server and the scheduler
// say, never from what the demo believes that it did.
//
//   - workload turns the figures of the traces into nodes, Deployments and
//     gangs. It is pure.
//   - cluster starts and stops the processes and hands out identities.
//   - board turns lists of API objects and scraped metrics into a model,
//     judges the invariants and renders it. It is pure.
//   - run joins them: the phases, the live progress and the exit.
//
// Non-goals: the demo is no benchmark (its throughput is whatever the machine
// gives while six processes share it) and no test suite; it shows, and it
// refuses to show anything untrue.
package demo
