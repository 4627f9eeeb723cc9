package run

import (
	"context"
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// checkLimit is how long statuses and metrics may take to show the expected values; they are updated periodically.
const checkLimit = 20 * time.Second

// checksAt runs the checks of a moment until all are true or the limit has passed.
func (d *demo) checksAt(at check.Moment) func(context.Context) error {
	return func(ctx context.Context) error {
		start := time.Now()
		return d.waitFor(ctx, func() (missing string, err error) {
			e, err := d.evidence(ctx, at)
			if err != nil {
				return "", err
			}
			checks := check.All(e)
			d.state.Store(fmt.Sprintf("%d checks hold", len(checks)))
			if broken := check.Broken(checks); len(broken) > 0 {
				missing = broken[0].Name + ": " + broken[0].Violations[0]
				d.state.Store(fmt.Sprintf("%d of %d checks do not hold", len(broken), len(checks)))
				if time.Since(start) < checkLimit {
					return missing, nil
				}
			}
			d.board.Status, d.board.Moments = e.Status, append(d.board.Moments, moment{at.String(), checks})
			d.board.Median, d.board.Most = e.Metrics.WaitQuantile(0.5), e.Metrics.WaitQuantile(0.99)
			return "", nil
		})
	}
}

// evidence reads everything from the API server, past all caches, and from the scheduler's metrics.
func (d *demo) evidence(ctx context.Context, at check.Moment) (*check.Evidence, error) {
	text, err := d.cluster.SchedulerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	m, err := check.ParseMetrics(text)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Read(ctx, d.cluster.Client, nil)
	if err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	var events eventsv1.EventList
	refusals := client.MatchingFields{"reason": "FailedScheduling"}
	if err := d.cluster.Client.List(ctx, &events, client.InNamespace(workload.ServiceNamespace), refusals); err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	refused := map[types.UID]string{}
	for _, event := range events.Items {
		refused[event.Regarding.UID] = event.Note
	}
	c := census.Take(s)
	return &check.Evidence{
		Moment: at, Plan: d.Plan, Census: c, Status: status.Build(c, ""), Metrics: m,
		Certificates: d.certificates, LostAt: d.lostAt, Refused: refused, Rebalanced: d.rebalanced,
	}, nil
}
