package plugins

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// Factory is the framework's plugin constructor.
type Factory = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error)

// Pack is the three plugins of one scheduler. A process that runs several schedulers, as tests do, makes
// a Pack for each.
type Pack struct {
	zoneSpread   *zonespread.Shared
	reserveCache *reservecache.Shared
	permitGate   *permitgate.Shared
}

// NewPack returns a pack for one scheduler. It starts nothing: that is left to the factories, which the
// framework calls once for each profile that enables the plugin.
func NewPack(opts ...Option) *Pack {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	p := &Pack{zoneSpread: zonespread.NewShared(o.zoneSpread...), reserveCache: reservecache.NewShared(o.reserveCache...)}
	p.permitGate = permitgate.NewShared(append(o.permitGate, permitgate.WithHolds(p.reserveCache))...)
	return p
}

// Factories returns the constructors of the plugins by their names, to be given to app.WithPlugin.
func (p *Pack) Factories() map[string]Factory {
	return map[string]Factory{
		zonespread.Name:   p.zoneSpread.New,
		reservecache.Name: p.reserveCache.New,
		permitgate.Name:   p.permitGate.New,
	}
}

// ZoneSpread returns what the ZoneSpread plugins of all profiles share.
func (p *Pack) ZoneSpread() *zonespread.Shared { return p.zoneSpread }

// ReserveCache returns what the ReserveCache plugins of all profiles share, the ledger among it.
func (p *Pack) ReserveCache() *reservecache.Shared { return p.reserveCache }

// PermitGate returns what the PermitGate plugins of all profiles share.
func (p *Pack) PermitGate() *permitgate.Shared { return p.permitGate }

// Idle reports whether the workers of all plugins have nothing to do until an event comes or the clock moves.
func (p *Pack) Idle() bool {
	for _, part := range []any{p.zoneSpread, p.reserveCache, p.permitGate} {
		if i, ok := part.(interface{ Idle() bool }); ok && !i.Idle() {
			return false
		}
	}
	return true
}
