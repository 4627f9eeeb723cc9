package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/demo/workload"
)

// census counts the cluster as it is known now.
func (d *demo) census() *census.Census { return census.Take(d.live.Snapshot()) }

// tally counts the bound pods, also by zone, and the waiting ones.
func tally(c *census.Census) (bound, waiting int, zones string) {
	count := map[string]int{}
	for _, p := range c.Pods {
		if p.On == nil {
			waiting++
		} else {
			bound++
			count[p.On.Zone]++
		}
	}
	for _, zone := range workload.Zones {
		zones += fmt.Sprintf(" %s %d", zone, count[zone])
	}
	return bound, waiting, strings.TrimSpace(zones)
}

// readyNodes counts the nodes that are ready and have no taint of an unready node.
func readyNodes(c *census.Census) int {
	ready := 0
	for _, n := range c.Nodes {
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") })
		if census.Ready(n.Node) && !tainted {
			ready++
		}
	}
	return ready
}

// unsettled says what is still in progress, or "". Nothing is when all pods that fit run, and all others have been tried.
func (d *demo) unsettled(c *census.Census) string {
	for _, pod := range snapshot.List[*corev1.Pod](c.Snapshot) {
		if pod.DeletionTimestamp != nil {
			return fmt.Sprintf("pod %s/%s is going", pod.Namespace, pod.Name)
		}
	}
	placed := map[string]int{} // by workload
	for _, p := range c.Pods {
		refused := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
		if !p.Waits() || refused && p.Namespace == workload.BatchNamespace {
			placed[c.Workload(p.Pod)]++
		}
	}
	deployments := snapshot.List[*appsv1.Deployment](c.Snapshot)
	if len(deployments) != d.deployments {
		return fmt.Sprintf("%d of %d Deployments are known", len(deployments), d.deployments)
	}
	for _, deployment := range deployments {
		name, want := deployment.Namespace+"/"+deployment.Name, int(*deployment.Spec.Replicas)
		switch s, placed := &deployment.Status, placed["Deployment "+name]; {
		case placed != want:
			return fmt.Sprintf("%d of %d pods of %s are placed", placed, want, name)
		case deployment.Namespace == workload.ServiceNamespace && int(s.AvailableReplicas) != want:
			return fmt.Sprintf("%d of %d pods of %s are available", s.AvailableReplicas, want, name)
		}
	}
	for _, planned := range d.Plan.Gangs {
		g := c.Gang(workload.GangNamespace + "/" + planned.Name)
		switch {
		case g == nil || len(g.Members) != planned.Members:
			return fmt.Sprintf("gang %s does not have its %d pods", planned.Name, planned.Members)
		case planned.Fits && g.Missing() > 0:
			return fmt.Sprintf("gang %s is not whole: %d of %d bound", planned.Name, g.Bound, g.MinMember())
		}
	}
	return ""
}

// stallLimit is how long something may be in progress while no pod is bound. It is longer than a gang's longest backoff.
const stallLimit = time.Minute

// settle waits until nothing is in progress. If no pod has been bound for stallLimit, it says what is missing and stops
// waiting: the checks, which come next, say better what is wrong than a timeout.
func (d *demo) settle(ctx context.Context) error {
	last, since, stalled := -1, time.Now(), ""
	err := d.until(ctx, func(c *census.Census) (string, error) {
		if bound, _, _ := tally(c); bound != last {
			last, since = bound, time.Now()
		}
		missing := d.unsettled(c)
		if missing != "" && time.Since(since) > stallLimit {
			stalled, missing = missing, ""
		}
		return missing, nil
	})
	if stalled != "" {
		d.say("\nnothing was bound for %s: %s", stallLimit, stalled)
	}
	return err
}

// until counts the cluster several times a second until missing returns "" or an error.
func (d *demo) until(ctx context.Context, missing func(*census.Census) (string, error)) error {
	return poll(ctx, func() (string, error) { return missing(d.census()) })
}

// poll calls missing several times a second until it returns "" or an error. On timeout the error says what was missing last.
func poll(ctx context.Context, missing func() (string, error)) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		last, err := missing()
		if last == "" || err != nil {
			return err
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
