package zonespread

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/plugins/zonespread"
)

const pluginName = zonespread.Name

// plugin is the ZoneSpread of one scheduler.
type plugin struct{ shared *zonespread.Shared }

func newPlugin(policies *crdtest.Source, c clock.WithTicker) *plugin {
	return &plugin{zonespread.NewShared(zonespread.WithSource(policies), zonespread.WithClock(c))}
}

func (p *plugin) new(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	return p.shared.New(ctx, args, h)
}

func (p *plugin) idle() bool { return p.shared.Idle() }
