package deletioncosts

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	declared "zonewise.dev/cmd/controller/deletioncosts/metrics"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/internal/metrics"
)

const (
	// retryInterval is after how long what could not be written is tried again, and idleInterval after how long it is
	// looked if nothing changes.
	retryInterval, idleInterval = 15 * time.Second, 10 * time.Minute
	// share is what part of the controller's budget of CPU goes into looking at the cluster for this.
	share = 0.25
	// defaultWrites is how many costs are written a minute unless the flag says otherwise.
	defaultWrites = 300
)

// decidingKinds decide which costs the pods have.
var decidingKinds = []string{
	"nodes", "pods", "replicasets.apps", "replicationcontrollers", "zonespreadpolicies.zonewise.dev",
}

// Controller keeps the costs. Make one with New.
type Controller struct {
	client  client.Client
	looks   parts.Looks
	now     func() time.Time
	allowed allowance
	// refused has 1 for the groups of changes of which one was refused the last time: they go last.
	refused map[string]int

	mu      sync.Mutex // guards figures
	figures figures
}

// figures are the metrics of the last look.
type figures struct{ pods, waiting, leftAlone int }

// Describe returns the part.
func Describe() parts.Description {
	writes := defaultWrites
	return parts.Description{
		Name: "deletion-costs", MetricPrefix: declared.Prefix,
		Help: "give pods deletion costs, so that workloads of ZoneSpreadPolicies with scaleDownPolicy KeepSpread keep " +
			"their spread when they are made smaller",
		AddFlags: func(set *pflag.FlagSet) {
			set.IntVar(&writes, "deletion-cost-writes", defaultWrites,
				"with --deletion-costs: how many costs are written in a minute at most")
		},
		Validate: func() error {
			if writes < 1 || writes > 60_000 {
				return fmt.Errorf("--deletion-cost-writes: must be from 1 to 60000, got %d", writes)
			}
			return nil
		},
		New: func(shared parts.Shared) parts.Part { return New(shared, writes) },
	}
}

// New returns the part, which writes so many costs a minute at most.
func New(shared parts.Shared, writes int) *Controller {
	return &Controller{
		client: shared.Client, looks: shared.NewLooks("deletion-costs", share, decidingKinds...), now: time.Now,
		allowed: allowance{perMinute: writes},
	}
}

var _ parts.Part = &Controller{}

var collector = metrics.NewCollector((*Controller).collect, declared.Pods, declared.Waiting, declared.LeftAlone)

// collect sends the figures of the last look.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	send(declared.Pods, float64(c.figures.pods))
	send(declared.Waiting, float64(c.figures.waiting))
	send(declared.LeftAlone, float64(c.figures.leftAlone))
}

// Start implements parts.Part.
func (c *Controller) Start(ctx context.Context, _ *snapshot.Snapshot) {
	metrics.MustRegister(declared.Writes)
	collector.Export(ctx, c)
	klog.FromContext(ctx).V(2).Info("Pods have deletion costs")
}

// Close implements parts.Part.
func (c *Controller) Close() {}

// Turn implements parts.Part: it makes the costs of the pods what the policies ask for.
func (c *Controller) Turn(ctx context.Context, read func() *snapshot.Snapshot) (next time.Duration, err error) {
	return c.looks.Turn(ctx, c.now(), read, c.look)
}

func (c *Controller) look(ctx context.Context, cluster *snapshot.Snapshot, unread string) (next time.Duration) {
	now := c.now()
	if unread != "" { // what is not seen may ask for a cost
		var unknown []answer
		for _, a := range newReader(cluster, now).policies {
			unknown = append(unknown, answer{
				policy: a.object, status: metav1.ConditionUnknown, reason: v1alpha1.ReasonSnapshotIncomplete,
				message: unread + " cannot be read: costs stay as they are",
			})
		}
		c.writeAnswers(ctx, unknown, now)
		return retryInterval
	}
	p := planFor(cluster, now)
	next = c.write(ctx, p, now)
	c.mu.Lock()
	c.figures = figures{pods: p.have, waiting: p.waiting(), leftAlone: p.leftAlone}
	c.mu.Unlock()
	return next
}

// allowance bounds the writes. It starts with none, so that a process that ends again and again writes no more.
type allowance struct {
	perMinute int
	at        time.Time
	saved     float64
}

// burst is for how long writes are saved up.
const burst = 10 * time.Second

// take returns true if one more write is allowed now, and otherwise after how long it is.
func (a *allowance) take(now time.Time) (ok bool, wait time.Duration) {
	perSecond := float64(a.perMinute) / 60
	if a.at.IsZero() {
		a.at = now
	}
	a.saved = min(a.saved+now.Sub(a.at).Seconds()*perSecond, max(1, burst.Seconds()*perSecond))
	a.at = now
	if a.saved < 1 {
		return false, time.Duration((1 - a.saved) / perSecond * float64(time.Second))
	}
	a.saved--
	return true, 0
}
