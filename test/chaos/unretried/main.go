// Command unretried is zonewise-scheduler without plugins.WithRetriedWatches, to compare it with.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as the shipped program
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"zonewise.dev/plugins"
)

func main() {
	var options []app.Option
	for name, factory := range plugins.NewPack(plugins.WithFence()).Factories() {
		options = append(options, app.WithPlugin(name, factory))
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(options...)))
}
