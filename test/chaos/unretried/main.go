// Command unretried is zonewise-scheduler without plugins.WithRetriedWatches, to compare it with.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"zonewise.dev/cmd/scheduler/app"
	"zonewise.dev/plugins"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(plugins.NewPack(plugins.WithFence()))))
}
