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
	"k8s.io/apimachinery/pkg/util/wait"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/demo/workload"
)

// census counts the cluster as it is known now.
func (d *demo) census() *census.Census { return census.Take(d.live.Snapshot()) }

// countPods counts the bound pods, also by zone, and the waiting ones.
func countPods(c *census.Census) (bound, waiting int, zones string) {
	var byZone []string
	for _, zone := range c.ZoneRooms() {
		bound += zone.Pods
		byZone = append(byZone, fmt.Sprintf("%s %d", zone.Zone, zone.Pods))
	}
	return bound, len(c.Pods) - bound, strings.Join(byZone, " ")
}

// readyNodes counts the nodes that are ready and have no taint of an unready node.
func readyNodes(c *census.Census) int {
	ready := 0
	for _, n := range c.Nodes {
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") })
		if nodeutil.IsNodeReady(n.Node) && !tainted {
			ready++
		}
	}
	return ready
}

// unsettled says what is waited for, or "". Nothing is when all pods that fit run, and all others have been
// tried.
func (d *demo) unsettled(c *census.Census) string {
	for _, pod := range snapshot.List[*corev1.Pod](c.Snapshot) {
		if pod.DeletionTimestamp != nil {
			return fmt.Sprintf("pod %s/%s to end", pod.Namespace, pod.Name)
		}
	}
	available := 0 // replicas, with those that may wait
	for _, p := range c.Pods {
		mayWait := p.Namespace == workload.ServiceNamespace && p.Labels[workload.AppLabel] == d.mayWait
		switch tried := census.Refusal(p.Pod).Status == corev1.ConditionFalse; {
		case !p.Waits() || p.Namespace == workload.GangNamespace:
		case tried && mayWait:
			available++
		case !tried || p.Namespace != workload.BatchNamespace:
			return fmt.Sprintf("a node for pod %s", p.Key())
		}
	}
	for _, deployment := range snapshot.List[*appsv1.Deployment](c.Snapshot) {
		if deployment.Namespace == workload.ServiceNamespace {
			available += int(deployment.Status.AvailableReplicas)
		}
	}
	replicas, workers, want := len(c.PodsIn(workload.ServiceNamespace)), len(c.PodsIn(workload.BatchNamespace)), d.Plan.Replicas()
	if replicas != want || available != want || workers != d.workers {
		return fmt.Sprintf("%d replicas: %d exist, %d are available; %d batch workers: %d exist", want, replicas, available, d.workers, workers)
	}
	for _, planned := range d.Plan.Gangs {
		g := c.Gang(planned.Key())
		switch {
		case g == nil || len(g.Members) != planned.Members:
			return fmt.Sprintf("the %d pods of gang %s to exist", planned.Members, planned.Name)
		case planned.Fits && g.Missing() > 0:
			return fmt.Sprintf("gang %s to be whole: %d of %d are bound", planned.Name, g.Bound, g.MinMember())
		}
	}
	return ""
}

// stallLimit is how long something may be in progress while no pod is bound. It is longer than a gang's longest
// backoff.
const stallLimit = time.Minute

// awaitSettled waits until nothing is in progress. If no pod has been bound for stallLimit, it says what is missing and
// stops waiting: the checks, which come next, say better what is wrong than a timeout.
func (d *demo) awaitSettled(ctx context.Context) error {
	last, since, stalled := -1, time.Now(), ""
	err := d.waitFor(ctx, func() (string, error) {
		c := d.census()
		if bound, _, _ := countPods(c); bound != last {
			last, since = bound, time.Now()
		}
		missing := d.unsettled(c)
		if missing != "" && time.Since(since) > stallLimit {
			stalled, missing = missing, ""
		}
		return missing, nil
	})
	if stalled != "" {
		d.printLine("\nnothing was bound for %s, while this was waited for: %s", stallLimit, stalled)
	}
	return err
}

// waitFor calls missing several times a second until it returns "" or an error. What it returns, a noun, is shown as
// what the phase waits for, and on timeout the error has it.
func (d *demo) waitFor(ctx context.Context, missing func() (string, error)) error {
	defer d.waiting.Store("")
	last := ""
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (done bool, err error) {
		last, err = missing()
		d.waiting.Store(last)
		return last == "", err
	})
	if cause := context.Cause(ctx); last != "" && errors.Is(cause, errTimeout) {
		return fmt.Errorf("%w: it waited for %s", cause, last)
	}
	return err
}
