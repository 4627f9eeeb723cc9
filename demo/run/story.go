package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/demo/workload"
	"zonewise.dev/survival"
)

// runPhases runs the phases, and the checks in between.
func (d *demo) runPhases(ctx context.Context) error {
	for _, s := range []struct {
		name   string
		do     func(context.Context) error
		status func() string
	}{
		{fmt.Sprintf("create %d nodes", len(d.Plan.Nodes)), d.createNodes, d.nodeStatus},
		{"services and gangs arrive", d.createWorkload, d.podStatus},
		{"hold the room for the loss of any zone", d.holdRoom, d.stateText},
		{"batch work fills the rest", d.createBatch, d.podStatus},
		{"replay the loss of each zone", d.awaitCertificates, d.stateText},
		{"check: " + check.Before.String(), d.checksAt(check.Before), d.stateText},
		{"lose " + workload.LostZone, d.loseZone, d.podStatus},
		{"check: " + check.Lost.String(), d.checksAt(check.Lost), d.stateText},
		{"delete the nodes of " + workload.LostZone, d.deleteNodes, d.podStatus},
		{"check: " + check.Gone.String(), d.checksAt(check.Gone), d.stateText},
		{workload.LostZone + " returns", d.returnZone, d.podStatus},
		{"check: " + check.Back.String(), d.checksAt(check.Back), d.stateText},
		{"move replicas of " + d.Plan.Weighted().Name() + " back", d.moveBack, d.stateText},
		{"replay the loss of each zone again", d.awaitCertificates, d.stateText},
		{"check: " + check.Moved.String(), d.checksAt(check.Moved), d.stateText},
	} {
		if err := d.runPhase(ctx, s.name, s.do, s.status); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) nodeStatus() string {
	return fmt.Sprintf("%d of %d ready in %s", readyNodes(d.census()), len(d.Plan.Nodes), strings.Join(workload.Zones, ", "))
}

func (d *demo) podStatus() string {
	bound, waiting, zones := countPods(d.census())
	return fmt.Sprintf("%d pods bound, %d wait; %s", bound, waiting, zones)
}

// createNodes creates the nodes that are not there and waits until all accept pods.
func (d *demo) createNodes(ctx context.Context) error {
	err := forEach(ctx, d.Plan.Nodes, func(ctx context.Context, n workload.Node) error {
		return client.IgnoreAlreadyExists(d.cluster.Client.Create(ctx, n.Object()))
	})
	if err != nil {
		return err
	}
	return d.waitFor(ctx, func() (missing string, _ error) {
		if ready := readyNodes(d.census()); ready < len(d.Plan.Nodes) {
			missing = fmt.Sprintf("%d nodes to take pods", len(d.Plan.Nodes)-ready)
		}
		return missing, nil
	})
}

// createWorkload creates the services and gangs: first the policy, then the gang that cannot fit, so that everything
// else must be placed past it, and the other gangs among the services.
func (d *demo) createWorkload(ctx context.Context) error {
	for _, name := range []string{workload.ServiceNamespace, workload.GangNamespace, workload.BatchNamespace} {
		if err := d.cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	if err := d.cluster.Client.Create(ctx, d.Plan.Policy()); err != nil {
		return err
	}
	err := d.waitFor(ctx, func() (missing string, _ error) {
		if policies := status.Build(d.census(), "").Policies; len(policies) == 0 || policies[0].State != status.OK {
			missing = "the scheduler to read the ZoneSpreadPolicy"
		}
		return missing, nil
	})
	if err != nil {
		return err
	}
	gangs := slices.Clone(d.Plan.Gangs)
	slices.Reverse(gangs) // the one that cannot fit is the last
	for services := range slices.Chunk(d.Plan.Services, len(d.Plan.Services)/len(gangs)+1) {
		gang := gangs[0]
		gangs = gangs[1:]
		if err := errors.Join(d.cluster.Client.Create(ctx, gang.PodGroup()), d.cluster.Client.Create(ctx, gang.StatefulSet())); err != nil {
			return err
		}
		err := forEach(ctx, services, func(ctx context.Context, s workload.Service) error {
			return d.cluster.Client.Create(ctx, s.Deployment())
		})
		if err != nil {
			return err
		}
	}
	return d.awaitSettled(ctx)
}

// holdRoom creates the ZoneSurvivals, and waits until the room is held.
func (d *demo) holdRoom(ctx context.Context) error {
	for _, asked := range []*v1alpha1.ZoneSurvival{d.Plan.Survival(), d.Plan.DefaultPolicySurvival(), d.Plan.Hold()} {
		if err := d.cluster.Client.Create(ctx, asked); err != nil {
			return err
		}
	}
	return d.waitFor(ctx, func() (string, error) {
		for _, r := range status.Build(d.census(), "").Reservations {
			d.state.Store(fmt.Sprintf("%s: %s used/held/wanted", r.Name, status.SharesText(r.SlotCounts)))
			if r.State == status.OK {
				return "", nil
			}
		}
		return "the room to be held", nil
	})
}

// awaitCertificates waits until the certificates are about the cluster as it is now, and keeps them.
func (d *demo) awaitCertificates(ctx context.Context) error {
	d.certificates = map[string]*status.Survival{}
	return d.waitFor(ctx, func() (string, error) {
		c := d.census()
		now := survival.Fingerprint(c.Snapshot.Objects())
		var old []string
		for _, asked := range snapshot.Sorted[*v1alpha1.ZoneSurvival](c.Snapshot, "") {
			held := meta.FindStatusCondition(asked.Status.Conditions, v1alpha1.ConditionHeld)
			if asked.Status.Snapshot.Hash != now || held != nil && held.Reason == v1alpha1.ReasonFilling {
				old = append(old, asked.Name)
				continue
			}
			d.certificates[asked.Name] = new(status.SurvivalOf(asked, c.Now))
		}
		if old != nil {
			return "the losses to be replayed on the cluster as it is now, for " + strings.Join(old, ", "), nil
		}
		d.state.Store("do the services survive the loss of any zone? " + check.AnswerText(d.certificates[d.Plan.Survival().Name]))
		return "", nil
	})
}

// createBatch creates the batch workers, and the ZoneSurvival about them.
func (d *demo) createBatch(ctx context.Context) error {
	if err := errors.Join(d.cluster.Client.Create(ctx, d.Plan.Batch()), d.cluster.Client.Create(ctx, d.Plan.BatchSurvival())); err != nil {
		return err
	}
	d.workers = d.Plan.Workers
	return d.awaitSettled(ctx)
}

// loseZone takes the zone away: its kubelets are killed, and its nodes are marked at once as node-lifecycle-controller
// would mark them after its grace period. From then on the controllers do what they do in a real outage. Pods that the
// taint eviction deletes stay, since no kubelet finishes them, until they are removed by force, as an operator would.
func (d *demo) loseZone(ctx context.Context) error {
	d.lostAt, d.mayWait = time.Now(), workload.DefaultPolicyApp
	d.cluster.StopKubelets(workload.LostZone)
	patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"conditions":[{`+
		`"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",`+
		`"lastTransitionTime":%q}]}}`, d.lostAt.UTC().Format(time.RFC3339)))
	err := forEach(ctx, d.Plan.Nodes, func(ctx context.Context, n workload.Node) error {
		if n.Zone != workload.LostZone {
			return nil
		}
		return d.cluster.Client.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, patch)
	})
	if err != nil {
		return fmt.Errorf("the nodes' status: %w", err)
	}
	err = d.waitFor(ctx, func() (missing string, err error) {
		left := 0
		var going []*corev1.Pod
		c := d.census()
		for _, pod := range snapshot.List[*corev1.Pod](c.Snapshot) {
			if node := c.FindNode(pod.Spec.NodeName); node == nil || node.Zone != workload.LostZone {
				continue
			}
			left++
			if pod.DeletionTimestamp != nil {
				going = append(going, pod)
			}
		}
		if left > 0 {
			missing = fmt.Sprintf("the taint eviction controller to delete the pods on the nodes of %s: %d are left", workload.LostZone, left)
		}
		return missing, forEach(ctx, going, d.forceDelete)
	})
	if err != nil {
		return err
	}
	return d.awaitSettled(ctx)
}

// forceDelete removes a pod that no kubelet finishes, if it has not been removed since it was read.
func (d *demo) forceDelete(ctx context.Context, pod *corev1.Pod) error {
	err := d.cluster.Client.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: ptr.To(pod.UID)})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// deleteNodes deletes the Node objects of the lost zone, as a cloud's controller does when their machines are gone.
func (d *demo) deleteNodes(ctx context.Context) error {
	d.mayWait = ""
	nodes := client.MatchingLabels{corev1.LabelTopologyZone: workload.LostZone}
	if err := d.cluster.Client.DeleteAllOf(ctx, &corev1.Node{}, nodes); err != nil {
		return err
	}
	return d.awaitSettled(ctx)
}

// returnZone starts the zone's kubelets again, with nodes of the same names, and waits until these accept pods and the
// batch work that fits is bound.
func (d *demo) returnZone(ctx context.Context) error {
	if err := d.cluster.StartKubelets(workload.LostZone); err != nil {
		return err
	}
	if err := d.createNodes(ctx); err != nil {
		return err
	}
	return d.awaitSettled(ctx)
}

// moveBack creates the ZoneRebalance, and waits until its moves are over.
func (d *demo) moveBack(ctx context.Context) error {
	asked := d.Plan.Rebalance()
	if err := d.cluster.Client.Create(ctx, asked); err != nil {
		return err
	}
	err := d.waitFor(ctx, func() (string, error) {
		for _, r := range snapshot.List[*v1alpha1.ZoneRebalance](d.census().Snapshot) {
			stopped := meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionStopped)
			balanced := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBalanced)
			if balanced == nil || balanced.Reason == v1alpha1.ReasonNotPlannedYet {
				continue
			}
			d.state.Store(balanced.Message)
			// NothingToMove may be for a minute: pods that have just become ready stay.
			if stopped || balanced.Status == metav1.ConditionTrue {
				d.rebalanced = r
				return "", nil // the check judges it
			}
		}
		return "the moves of ZoneRebalance " + asked.Name + " to be over", nil
	})
	return errors.Join(err, d.awaitSettled(ctx))
}

// workers is how many requests the demo sends at a time.
const workers = 8

// forEach calls do for every item, several at a time, and returns the first error, after which the context of the
// others ends.
func forEach[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		group.Go(func() error { return do(ctx, item) })
	}
	return group.Wait()
}
