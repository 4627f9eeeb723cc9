package survival

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/internal/metrics"
)

// Describe returns the part.
func Describe() parts.Description {
	var replays int
	var refresh time.Duration
	return parts.Description{
		Name: "survival", Help: "answer ZoneSurvivals, and keep the ZoneReservations of those with hold",
		MetricPrefix: declared.Prefix,
		AddFlags: func(set *pflag.FlagSet) {
			set.IntVar(
				&replays, "replays", 0,
				"how many times each loss is replayed in each of its two forms, each time in another order; 0 is 2, or 1 "+
					"of a loss of more than 15,000 pods, and up to 6 of one of fewer than 600",
			)
			set.DurationVar(
				&refresh, "refresh-interval", 10*time.Minute,
				"the age at which the answer of a ZoneSurvival is computed again although nothing has changed",
			)
		},
		Validate: func() error {
			switch {
			case replays < 0 || replays > 100:
				return fmt.Errorf("--replays: must be from 0 to 100, got %d", replays)
			case refresh <= 0:
				return fmt.Errorf("--refresh-interval: must be above 0, got %s", refresh)
			}
			return nil
		},
		New: func(shared parts.Shared) reconcile.Reconciler {
			return New(shared, Options{Replays: replays, RefreshInterval: refresh})
		},
	}
}

// Start implements manager.Runnable: the metrics are exported until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	metrics.MustRegister(declared.RoundDuration)
	collector.Export(ctx, c)
	return nil
}

// Reconcile implements reconcile.Reconciler. A look renews the answers if the cluster has changed, or if they are old;
// a step is one of the full round that runs.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request == parts.Step {
		return c.shared.AfterStep(c.step(ctx))
	}
	next, err := c.renewAnswers(ctx)
	if c.running != nil {
		c.shared.Wake(parts.Step)
	}
	return reconcile.Result{RequeueAfter: next}, err
}
