package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
)

// story runs the phases, and the checks in between.
func (d *demo) story(ctx context.Context) error {
	for _, s := range []struct {
		name   string
		do     func(context.Context) error
		status func() string
	}{
		{fmt.Sprintf("create %d nodes", len(d.Plan.Nodes)), d.createNodes, d.nodeStatus},
		{"services and gangs arrive", d.arrive, d.podStatus},
		{"batch work fills the rest", d.fill, d.podStatus},
		{"check: " + check.Before.String(), d.looks(check.Before), d.stateText},
		{"lose " + workload.LostZone, d.lose, d.podStatus},
		{"check: " + check.Lost.String(), d.looks(check.Lost), d.stateText},
		{workload.LostZone + " returns", d.bringBack, d.podStatus},
		{"roll every service out again", d.rollOut, d.podStatus},
		{"check: " + check.Back.String(), d.looks(check.Back), d.stateText},
	} {
		if err := d.phase(ctx, s.name, s.do, s.status); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) nodeStatus() string {
	return fmt.Sprintf("%d of %d ready in %s", readyNodes(d.census()), len(d.Plan.Nodes), strings.Join(workload.Zones, ", "))
}

func (d *demo) podStatus() string {
	bound, waiting, zones := tally(d.census())
	return fmt.Sprintf("%d pods bound, %d wait; %s", bound, waiting, zones)
}

// createNodes creates the nodes and waits until all accept pods.
func (d *demo) createNodes(ctx context.Context) error {
	err := each(ctx, d.Plan.Nodes, func(ctx context.Context, n workload.Node) error {
		return d.cluster.Client.Create(ctx, n.Object())
	})
	if err != nil {
		return err
	}
	return d.untilReady(ctx)
}

// arrive creates the services and gangs: first the policy and the reservation, then the gang that cannot fit, so that
// everything else must be placed past it, and the other gangs among the services.
func (d *demo) arrive(ctx context.Context) error {
	for _, name := range []string{workload.ServiceNamespace, workload.GangNamespace, workload.BatchNamespace} {
		if err := d.cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := errors.Join(d.cluster.Client.Create(ctx, d.Plan.Policy()), d.cluster.Client.Create(ctx, d.Plan.Reservation())); err != nil {
		return err
	}
	if err := d.until(ctx, accepted); err != nil {
		return err
	}
	d.deployments = len(d.Plan.Services)
	gangs := slices.Clone(d.Plan.Gangs)
	slices.Reverse(gangs) // the one that cannot fit is the last
	for services := range slices.Chunk(d.Plan.Services, len(d.Plan.Services)/len(gangs)+1) {
		gang := gangs[0]
		gangs = gangs[1:]
		if err := errors.Join(d.cluster.Client.Create(ctx, gang.PodGroup()), d.cluster.Client.Create(ctx, gang.StatefulSet())); err != nil {
			return err
		}
		err := each(ctx, services, func(ctx context.Context, s workload.Service) error {
			return d.cluster.Client.Create(ctx, s.Deployment())
		})
		if err != nil {
			return err
		}
	}
	return d.settle(ctx)
}

// accepted says what the scheduler has not read of the policy and the reservation, or that it does not hold all slots.
func accepted(c *census.Census) string {
	r := status.Build(c, workload.ServiceNamespace)
	if len(r.Policies) == 0 || len(r.Reservations) == 0 {
		return "the ZoneSpreadPolicy and the ZoneReservation are not known"
	}
	if p := r.Policies[0]; p.State != status.OK {
		return fmt.Sprintf("the ZoneSpreadPolicy is %s: %s", p.State, p.Message)
	}
	if p := r.Reservations[0]; p.State != status.OK {
		return fmt.Sprintf("the ZoneReservation is %s: %s", p.State, p.Message)
	}
	return ""
}

// fill creates the batch workers.
func (d *demo) fill(ctx context.Context) error {
	if err := d.cluster.Client.Create(ctx, d.Plan.Batch()); err != nil {
		return err
	}
	d.deployments++
	return d.settle(ctx)
}

// lose takes the zone away: its kubelets are killed, and its nodes are marked at once as node-lifecycle-controller would
// mark them after its grace period. From then on the controllers do what they do in a real outage. Pods that the taint
// eviction deletes stay, since no kubelet finishes them, until they are removed by force, as an operator would.
func (d *demo) lose(ctx context.Context) error {
	d.lostAt = time.Now()
	d.cluster.StopKubelets(workload.LostZone)
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"conditions":[{`+
		`"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",`+
		`"lastTransitionTime":%q}]}}`, d.lostAt.UTC().Format(time.RFC3339)))
	err := each(ctx, d.Plan.Nodes, func(ctx context.Context, n workload.Node) error {
		if n.Zone != workload.LostZone {
			return nil
		}
		return d.cluster.Client.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, patch)
	})
	if err != nil {
		return fmt.Errorf("the nodes' status: %w", err)
	}
	forced := map[types.UID]bool{}
	var fault error
	err = d.until(ctx, func(c *census.Census) string {
		left := 0
		var going []*corev1.Pod
		for _, pod := range snapshot.List[*corev1.Pod](c.Snapshot) {
			if on := c.Node(pod.Spec.NodeName); on == nil || on.Zone != workload.LostZone {
				continue
			}
			left++
			if pod.DeletionTimestamp != nil && !forced[pod.UID] {
				forced[pod.UID] = true
				going = append(going, pod)
			}
		}
		if fault = each(ctx, going, d.forceDelete); left == 0 || fault != nil {
			return ""
		}
		return fmt.Sprintf("%d pods are on the nodes of %s", left, workload.LostZone)
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	return d.settle(ctx)
}

// forceDelete removes a pod that no kubelet finishes.
func (d *demo) forceDelete(ctx context.Context, pod *corev1.Pod) error {
	err := d.cluster.Client.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To(pod.UID)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// bringBack starts the zone's kubelets again and waits until all nodes accept pods and the batch work that fits is bound.
func (d *demo) bringBack(ctx context.Context) error {
	if err := d.cluster.StartKubelets(workload.LostZone); err != nil {
		return err
	}
	if err := d.untilReady(ctx); err != nil {
		return err
	}
	return d.settle(ctx)
}

// rollOut replaces the pods of every service, as "kubectl rollout restart" does. Running pods are never moved, so this spreads
// a service over all zones again.
func (d *demo) rollOut(ctx context.Context) error {
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{`+
		`"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().UTC().Format(time.RFC3339)))
	err := each(ctx, d.Plan.Services, func(ctx context.Context, s workload.Service) error {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: workload.ServiceNamespace, Name: s.Name()}}
		return d.cluster.Client.Patch(ctx, deployment, patch)
	})
	if err != nil {
		return err
	}
	return d.settle(ctx)
}

// workers is how many requests the demo sends at a time.
const workers = 8

// each calls do for every item, several at a time, and returns the first error, after which no item is begun.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, item)
		})
	}
	return group.Wait()
}
