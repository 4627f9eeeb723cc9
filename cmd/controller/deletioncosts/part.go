package deletioncosts

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	declared "zonewise.dev/cmd/controller/deletioncosts/metrics"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/internal/metrics"
)

const (
	// retryInterval is after how long what could not be written is tried again, and idleInterval after how long it is
	// looked if nothing changes.
	retryInterval, idleInterval = 10 * time.Second, 10 * time.Minute
	// share is what part of the controller's budget of CPU goes into looking at the cluster for this.
	share = 0.25
)

// decidingKinds decide which costs the pods have.
var decidingKinds = []string{"nodes", "pods", "zonespreadpolicies.zonewise.dev"}

// Controller keeps the costs. Make one with New.
type Controller struct {
	shared parts.Shared
	looks  parts.Looks
	now    func() time.Time
	// last is the namespace in which a cost was written last. The next look begins with the one after it.
	last string
}

// Describe returns the part.
func Describe() parts.Description {
	return parts.Description{
		Name: "deletion-costs", MetricPrefix: declared.Prefix,
		Help: "give pods deletion costs, so that workloads of ZoneSpreadPolicies with scaleDownPolicy KeepSpread keep " +
			"their spread when they are made smaller",
		New: func(shared parts.Shared) reconcile.Reconciler { return New(shared) },
	}
}

// New returns the part.
func New(shared parts.Shared) *Controller {
	return &Controller{
		shared: shared, looks: shared.NewLooks(share, decidingKinds...), now: time.Now,
	}
}

// Start implements manager.Runnable: the metrics are exported from now on.
func (c *Controller) Start(context.Context) error {
	metrics.MustRegister(declared.Pods, declared.Writes)
	return nil
}

// Reconcile implements reconcile.Reconciler: it makes the costs of the pods what the policies ask for.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return c.looks.Reconcile(ctx, c.now(), c.shared.Read, c.look)
}

func (c *Controller) look(ctx context.Context, cluster *snapshot.Snapshot, unread string) (next time.Duration) {
	if unread != "" { // what is not seen may ask for a cost
		for _, k := range policiesOf(cluster) {
			c.writeCondition(ctx, k.object, metav1.Condition{
				Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSnapshotIncomplete,
				Message: unread + " cannot be read: costs stay as they are",
			})
		}
		return retryInterval
	}
	plans := planNamespaces(cluster)
	done := c.writeCosts(ctx, plans)
	have := 0
	for _, p := range plans {
		have += p.have
		for _, k := range p.policies {
			done = c.writeCondition(ctx, k.object, k.condition()) && done
		}
	}
	declared.Pods.Set(float64(have))
	if !done {
		return retryInterval
	}
	return idleInterval
}
