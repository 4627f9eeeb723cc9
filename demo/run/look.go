package run

import (
	"context"
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// lookLimit is how long statuses and metrics may take to show the expected values; they are updated periodically.
const lookLimit = 20 * time.Second

// looks runs the checks of a moment until all are true or the limit has passed.
func (d *demo) looks(at check.Moment) func(context.Context) error {
	return func(ctx context.Context) error {
		for start, serial := time.Now(), 0; ; serial++ {
			if err := d.probe(ctx, fmt.Sprintf("probe-%d-%d", at, serial)); err != nil {
				return err
			}
			e, err := d.evidence(ctx, at)
			if err != nil {
				return err
			}
			checks := check.All(e)
			d.state.Store(fmt.Sprintf("%d checks hold", len(checks)))
			if broken := check.Broken(checks); len(broken) > 0 {
				first := broken[0].Name + ": " + broken[0].Violations[0]
				d.state.Store(fmt.Sprintf("%d of %d checks do not hold, the first: %s", len(broken), len(checks), first))
				if time.Since(start) < lookLimit {
					continue
				}
			}
			d.board.Status, d.board.Moments = e.Status, append(d.board.Moments, moment{at.String(), checks})
			d.board.Median, d.board.Most = e.Metrics.Waited(0.5), e.Metrics.Waited(0.99)
			return nil
		}
	}
}

// evidence reads everything from the API server, past all caches, and from the scheduler's metrics.
func (d *demo) evidence(ctx context.Context, at check.Moment) (*check.Evidence, error) {
	m, err := d.metrics(ctx)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Read(ctx, d.cluster.Client, nil)
	if err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	e := &check.Evidence{Moment: at, Plan: d.Plan, Census: census.Take(s), Metrics: m, LostAt: d.lostAt, Refused: map[types.UID]string{}}
	e.Status = status.Build(e.Census, "")
	var events eventsv1.EventList
	refusals := client.MatchingFields{"reason": "FailedScheduling"}
	if err := d.cluster.Client.List(ctx, &events, client.InNamespace(workload.ServiceNamespace), refusals); err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	for _, event := range events.Items {
		e.Refused[event.Regarding.UID] = event.Note
	}
	return e, nil
}

func (d *demo) metrics(ctx context.Context) (check.Metrics, error) {
	text, err := d.cluster.SchedulerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	return check.ParseMetrics(text)
}

// probe places and removes a pod without requests: the ledger is compared with the snapshot in scheduling cycles.
func (d *demo) probe(ctx context.Context, name string) error {
	pod := workload.Probe(name)
	if err := d.cluster.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a probe: %w", err)
	}
	err := d.until(ctx, func(c *census.Census) string {
		if p := c.Find(pod.Namespace, name); p == nil || p.Waits() {
			return "the probe " + name + " is not bound"
		}
		return ""
	})
	if err != nil {
		return err
	}
	if err := d.cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove a probe: %w", err)
	}
	return d.until(ctx, func(c *census.Census) string {
		if c.Find(pod.Namespace, name) != nil {
			return "the probe " + name + " is not gone"
		}
		return ""
	})
}
