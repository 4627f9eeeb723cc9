package survival

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

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
		New: func(shared parts.Shared) parts.Part {
			return New(shared, Options{Replays: replays, RefreshInterval: refresh})
		},
	}
}

// Start implements parts.Part.
func (c *Controller) Start(ctx context.Context, cluster *snapshot.Snapshot) {
	c.noteReservedZones(cluster)
	c.newRound(cluster)
	metrics.MustRegister(declared.RoundDuration)
	collector.Export(ctx, c)
	klog.FromContext(ctx).V(2).Info("ZoneSurvivals are answered")
}

// Turn implements parts.Part: it renews the answers if the cluster has changed, or if they are old.
func (c *Controller) Turn(ctx context.Context, read func() *snapshot.Snapshot) (next time.Duration, err error) {
	return c.renewAnswers(ctx, read)
}

// Close implements parts.Part.
func (c *Controller) Close() {
	if c.running != nil {
		c.running.stop()
	}
	c.certifier.Close()
	if c.endCopies != nil {
		c.endCopies()
	}
}
