package rebalance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/internal/metrics"
	"zonewise.dev/rebalance"
	"zonewise.dev/rebalance/act"
)

const (
	// refreshInterval is the age at which moves are searched again although as many pods as before are too many, and
	// retryInterval after how long a status is written again that could not be.
	refreshInterval, retryInterval = 10 * time.Minute, 15 * time.Second
	// stayInterval is after how long it is looked again whether pods still have to stay, such as those that have just
	// become ready.
	stayInterval = time.Minute
	// searchShare and lookShare are what parts of the controller's budget of CPU go into searching moves, and into
	// looks.
	searchShare, lookShare = 0.5, 0.25
)

// Options are those of the part.
type Options struct {
	// Seeds is how often each move is tried, ReadyFor how long a pod has to be ready before it is moved; see
	// rebalance.Options.
	Seeds    int
	ReadyFor time.Duration
}

// Controller searches and makes moves. Make one with New.
type Controller struct {
	shared   parts.Shared
	options  Options
	searches parts.Meter
	looks    parts.Looks
	now      func() time.Time
	// refused are moves that a copy has refused, by ZoneRebalance, and when: the next searches try them last.
	refused map[types.UID]map[rebalance.Refused]time.Time
	// planning is the search of a whole plan that is under way, nil if there is none.
	planning *planning
	// replaced are the resource versions of ZoneRebalances that this process has replaced: an object that has one is
	// out of date.
	replaced map[types.UID]map[string]bool

	mu     sync.Mutex // guards status
	status map[string]v1alpha1.ZoneRebalance
}

// New returns the part.
func New(shared parts.Shared, options Options) *Controller {
	return &Controller{
		shared: shared, options: options, searches: shared.NewMeter(searchShare),
		looks: shared.NewLooks(lookShare), now: time.Now,
		refused: map[types.UID]map[rebalance.Refused]time.Time{}, replaced: map[types.UID]map[string]bool{},
		status: map[string]v1alpha1.ZoneRebalance{},
	}
}

// Describe returns the part.
func Describe() parts.Description {
	var options Options
	return parts.Description{
		Name: "rebalance", Help: "show the moves of ZoneRebalances, and make them where their mode is Evict",
		MetricPrefix: declared.Prefix,
		AddFlags: func(set *pflag.FlagSet) {
			set.IntVar(
				&options.Seeds, "rebalance-seeds", rebalance.DefaultSeeds,
				"how often each move is tried on a copy of the cluster, with different seeds for what a scheduler leaves to chance",
			)
			set.DurationVar(
				&options.ReadyFor, "rebalance-ready-for", rebalance.DefaultReadyFor,
				"how long a pod has to be ready before it is moved",
			)
		},
		Validate: func() error {
			switch {
			case options.Seeds < 1 || options.Seeds > 20:
				return fmt.Errorf("--rebalance-seeds: must be from 1 to 20, got %d", options.Seeds)
			case options.ReadyFor < 0:
				return fmt.Errorf("--rebalance-ready-for: must not be below 0, got %s", options.ReadyFor)
			}
			return nil
		},
		New: func(shared parts.Shared) reconcile.Reconciler { return New(shared, options) },
	}
}

var collector = metrics.NewCollector((*Controller).collect, declared.Excess, declared.Moves, declared.Stopped)

// moveStates are those of moves that have begun.
var moveStates = []v1alpha1.RebalanceMoveState{
	v1alpha1.MoveEvicting, v1alpha1.MoveEvicted, v1alpha1.MoveMoved, v1alpha1.MoveNotNeeded, v1alpha1.MoveNotEvicted,
	v1alpha1.MoveBudgetExhausted, v1alpha1.MoveRefused, v1alpha1.MoveNotBound, v1alpha1.MoveNotReady,
	v1alpha1.MoveNotBetter, v1alpha1.MoveUndone,
}

// collect sends the figures of the statuses.
func (c *Controller) collect(send metrics.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.status {
		r := c.status[name]
		moves := map[v1alpha1.RebalanceMoveState]int{}
		for i := range r.Status.Moves {
			moves[r.Status.Moves[i].State]++
		}
		for _, state := range moveStates {
			send(declared.Moves, float64(moves[state]), name, string(state))
		}
		send(declared.Moves, float64(r.Status.Planned), name, "Planned")
		send(declared.Excess, float64(r.Status.Excess), name)
		stopped := 0.0
		if end, _ := act.StoppedUntil(&r); c.now().Before(end) {
			stopped = 1
		}
		send(declared.Stopped, stopped, name)
	}
}

// Start implements manager.Runnable: the metrics are exported until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	metrics.MustRegister(declared.Evictions, declared.SearchDuration)
	collector.Export(ctx, c)
	return nil
}

// show makes the statuses those that the metrics are about, and forgets what there is no more.
func (c *Controller) show(all []*v1alpha1.ZoneRebalance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = map[string]v1alpha1.ZoneRebalance{}
	known := map[types.UID]bool{}
	for _, r := range all {
		c.status[r.Name], known[r.UID] = *r.DeepCopy(), true
	}
	if c.planning != nil && !known[c.planning.of] {
		c.endPlanning(c.planning.of)
	}
	maps.DeleteFunc(c.refused, func(uid types.UID, _ map[rebalance.Refused]time.Time) bool { return !known[uid] })
	maps.DeleteFunc(c.replaced, func(uid types.UID, _ map[string]bool) bool { return !known[uid] })
}

// Reconcile implements reconcile.Reconciler. A look does the next thing about each ZoneRebalance, a step is one of the
// search of a whole plan.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request == parts.Step {
		return c.shared.AfterStep(c.step(ctx))
	}
	result, err := c.looks.Reconcile(ctx, c.now(), c.shared.Read, func(ctx context.Context, cluster *snapshot.Snapshot, _ string) time.Duration {
		return c.serveAll(ctx, cluster)
	})
	if c.planning.isUnderWay() {
		c.shared.Wake(parts.Step)
	}
	return result, err
}

// serveAll does the next thing about each ZoneRebalance, and returns after how long to look again.
func (c *Controller) serveAll(ctx context.Context, cluster *snapshot.Snapshot) (next time.Duration) {
	all := snapshot.List[*v1alpha1.ZoneRebalance](cluster)
	c.show(all)
	all = slices.DeleteFunc(all, func(r *v1alpha1.ZoneRebalance) bool { return r.DeletionTimestamp != nil })
	next = refreshInterval
	if len(all) == 0 {
		return next
	}
	slices.SortFunc(all, func(a, b *v1alpha1.ZoneRebalance) int {
		return cmp.Or(a.Status.SearchedAt.Compare(b.Status.SearchedAt.Time), strings.Compare(a.Name, b.Name))
	})
	l := c.newLook(cluster, all)
	for i := range all {
		all[i] = all[i].DeepCopy() // those that come after it see what it does
		next = min(next, l.serve(ctx, all[i]))
	}
	return next
}
