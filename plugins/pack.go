package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/leader"
	"zonewise.dev/internal/transport"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// Factory is the framework's plugin constructor.
type Factory = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error)

// Pack is the three plugins of one scheduler. A process with several schedulers, such as a test, makes a
// Pack for each.
type Pack struct {
	zoneSpread   *zonespread.Shared
	reserveCache *reservecache.Shared
	permitGate   *permitgate.Shared
	fence        bool
	retryWatches bool
}

// NewPack returns a pack for one scheduler. It starts nothing: the factories do, which the framework
// calls once for each profile that enables the plugin.
func NewPack(opts ...Option) *Pack {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	p := &Pack{
		zoneSpread: zonespread.NewShared(o.zoneSpread...), reserveCache: reservecache.NewShared(o.reserveCache...),
		fence: o.fence, retryWatches: o.retryWatches,
	}
	p.permitGate = permitgate.NewShared(append(o.permitGate, permitgate.WithHolds(p.reserveCache))...)
	return p
}

// Factories returns the constructors of the plugins by their names, to be given to app.WithPlugin.
func (p *Pack) Factories() map[string]Factory {
	return map[string]Factory{
		zonespread.Name:   p.prepared(p.zoneSpread.New),
		reservecache.Name: p.prepared(p.reserveCache.New),
		permitgate.Name:   p.prepared(p.permitGate.New),
	}
}

// prepared changes the scheduler's clients before the plugin makes clients of its own, whichever plugin is made first.
func (p *Pack) prepared(factory Factory) Factory {
	return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if p.retryWatches {
			transport.RetryWatches(ctx, h)
		}
		if p.fence {
			if err := leader.Fence(ctx, h); err != nil {
				return nil, err
			}
		}
		return factory(ctx, args, h)
	}
}

// ZoneSpread returns what the ZoneSpread plugins of all profiles share.
func (p *Pack) ZoneSpread() *zonespread.Shared { return p.zoneSpread }

// ReserveCache returns what the ReserveCache plugins of all profiles share, such as the ledger.
func (p *Pack) ReserveCache() *reservecache.Shared { return p.reserveCache }

// PermitGate returns what the PermitGate plugins of all profiles share.
func (p *Pack) PermitGate() *permitgate.Shared { return p.permitGate }

// Idle reports whether no plugin's workers have anything to do until an event comes or the clock moves.
func (p *Pack) Idle() bool {
	return p.zoneSpread.Idle() && p.reserveCache.Idle() && p.permitGate.Idle()
}
