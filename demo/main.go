// Command zonewise-demo, which "make demo" builds and runs, shows the project at work: a real control plane on
// loopback, the real scheduler with the three plugins, a workload drawn from published production traces, the loss of a
// zone, and a closing board that is read from the API server and the scheduler's metrics.
//
//   - workload turns the figures of the traces into nodes, Deployments, gangs, a policy and ZoneSurvivals. It is pure.
//   - cluster starts and stops the processes and issues identities.
//   - check checks the cluster. It is pure.
//   - run plays the demo: the phases, the live progress, the board.
//
// Non-goals: the demo is neither a benchmark, since its processes share the machine, nor a test suite.
package main

import (
	"os"

	"zonewise.dev/demo/run"
	"zonewise.dev/internal/program"
)

func main() {
	os.Exit(program.Run(run.NewCommand(), run.ExitCodes))
}
