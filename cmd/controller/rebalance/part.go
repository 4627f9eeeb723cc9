package rebalance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

const (
	// refreshInterval is the age at which a plan is made again although nothing has changed, and retryInterval after how
	// long a status is written again that could not be.
	refreshInterval, retryInterval = 10 * time.Minute, 15 * time.Second
	// planShare and lookShare are what parts of the controller's budget of CPU go into planning, and into watching
	// moves.
	planShare, lookShare = 0.5, 0.25
	// planLimit is for how long moves are searched at most. The next plan finds the rest.
	planLimit = 10 * time.Minute
)

// Options are those of the part.
type Options struct {
	// Seeds is on how many copies each move is tried; see rebalance.Options.
	Seeds int
	// Replays is in how many orders each loss is replayed with the moves; see rebalance.Options.
	Replays int
}

// Controller plans and moves. Make one with New.
type Controller struct {
	shared  parts.Shared
	options Options
	plans   parts.Meter
	looks   parts.Looks
	now     func() time.Time
	// planned is what the last plan of each ZoneRebalance was about.
	planned map[types.UID]planned
	// replaced are the resource versions of ZoneRebalances that this process has replaced: an object that has one is
	// out of date.
	replaced map[types.UID]map[string]bool
	// tried is whether the members of gangs would be let be evicted, by their PodGroups' UIDs.
	tried map[types.UID]act.Tried

	mu     sync.Mutex // guards status
	status map[string]v1alpha1.ZoneRebalance
}

// planned is what a plan was about, and when it was made.
type planned struct {
	question string
	at       time.Time
}

// New returns the part.
func New(shared parts.Shared, options Options) *Controller {
	return &Controller{
		shared: shared, options: options, plans: shared.NewMeter(planShare),
		looks: shared.NewLooks("rebalance", lookShare), now: time.Now,
		planned: map[types.UID]planned{}, replaced: map[types.UID]map[string]bool{}, tried: map[types.UID]act.Tried{},
		status: map[string]v1alpha1.ZoneRebalance{},
	}
}

// Describe returns the part.
func Describe() parts.Description {
	var seeds, replays int
	return parts.Description{
		Name: "rebalance", Help: "plan the moves of ZoneRebalances, and make them where their mode is Evict",
		MetricPrefix: declared.Prefix,
		AddFlags: func(set *pflag.FlagSet) {
			set.IntVar(
				&seeds, "rebalance-seeds", rebalance.DefaultSeeds,
				"on how many copies of the cluster, which differ in what a scheduler leaves to chance, each move is tried",
			)
			set.IntVar(
				&replays, "rebalance-replays", 0,
				"in how many orders the losses of ZoneSurvivals are replayed with the moves of a plan; "+
					"0 chooses by the number of displaced pods",
			)
		},
		Validate: func() error {
			if replays < 0 {
				return fmt.Errorf("--rebalance-replays: must not be negative, got %d", replays)
			}
			if seeds < 1 || seeds > 20 {
				return fmt.Errorf("--rebalance-seeds: must be from 1 to 20, got %d", seeds)
			}
			return nil
		},
		New: func(shared parts.Shared) parts.Part { return New(shared, Options{Seeds: seeds, Replays: replays}) },
	}
}

var _ parts.Part = &Controller{}

var collector = metrics.NewCollector((*Controller).collect, declared.Excess, declared.Moves, declared.Stopped)

// collect sends the figures of the statuses.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.status {
		r := c.status[name]
		states := map[v1alpha1.RebalanceMoveState]int{}
		for _, state := range []v1alpha1.RebalanceMoveState{
			v1alpha1.MovePlanned, v1alpha1.MoveEvicting, v1alpha1.MoveEvicted, v1alpha1.MoveMoved,
			v1alpha1.MoveRefused, v1alpha1.MoveFailed,
		} {
			states[state] = 0
		}
		for i := range r.Status.Moves {
			states[r.Status.Moves[i].State]++
		}
		for state, moves := range states {
			send(declared.Moves, float64(moves), name, string(state))
		}
		if !r.Status.PlannedAt.IsZero() {
			send(declared.Excess, float64(r.Status.Before.Excess), name)
		}
		stopped := 0.0
		if act.Stopped(&r, c.now()) || act.GangsStopped(&r, c.now()) {
			stopped = 1
		}
		send(declared.Stopped, stopped, name)
	}
}

// Start implements parts.Part.
func (c *Controller) Start(ctx context.Context, cluster *snapshot.Snapshot) {
	c.show(snapshot.List[*v1alpha1.ZoneRebalance](cluster))
	metrics.MustRegister(declared.Evictions, declared.PlanDuration)
	collector.Export(ctx, c)
	klog.FromContext(ctx).V(2).Info("ZoneRebalances are planned")
}

// Close implements parts.Part.
func (c *Controller) Close() {}

// show makes the statuses those that the metrics are about, and forgets what there is no more.
func (c *Controller) show(all []*v1alpha1.ZoneRebalance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = map[string]v1alpha1.ZoneRebalance{}
	known := map[types.UID]bool{}
	for _, r := range all {
		c.status[r.Name], known[r.UID] = *r.DeepCopy(), true
	}
	maps.DeleteFunc(c.planned, func(uid types.UID, _ planned) bool { return !known[uid] })
	maps.DeleteFunc(c.replaced, func(uid types.UID, _ map[string]bool) bool { return !known[uid] })
}

// Turn implements parts.Part: it follows the moves that are under way, and plans and begins others.
func (c *Controller) Turn(ctx context.Context, read func() *snapshot.Snapshot) (next time.Duration, err error) {
	return c.looks.Turn(ctx, c.now(), read, c.serveAll)
}

// serveAll does the next thing about each ZoneRebalance, and returns after how long to look again.
func (c *Controller) serveAll(ctx context.Context, cluster *snapshot.Snapshot, _ string) (next time.Duration) {
	all := snapshot.List[*v1alpha1.ZoneRebalance](cluster)
	c.show(all)
	next = refreshInterval
	if len(all) == 0 {
		return next
	}
	l := c.newLook(cluster, all)
	defer l.close()
	slices.SortFunc(all, func(a, b *v1alpha1.ZoneRebalance) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		if all[i].DeletionTimestamp != nil {
			continue
		}
		all[i] = all[i].DeepCopy() // those that come after it see what it does
		wait, err := l.serve(ctx, all[i])
		if err != nil {
			return 0 // the process ends
		}
		next = min(next, wait)
	}
	return next
}
