// Command own-plugins is a scheduler with a plugin of its own beside those of Zonewise. Called with the argument
// "zonewise" it is the command line, with "controller" the controller: what these say about a copy of the cluster is
// then what this scheduler would do.
//
//	own-plugins --config scheduler.yaml
//	own-plugins zonewise explain my-pod --config scheduler.yaml
//	own-plugins controller --survival --config scheduler.yaml
package main

import (
	"context"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"zonewise.dev/cmd/controller"
	"zonewise.dev/cmd/scheduler/app"
	"zonewise.dev/cmd/zonewise/command"
	"zonewise.dev/plugins"
)

func main() {
	own := frameworkruntime.Registry{quarantineName: newQuarantine}
	if len(os.Args) > 1 && os.Args[1] == "zonewise" {
		os.Exit(command.Main(os.Args[2:], own))
	}
	if len(os.Args) > 1 && os.Args[1] == controller.Name {
		os.Exit(controller.Main(os.Args[2:], own))
	}
	var options []kubescheduler.Option
	for name, factory := range own {
		options = append(options, kubescheduler.WithPlugin(name, factory))
	}
	pack := plugins.NewPack(plugins.WithFence(), plugins.WithRetriedWatches())
	os.Exit(cli.Run(app.NewSchedulerCommand(pack, options...)))
}

const quarantineName = "Quarantine"

// quarantineLabel is the label of nodes that take no new pods.
const quarantineLabel = "example.com/quarantine"

// quarantine keeps pods off nodes that have the label.
type quarantine struct{}

var _ fwk.FilterPlugin = quarantine{}

func newQuarantine(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return quarantine{}, nil
}

// Name implements fwk.Plugin.
func (quarantine) Name() string { return quarantineName }

// Filter implements fwk.FilterPlugin.
func (quarantine) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if reason, ok := node.Node().Labels[quarantineLabel]; ok {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node is in quarantine: "+reason)
	}
	return nil
}
