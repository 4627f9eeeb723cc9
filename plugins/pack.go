package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection"
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
	election     *leader.Election
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
		election: leader.NewElection(), fence: o.fence, retryWatches: o.retryWatches,
	}
	if o.alone {
		p.election.Observe(nil)
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
			leader.Fence(ctx, h, p.election)
		}
		leader.Follow(ctx, h, p.election)
		return factory(ctx, args, h)
	}
}

// ObserveElection tells the plugins of the scheduler's leader election; nil is none. It changes the lock of the
// configuration, so it is called before an elector is made of it: once, between app.Setup and app.Run of
// kube-scheduler, as zonewise.dev/cmd/scheduler/app does. Without it the plugins learn that their process leads from
// its first scheduling cycle, and nothing that it writes is held back.
func (p *Pack) ObserveElection(config *leaderelection.LeaderElectionConfig) {
	p.election.Observe(config)
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
