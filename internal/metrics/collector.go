package metrics

import (
	"context"
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Collector reads metrics from live objects, one per scheduler of the process, when metrics are gathered. So no series
// must be deleted when what it describes is gone. Make one with NewCollector.
type Collector[T comparable] struct {
	metrics.BaseStableCollector

	descs   []*metrics.Desc
	collect func(from T, send Send)
	once    sync.Once

	mu   sync.Mutex // guards live
	live map[T]struct{}
}

// Send gets the value of a gauge with the values of its labels. If a series is sent twice, the larger value counts:
// only in tests does a process have two schedulers, which then see one cluster.
type Send func(desc *metrics.Desc, value float64, labels ...string)

// NewCollector returns a collector of the described gauges. collect sends those of one object; it may be called from
// any goroutine.
func NewCollector[T comparable](collect func(from T, send Send), descs ...*metrics.Desc) *Collector[T] {
	return &Collector[T]{descs: descs, collect: collect, live: map[T]struct{}{}}
}

// Export exports the metrics of an object until ctx ends. It may be called from several goroutines.
func (c *Collector[T]) Export(ctx context.Context, from T) {
	c.once.Do(func() { legacyregistry.CustomMustRegister(c) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[from] = struct{}{}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.live, from)
	})
}

// Live returns how many objects are exported now.
func (c *Collector[T]) Live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector[T]) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *Collector[T]) CollectWithStability(ch chan<- metrics.Metric) {
	c.mu.Lock()
	live := make([]T, 0, len(c.live))
	for from := range c.live {
		live = append(live, from)
	}
	c.mu.Unlock()
	type sample struct {
		desc   *metrics.Desc
		labels string
	}
	type value struct {
		value  float64
		labels []string
	}
	values := map[sample]value{}
	send := func(desc *metrics.Desc, v float64, labels ...string) {
		key := sample{desc, strings.Join(labels, "\x00")}
		if known, ok := values[key]; !ok || known.value < v {
			values[key] = value{v, labels}
		}
	}
	for _, from := range live {
		c.collect(from, send)
	}
	for key, v := range values {
		ch <- metrics.NewLazyConstMetric(key.desc, metrics.GaugeValue, v.value, v.labels...)
	}
}
