package gangbudgets

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/internal/crd"
	"zonewise.dev/sim/kinds"
)

const (
	// retryInterval is after how long what could not be written is tried again, and idleInterval after how long it is
	// looked if nothing changes.
	retryInterval, idleInterval = 15 * time.Second, 10 * time.Minute
	// share is what part of the controller's budget of CPU goes into looking at the cluster for this.
	share = 0.1
)

// decidingKinds decide which budgets there are.
var decidingKinds = []string{
	"pods", "podgroups.scheduling.x-k8s.io", kinds.NativePodGroups, "poddisruptionbudgets.policy",
}

// Controller keeps the budgets. Make one with New.
type Controller struct {
	shared parts.Shared
	looks  parts.Looks
	now    func() time.Time
	// told is the message of the last event about each PodGroup that is refused a budget.
	told map[types.UID]string
}

// Describe returns the part.
func Describe() parts.Description {
	return parts.Description{
		Name: "gang-budgets", Help: "keep a PodDisruptionBudget for each whole gang whose PodGroup asks for it",
		New: func(shared parts.Shared) reconcile.Reconciler { return New(shared) },
	}
}

// New returns the part.
func New(shared parts.Shared) *Controller {
	return &Controller{
		shared: shared, looks: shared.NewLooks(share, decidingKinds...), now: time.Now,
		told: map[types.UID]string{},
	}
}

// Reconcile implements reconcile.Reconciler: it makes the budgets what the PodGroups ask for.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return c.looks.Reconcile(ctx, c.now(), c.shared.Read, c.look)
}

func (c *Controller) look(ctx context.Context, cluster *snapshot.Snapshot, unread string) (next time.Duration) {
	if unread != "" || !c.write(ctx, planFor(cluster)) {
		return retryInterval // what is not seen may ask for a budget, or be one
	}
	return idleInterval
}

// write writes what is planned, and reports whether all is written. What is not is planned again from a newer look.
func (c *Controller) write(ctx context.Context, p *plan) bool {
	all := true
	note := func(b *policyv1.PodDisruptionBudget, err error) {
		if err != nil {
			all = false
			klog.FromContext(ctx).Error(err, "Cannot write a disruption budget", "poddisruptionbudget", klog.KObj(b))
		}
	}
	for _, b := range p.remove { // one with another owner may have the name of one that is to be created
		note(b, client.IgnoreNotFound(c.shared.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID})))
	}
	for _, b := range p.update {
		note(b, client.IgnoreNotFound(c.shared.Client.Update(ctx, b)))
	}
	for _, b := range p.create {
		note(b, c.shared.Client.Create(ctx, b))
	}
	told := map[types.UID]string{}
	for _, r := range p.refusals {
		told[r.group.GetUID()] = r.message
		if c.told[r.group.GetUID()] == r.message {
			continue
		}
		if err := c.shared.Client.Create(ctx, eventOf(&r, c.now())); err != nil && !apierrors.IsAlreadyExists(err) {
			all = false
			delete(told, r.group.GetUID())
			klog.FromContext(ctx).Error(err, "Cannot write an event", "podgroup", klog.KObj(r.group))
		}
	}
	c.told = told
	return all
}

// eventOf returns the event about a refusal. Its name follows from what it says: another process that says the same
// does not say it twice.
func eventOf(r *refusal, now time.Time) *eventsv1.Event {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, r.group.GetUID(), r.reason, r.message)
	e := parts.NewEvent("gang-budgets", v1.ObjectReference{
		APIVersion: r.group.apiVersion, Kind: podGroupKind, Namespace: r.group.GetNamespace(), Name: r.group.GetName(),
		UID: r.group.GetUID(),
	}, now)
	e.Name = fmt.Sprintf("%.200s.%x", r.group.GetName(), h.Sum64())
	e.Type, e.Reason, e.Action, e.Note = v1.EventTypeWarning, r.reason, "KeepBudget", crd.Shortened(r.message)
	return e
}
