package plugins

import (
	"k8s.io/utils/clock"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// Option sets up a Pack that does not run beside a real API server.
type Option func(*options)

type options struct {
	zoneSpread   []zonespread.Option
	reserveCache []reservecache.Option
	permitGate   []permitgate.Option
}

// WithClock has the plugins tell the time by c, in the place of the machine's clock.
func WithClock(c clock.WithTicker) Option {
	return func(o *options) {
		o.zoneSpread = append(o.zoneSpread, zonespread.WithClock(c))
		o.reserveCache = append(o.reserveCache, reservecache.WithClock(c))
		o.permitGate = append(o.permitGate, permitgate.WithClock(c))
	}
}

// WithSource has the plugins take their custom resources from source, in the place of the API server of the scheduler.
func WithSource(source crd.Source) Option {
	return func(o *options) {
		o.zoneSpread = append(o.zoneSpread, zonespread.WithSource(source))
		o.reserveCache = append(o.reserveCache, reservecache.WithSource(source))
		o.permitGate = append(o.permitGate, permitgate.WithSource(source))
	}
}
