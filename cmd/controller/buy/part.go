package buy

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cluster/snapshot"
	declared "zonewise.dev/cmd/controller/buy/metrics"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/internal/metrics"
)

const (
	// lookInterval is how often the autoscaler's answers are read, while an object has spec.buy.
	lookInterval = 15 * time.Second
	// idleInterval is how often it is looked, while none has, whether anything is left.
	idleInterval = 10 * time.Minute
	// share is what part of the controller's budget of CPU goes into reading the cluster for this.
	share = 0.25
)

// decidingKinds decide what is wanted.
var decidingKinds = []string{
	"nodes", "pods", "zonereservations.zonewise.dev", "zonesurvivals.zonewise.dev",
}

// Controller keeps the CapacityBuffers. Make one with New.
type Controller struct {
	shared parts.Shared
	looks  parts.Looks
	now    func() time.Time
	// cleaned is when it was last seen that nothing is left, while no object has spec.buy.
	cleaned time.Time

	mu    sync.Mutex // guards asked
	asked map[types.UID]figures
}

// figures are the metrics of an object.
type figures struct {
	kind, name    string
	wanted, asked int64
}

// Describe returns the part.
func Describe() parts.Description {
	return parts.Description{
		Name: "buy", MetricPrefix: declared.Prefix,
		Help: "ask an autoscaler for the nodes of ZoneReservations and ZoneSurvivals with spec.buy, by CapacityBuffers",
		New:  func(shared parts.Shared) reconcile.Reconciler { return New(shared) },
	}
}

// New returns the part.
func New(shared parts.Shared) *Controller {
	return &Controller{
		shared: shared, looks: shared.NewLooks(share, decidingKinds...), now: time.Now,
		asked: map[types.UID]figures{},
	}
}

var collector = metrics.NewCollector((*Controller).collect, declared.Wanted, declared.Asked)

// collect sends the figures of the last look.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.asked {
		send(declared.Wanted, float64(f.wanted), f.kind, f.name)
		send(declared.Asked, float64(f.asked), f.kind, f.name)
	}
}

// Start implements manager.Runnable: the metrics are exported until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	collector.Export(ctx, c)
	return nil
}

// Reconcile implements reconcile.Reconciler: it asks for what the cluster makes wanted, and reads what was answered.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return c.looks.Reconcile(ctx, c.now(), c.shared.Read, c.look)
}

func (c *Controller) look(ctx context.Context, cluster *snapshot.Snapshot, unread string) (next time.Duration) {
	if unread != "" {
		return lookInterval // what is not seen may be wanted
	}
	now := c.now()
	buyers := buyersOf(cluster, now)
	if len(buyers) == 0 && now.Sub(c.cleaned) < idleInterval {
		return idleInterval
	}
	left := c.askForAll(ctx, buyers, now)
	if len(buyers) > 0 || left {
		c.cleaned = time.Time{}
		return lookInterval
	}
	c.cleaned = now
	return idleInterval
}
