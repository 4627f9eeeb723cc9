package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// story runs the phases, and the checks in between.
func (d *demo) story(ctx context.Context) error {
	zone := d.plan.LostZone()
	for _, s := range []struct {
		name            string
		do              func(context.Context) error
		status, outcome func() string
	}{
		{fmt.Sprintf("create %d nodes", len(d.plan.Nodes)), d.createNodes, d.nodeStatus, d.nodeOutcome},
		{"services and gangs arrive", d.arrive, d.placeStatus, d.placeOutcome},
		{"batch work fills the rest", d.fill, d.placeStatus, d.placeOutcome},
		{"check: " + check.Before.Title(zone), d.looks(check.Before), d.lookStatus, d.lookOutcome},
		{"lose " + zone, d.lose, d.placeStatus, d.placeOutcome},
		{"check: " + check.Lost.Title(zone), d.looks(check.Lost), d.lookStatus, d.lookOutcome},
		{zone + " returns", d.bringBack, d.placeStatus, d.placeOutcome},
		{"roll every service out again", d.rollOut, d.placeStatus, d.placeOutcome},
		{"check: " + check.Back.Title(zone), d.looks(check.Back), d.lookStatus, d.lookOutcome},
	} {
		if err := d.phase(ctx, s.name, s.do, s.status, s.outcome); err != nil {
			return err
		}
	}
	return nil
}

// createNodes creates the nodes and waits until all accept pods.
func (d *demo) createNodes(ctx context.Context) error {
	err := each(ctx, d.plan.Nodes, func(ctx context.Context, n workload.Node) error {
		return d.cluster.Client.Create(ctx, n.Object())
	})
	if err != nil {
		return err
	}
	return d.untilReady(ctx)
}

// untilReady waits until all nodes accept pods.
func (d *demo) untilReady(ctx context.Context) error {
	return until(ctx, func() string {
		if ready := d.readyNodes(); ready < len(d.plan.Nodes) {
			return fmt.Sprintf("%d of %d nodes take pods", ready, len(d.plan.Nodes))
		}
		return ""
	})
}

// arrive creates the services and gangs: first the policy and the reservation, then the gang that cannot fit, so that
// everything else must be placed past it, and the other gangs among the services.
func (d *demo) arrive(ctx context.Context) error {
	for _, name := range []string{workload.ServiceNamespace, workload.GangNamespace, workload.BatchNamespace} {
		if err := d.cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := errors.Join(d.cluster.Client.Create(ctx, d.plan.Policy()), d.cluster.Client.Create(ctx, d.plan.Reservation())); err != nil {
		return err
	}
	if err := d.accepted(ctx); err != nil {
		return err
	}
	d.deployments = len(d.plan.Services)
	gangs := slices.Clone(d.plan.Gangs)
	slices.Reverse(gangs) // the one that cannot fit is the last
	stride := len(d.plan.Order)/len(gangs) + 1
	for services := range slices.Chunk(d.plan.Order, stride) {
		if len(gangs) > 0 {
			if err := errors.Join(d.cluster.Client.Create(ctx, gangs[0].PodGroup()), d.cluster.Client.Create(ctx, gangs[0].StatefulSet())); err != nil {
				return err
			}
			gangs = gangs[1:]
		}
		err := each(ctx, services, func(ctx context.Context, i int) error {
			return d.cluster.Client.Create(ctx, d.plan.Deployment(d.plan.Services[i]))
		})
		if err != nil {
			return err
		}
	}
	return d.settle(ctx)
}

// accepted waits until the scheduler has read the policy and the reservation, and holds all slots.
func (d *demo) accepted(ctx context.Context) error {
	var policy v1alpha1.ZoneSpreadPolicy
	var reservation v1alpha1.ZoneReservation
	var fault error
	err := until(ctx, func() string {
		fault = errors.Join(
			d.cluster.Client.Get(ctx, client.ObjectKeyFromObject(d.plan.Policy()), &policy),
			d.cluster.Client.Get(ctx, client.ObjectKeyFromObject(d.plan.Reservation()), &reservation))
		switch {
		case fault != nil:
			return "" // waiting does not help
		case !meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionAccepted):
			return "the ZoneSpreadPolicy is not accepted"
		case !meta.IsStatusConditionTrue(reservation.Status.Conditions, v1alpha1.ConditionReady):
			return "the ZoneReservation is not ready"
		}
		return ""
	})
	return errors.Join(err, fault)
}

// fill creates the batch workers.
func (d *demo) fill(ctx context.Context) error {
	if err := d.cluster.Client.Create(ctx, d.plan.Batch()); err != nil {
		return err
	}
	d.deployments++
	return d.settle(ctx)
}

// lose takes the zone away: its kubelets are killed, and its nodes are marked at once as node-lifecycle-controller would
// mark them after its grace period. From then on the controllers do what they do in a real outage. Pods that the taint
// eviction deletes stay, since no kubelet finishes them, until they are removed by force, as an operator would.
func (d *demo) lose(ctx context.Context) error {
	zone := d.plan.LostZone()
	d.lostAt = time.Now()
	d.cluster.StopKubelets(zone)
	err := each(ctx, d.nodesOf(zone), func(ctx context.Context, n corev1.Node) error {
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown",`+
			`"message":"Kubelet stopped posting node status.","lastTransitionTime":%q}]}}`, d.lostAt.UTC().Format(time.RFC3339))
		return d.cluster.Client.Status().Patch(ctx, &n, client.RawPatch(types.StrategicMergePatchType, patch))
	})
	if err != nil {
		return fmt.Errorf("the nodes' status: %w", err)
	}
	forced := map[types.UID]bool{}
	var fault error
	err = until(ctx, func() string {
		left := 0
		var going []corev1.Pod
		for _, pod := range d.seen.pods() {
			if d.zones[pod.Spec.NodeName] != zone {
				continue
			}
			left++
			if pod.DeletionTimestamp != nil && !forced[pod.UID] {
				forced[pod.UID] = true
				going = append(going, pod)
			}
		}
		if fault = each(ctx, going, d.forceDelete); fault != nil {
			return ""
		}
		if left > 0 {
			return fmt.Sprintf("%d pods are on the nodes of %s", left, zone)
		}
		return ""
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	return d.settle(ctx)
}

// forceDelete removes a pod that no kubelet finishes.
func (d *demo) forceDelete(ctx context.Context, pod corev1.Pod) error {
	err := d.cluster.Client.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To(pod.UID)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// bringBack starts the zone's kubelets again and waits until all nodes accept pods and the batch work that fits is bound.
func (d *demo) bringBack(ctx context.Context) error {
	if err := d.cluster.StartKubelets(d.plan.LostZone()); err != nil {
		return err
	}
	if err := d.untilReady(ctx); err != nil {
		return err
	}
	return d.settle(ctx)
}

// rollOut replaces the pods of every service, as its next release would. Running pods are never moved, so this spreads a
// service over all zones again.
func (d *demo) rollOut(ctx context.Context) error {
	patch := client.RawPatch(types.StrategicMergePatchType, workload.RolloutPatch("2"))
	err := each(ctx, d.plan.Order, func(ctx context.Context, i int) error {
		return d.cluster.Client.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: workload.ServiceNamespace, Name: d.plan.Services[i].Name()}}, patch)
	})
	if err != nil {
		return err
	}
	return d.settle(ctx)
}

// lookLimit is how long statuses and metrics may take to show the expected values; they are updated periodically.
const lookLimit = 20 * time.Second

// looks runs the checks of a moment until all are true or the limit has passed.
func (d *demo) looks(at check.Moment) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := snapshot.NewClient(d.cluster.Config)
		if err != nil {
			return err
		}
		d.waitsFor.Store("")
		for start, serial := time.Now(), 0; ; serial++ {
			if err := d.probe(ctx, fmt.Sprintf("probe-%d-%d", at, serial)); err != nil {
				return err
			}
			evidence, err := d.evidence(ctx, c, at)
			if err != nil {
				return err
			}
			checks := check.All(evidence)
			broken := check.Broken(checks)
			if len(broken) > 0 {
				d.waitsFor.Store(broken[0].Name + ": " + broken[0].Violations[0])
			}
			if len(broken) == 0 || time.Since(start) > lookLimit {
				d.board.Moments = append(d.board.Moments, moment{at.Title(d.plan.LostZone()), checks})
				return nil
			}
		}
	}
}

// lookStatus says what the checks wait for.
func (d *demo) lookStatus() string {
	text, _ := d.waitsFor.Load().(string)
	return text
}

// lookOutcome says how the last checks came out.
func (d *demo) lookOutcome() string {
	last := d.board.Moments[len(d.board.Moments)-1]
	if broken := check.Broken(last.Checks); len(broken) > 0 {
		return fmt.Sprintf("%d of %d checks do not hold, the first: %s: %s", len(broken), len(last.Checks), broken[0].Name, broken[0].Violations[0])
	}
	return fmt.Sprintf("%d checks hold", len(last.Checks))
}

// evidence reads everything from the API server, past all caches, and from the scheduler's metrics.
func (d *demo) evidence(ctx context.Context, c client.Client, at check.Moment) (*check.Evidence, error) {
	text, err := d.cluster.SchedulerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := check.ParseMetrics(text)
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Read(ctx, c, nil)
	if err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	counted := census.Take(s)
	e := &check.Evidence{Moment: at, Plan: d.plan, Census: counted, Status: status.Build(counted, ""), Metrics: metrics}
	if at != check.Lost {
		return e, nil
	}
	var events eventsv1.EventList
	if err := d.cluster.Client.List(ctx, &events, client.InNamespace(workload.ServiceNamespace), client.MatchingFields{"reason": "FailedScheduling"}); err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	refused := map[types.UID][]string{}
	for _, event := range events.Items {
		refused[event.Regarding.UID] = append(refused[event.Regarding.UID], event.Note)
	}
	service := d.plan.The(workload.Reserved)
	e.Displaced = displaced(d.seen.livesSince(d.lostAt, created), service.App, string(service.Role), refused)
	return e, nil
}

// probe places and removes a pod without requests: the ledger is compared with the snapshot in scheduling cycles.
func (d *demo) probe(ctx context.Context, name string) error {
	pod := workload.Probe(name)
	if err := d.cluster.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a probe: %w", err)
	}
	key := client.ObjectKeyFromObject(pod)
	err := until(ctx, func() string {
		var seen corev1.Pod
		if err := d.seen.reader.Get(ctx, key, &seen); err != nil || seen.Spec.NodeName == "" {
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
	return until(ctx, func() string {
		if err := d.seen.reader.Get(ctx, key, &corev1.Pod{}); apierrors.IsNotFound(err) {
			return ""
		}
		return "the probe " + name + " is not gone"
	})
}

// unsettled says what is still in progress, or "". Nothing is when all pods that fit run, and all others have been tried.
func (d *demo) unsettled() string {
	type service struct{ namespace, app, role string }
	running, members, others := map[service]int{}, map[string]int{}, map[string]int{}
	for _, pod := range d.seen.pods() {
		switch {
		case pod.DeletionTimestamp != nil:
			return fmt.Sprintf("pod %s/%s is going", pod.Namespace, pod.Name)
		case pod.Namespace == workload.GangNamespace:
			gang := pod.Labels[schedv1alpha1.PodGroupLabel]
			others[gang]++
			if pod.Spec.NodeName != "" {
				members[gang]++
			}
		case pod.Spec.NodeName != "" || pod.Namespace == workload.BatchNamespace && refusedOnce(&pod):
			app, role := appOf(&pod)
			running[service{pod.Namespace, app, role}]++
		}
	}
	deployments := list(d.seen, &appsv1.DeploymentList{}).Items
	if len(deployments) != d.deployments {
		return fmt.Sprintf("%d of %d Deployments are known", len(deployments), d.deployments)
	}
	for _, deployment := range deployments {
		want := int(*deployment.Spec.Replicas)
		of := service{deployment.Namespace, deployment.Labels[workload.AppLabel], deployment.Labels[workload.RoleLabel]}
		switch s := &deployment.Status; {
		case running[of] != want:
			return fmt.Sprintf("%d of %d pods of %s are placed", running[of], want, deployment.Name)
		case s.ObservedGeneration != deployment.Generation || s.UpdatedReplicas != s.Replicas || int(s.Replicas) != want:
			return deployment.Name + " is being rolled out"
		case deployment.Namespace == workload.ServiceNamespace && int(s.AvailableReplicas) != want:
			return fmt.Sprintf("%d of %d pods of %s are available", s.AvailableReplicas, want, deployment.Name)
		}
	}
	for _, g := range d.plan.Gangs {
		if others[g.Name] != g.Members {
			return fmt.Sprintf("gang %s has %d pods of %d", g.Name, others[g.Name], g.Members)
		}
		if g.Fits && members[g.Name] < g.Members {
			return fmt.Sprintf("gang %s is not whole: %d of %d bound", g.Name, members[g.Name], g.Members)
		}
	}
	return ""
}

func appOf(pod *corev1.Pod) (app, role string) {
	return pod.Labels[workload.AppLabel], pod.Labels[workload.RoleLabel]
}

// refusedOnce reports whether the scheduler has tried a pod in vain.
func refusedOnce(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}

// stallAfter is how long something may be in progress while no pod is bound. It is longer than a gang's longest backoff.
const stallAfter = time.Minute

// settle waits until nothing is in progress. If no pod has been bound for stallAfter, it says what is missing and stops
// waiting: the checks, which come next, say better what is wrong than a timeout.
func (d *demo) settle(ctx context.Context) error {
	start := time.Now()
	stalled := ""
	err := until(ctx, func() string {
		missing := d.unsettled()
		if missing != "" && min(time.Since(start), d.seen.quietFor()) > stallAfter {
			stalled, missing = missing, ""
		}
		return missing
	})
	if stalled != "" {
		d.progress.say("\nnothing was bound for %s: %s", stallAfter, stalled)
	}
	return err
}

// until polls until missing returns "". On timeout the error says what was missing last.
func until(ctx context.Context, missing func() string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
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

// workers is how many requests the demo sends at a time.
const workers = 8

// each calls do for every item, several at a time, and returns the first error. After an error or the context's end no
// further item is begun.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		if working.Err() != nil {
			break
		}
		group.Go(func() error { return do(working, item) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
