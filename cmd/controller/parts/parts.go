package parts

import (
	"context"
	"math"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/live"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
)

// Part is something that the controller computes and writes. Its methods are called from one goroutine.
type Part interface {
	// Start is called once, before the first turn, with the cluster as it is then.
	Start(ctx context.Context, cluster *snapshot.Snapshot)
	// Turn does what the cluster and the part's meters ask for; it may be nothing. It reads the cluster with read,
	// which costs CPU, and returns after how long it wants its next turn if nothing changes. It may get one before. An
	// error ends the process.
	Turn(ctx context.Context, read func() *snapshot.Snapshot) (next time.Duration, err error)
	// Close is called after the last turn.
	Close()
}

// Worker is a part with work that needs no look at the cluster. It goes on while no part has its turn.
type Worker interface {
	Part
	// Work does a step of the work, if there is any and the part's meters allow it. It returns after how long it
	// wants to do the next one, and whether the part now has something to write at its next turn. An error ends the
	// process.
	Work(ctx context.Context) (next time.Duration, done bool, err error)
}

// Shared is what the parts have in common.
type Shared struct {
	// Client reads and writes the API server.
	Client client.Client
	// Sim is how the scheduler runs on copies of the cluster. What belongs to one snapshot is not set.
	Sim sim.Options
	// CPUFraction is how much of a core the process may use, above 0.
	CPUFraction float64
	// MemoryLimit is how many bytes the process may use, 0 or math.MaxInt64 if there is no limit; see TooLarge.
	MemoryLimit int64
}

// Description says what a part is before it runs.
type Description struct {
	// Name is that of the flag that turns the part on, and Help what the flag does.
	Name, Help string
	// MetricPrefix is that of the names of the part's metrics; empty if it has none.
	MetricPrefix string
	// AddFlags adds the flags of the part, and Validate returns an error that names one that is wrong. They are nil if
	// the part has no flags of its own.
	AddFlags func(*pflag.FlagSet)
	Validate func() error
	// New makes the part.
	New func(Shared) Part
}

// Run gives the parts their turns until ctx ends, and has the workers among them work in between. settle is how long
// after a change they are called, so that changes that belong together are read together. An error is that of ctx or
// of a part, or says that the cluster cannot be read.
func Run(ctx context.Context, cluster *live.Live, parts []Part, settle time.Duration) error {
	if err := cluster.Sync(ctx); err != nil {
		return err
	}
	first := cluster.Snapshot()
	for _, p := range parts {
		p.Start(ctx, first)
		defer p.Close()
	}
	for {
		wait := time.Duration(math.MaxInt64)
		for _, p := range parts {
			next, err := p.Turn(ctx, cluster.Snapshot)
			if err != nil {
				return err
			}
			wait = min(wait, next)
		}
		done, err := work(ctx, parts, cluster.Changed(), wait)
		if err == nil && !done { // what a worker has to write needs no other change
			_, err = work(ctx, parts, nil, settle)
		}
		if err != nil {
			return err
		}
	}
}

// work has the workers work for about so long, by a step at least. If changed is not nil, it ends, also before the
// first step, when something is received from it, and when a worker has something to write, which it reports.
func work(ctx context.Context, parts []Part, changed <-chan struct{}, limit time.Duration) (done bool, err error) {
	for began := time.Now(); ; {
		select { // before a step
		case <-changed:
			return false, nil
		default:
		}
		pause, written := time.Duration(math.MaxInt64), false
		for _, p := range parts {
			w, works := p.(Worker)
			if !works {
				continue
			}
			next, done, err := w.Work(ctx)
			if err != nil {
				return false, err
			}
			pause, written = min(pause, next), written || done
		}
		if written && changed != nil {
			return true, nil
		}
		timer := time.NewTimer(min(pause, limit-time.Since(began)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-changed:
			timer.Stop()
			return false, nil
		case <-timer.C:
		}
		if time.Since(began) >= limit {
			return false, nil
		}
	}
}
