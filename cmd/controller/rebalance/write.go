package rebalance

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
	declared "zonewise.dev/cmd/controller/rebalance/metrics"
	"zonewise.dev/internal/crd"
)

// writeTimeout is how long the status and the events of one look may take.
const writeTimeout = 10 * time.Second

// write writes a status against the version of the object that was read, and reports whether it is written.
func (c *Controller) write(ctx context.Context, r *v1alpha1.ZoneRebalance) bool {
	before := r.ResourceVersion
	if err := c.shared.Client.Status().Update(ctx, r); err != nil {
		switch {
		case ctx.Err() != nil || apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			klog.FromContext(ctx).V(2).Info("A ZoneRebalance has changed since it was read", "zonerebalance", klog.KObj(r))
		default:
			klog.FromContext(ctx).Error(err, "Cannot write the status", "zonerebalance", klog.KObj(r))
		}
		return false
	}
	if r.ResourceVersion == before {
		return true // it was written like this already
	}
	if c.replaced[r.UID] == nil {
		c.replaced[r.UID] = map[string]bool{}
	}
	c.replaced[r.UID][before] = true
	return true
}

// writeFrom writes a status that was read otherwise, and an event for each move that has come further, and if the plan
// is stopped.
func (c *Controller) writeFrom(ctx context.Context, read, r *v1alpha1.ZoneRebalance) bool {
	if ctx.Err() != nil {
		return false
	}
	// What is in the status is told although the process ends, also while the answer is on its way: the next one does
	// not know that it is news.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if !c.write(ctx, r) {
		return false
	}
	c.mu.Lock()
	c.status[r.Name] = *r.DeepCopy()
	c.mu.Unlock()
	for _, event := range eventsBetween(read, r) {
		if err := c.shared.Client.Create(ctx, event); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write an event", "zonerebalance", klog.KObj(r))
		}
	}
	return true
}

// evict asks for the eviction of a pod, by its UID, through the Eviction API. It returns nil if the pod ends. An error
// does not say that the pod is gone, not even a conflict or NotFound: that may be about its budget. The next look
// shows it.
func (c *Controller) evict(ctx context.Context, m *v1alpha1.RebalanceMove) error {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := c.shared.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}},
	})
	result := "accepted"
	if err != nil {
		result = "refused"
	}
	declared.Evictions.WithLabelValues(result).Inc()
	return err
}

// eventsBetween returns the events about what is otherwise in a status than it was.
func eventsBetween(before, after *v1alpha1.ZoneRebalance) []*eventsv1.Event {
	states := map[types.UID]v1alpha1.RebalanceMoveState{}
	for i := range before.Status.Moves {
		states[before.Status.Moves[i].UID] = before.Status.Moves[i].State
	}
	var out []*eventsv1.Event
	add := func(kind, reason, note string, related *v1.ObjectReference) {
		e := newEvent(after, len(out))
		e.Type, e.Reason, e.Note, e.Related = kind, reason, crd.Shortened(note), related
		out = append(out, e)
	}
	for i := range after.Status.Moves {
		m := &after.Status.Moves[i]
		if m.State == states[m.UID] || m.State == v1alpha1.MovePlanned {
			continue
		}
		kind := v1.EventTypeNormal
		if m.State == v1alpha1.MoveFailed || m.State == v1alpha1.MoveRefused {
			kind = v1.EventTypeWarning
		}
		move := fmt.Sprintf("from zone %s to %v", m.From, m.To)
		if m.PodGroup != "" {
			move = "member of " + m.Workload + ", which is bound in part"
		}
		add(kind, "Move"+string(m.State), fmt.Sprintf("pod %s/%s, %s: %s", m.Namespace, m.Name, move, m.Why),
			&v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: m.Namespace, Name: m.Name, UID: m.UID})
	}
	stopped := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStopped)
	if stopped != nil && stopped.Status == metav1.ConditionTrue &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionStopped) {
		add(v1.EventTypeWarning, "PlanStopped", stopped.Reason+": "+stopped.Message, nil)
	}
	return out
}

func newEvent(about *v1alpha1.ZoneRebalance, number int) *eventsv1.Event {
	now := time.Now()
	e := parts.NewEvent("rebalance", v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneRebalance", Name: about.Name, UID: about.UID,
		ResourceVersion: about.ResourceVersion,
	}, now)
	e.Name, e.Action = fmt.Sprintf("%.200s.%x.%d", about.Name, now.UnixNano(), number), "Rebalance"
	return e
}
