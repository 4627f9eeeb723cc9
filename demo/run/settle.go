package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/demo/board"
	"zonewise.dev/demo/workload"
)

// settlePoll is how often the watched state is looked at.
const settlePoll = 100 * time.Millisecond

// restless is how long nothing must have been bound when a gang may or may not
// fit, so that only time tells that it will not be placed.
const restless = 5 * time.Second

// unsettled says what is still in motion, "" when nothing is: every pod that
// the workload asks for exists, none is going, none waits that could be
// placed, and every gang that fits is whole.
func (d *demo) unsettled() string {
	nodes, pods := d.seen.lists()
	type role struct{ app, role string }
	replicas := map[role]int{}
	members, boundMembers := map[string]int{}, map[string]int{}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			return fmt.Sprintf("pod %s/%s is going", pod.Namespace, pod.Name)
		}
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		switch pod.Namespace {
		case workload.ServiceNamespace:
			replicas[role{pod.Labels[workload.AppLabel], pod.Labels[workload.RoleLabel]}]++
		case workload.GangNamespace:
			gang := pod.Labels[schedv1alpha1.PodGroupLabel]
			members[gang]++
			if pod.Spec.NodeName != "" {
				boundMembers[gang]++
			}
		}
	}
	for _, s := range d.plan.Services {
		if n := replicas[role{s.App, string(s.Role)}]; n != s.Replicas {
			return fmt.Sprintf("Deployment %s has %d pods of %d", s.Name(), n, s.Replicas)
		}
	}
	uncertain := false
	for _, g := range d.plan.Gangs {
		if n := members[g.Name]; n != g.Members {
			return fmt.Sprintf("gang %s has %d pods of %d", g.Name, n, g.Members)
		}
		if g.Fits && boundMembers[g.Name] < g.Members {
			return fmt.Sprintf("gang %s fits but is not whole: %d of %d bound", g.Name, boundMembers[g.Name], g.Members)
		}
		uncertain = uncertain || (!d.plan.FitsAfterLoss && boundMembers[g.Name] < g.Members)
	}
	if w := board.FindWaiting(nodes, pods, 1); len(w.Placeable) > 0 {
		return fmt.Sprintf("pod %s waits although a node could take it", w.Placeable[0])
	}
	if uncertain && d.seen.quietFor() < restless {
		return "gangs that may or may not fit are being placed"
	}
	return ""
}

// stallAfter is how long something may be in motion although nothing is bound.
// It is longer than the scheduler makes a gang wait between two attempts.
const stallAfter = time.Minute

// settle waits until nothing is in motion. When nothing has been bound for
// stallAfter it says what is missing and gives up waiting: the board, which
// comes in the end, names what is broken better than a time that is up.
func (d *demo) settle(ctx context.Context) error {
	start := time.Now()
	stalled := ""
	err := d.until(ctx, func() string {
		missing := d.unsettled()
		if missing != "" && min(time.Since(start), d.seen.quietFor()) > stallAfter {
			stalled = missing
			return ""
		}
		return missing
	})
	if stalled != "" {
		d.progress.say("\nnothing was bound for %s: %s", stallAfter, stalled)
	}
	return err
}

// until polls the watched state until missing returns "". When the time is up
// the error says what was missing last.
func (d *demo) until(ctx context.Context, missing func() string) error {
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		last := missing()
		if last == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if errors.Is(cause, errTimeout) {
				return fmt.Errorf("%w: %s", cause, last)
			}
			return cause
		case <-ticker.C:
		}
	}
}
