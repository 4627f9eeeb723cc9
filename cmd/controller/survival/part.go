package survival

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
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
				"how many times each loss is replayed, each time in another order; 0 is 3, or fewer of a loss of more "+
					"than 20,000 pods, and in a certificate up to 12 of one of fewer than 800",
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
		New: func(shared parts.Shared) parts.Part {
			return New(shared, Options{Replays: replays, RefreshInterval: refresh})
		},
	}
}

var _ parts.Worker = &Controller{}

// Start implements parts.Part.
func (c *Controller) Start(ctx context.Context, cluster *snapshot.Snapshot) {
	c.noteReservedZones(cluster)
	c.rememberWritten(snapshot.List[*v1alpha1.ZoneSurvival](cluster))
	metrics.MustRegister(declared.RoundDuration)
	collector.Export(ctx, c)
	klog.FromContext(ctx).V(2).Info("ZoneSurvivals are answered")
}

// Turn implements parts.Part: it renews the answers if the cluster has changed, or if they are old.
func (c *Controller) Turn(ctx context.Context, read func() *snapshot.Snapshot) (next time.Duration, err error) {
	return c.renewAnswers(ctx, read)
}

// Work implements parts.Worker: it goes on with the searches for what the answers lack.
func (c *Controller) Work(ctx context.Context) (next time.Duration, done bool, err error) {
	return c.purchases.step(ctx)
}

// Close implements parts.Part.
func (c *Controller) Close() {
	c.certifier.Close()
	c.purchases.close()
}
