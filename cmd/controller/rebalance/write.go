package rebalance

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/internal/crd"
	"zonewise.dev/rebalance/act"
)

// writeTimeout is how long a status, or the events of a look, may take.
const writeTimeout = 10 * time.Second

// write writes a status against the version of the object that was read, and reports whether it is written.
func (c *Controller) write(ctx context.Context, r *v1alpha1.ZoneRebalance) bool {
	if ctx.Err() != nil {
		return false
	}
	// It is known whether it is written although the process ends meanwhile: then it is told, too.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	before := r.ResourceVersion
	if err := c.shared.Client.Status().Update(limited, r); err != nil {
		switch {
		case ctx.Err() != nil || apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			klog.FromContext(ctx).V(2).Info("A ZoneRebalance has changed since it was read", "zonerebalance", klog.KObj(r))
		default:
			klog.FromContext(ctx).Error(err, "Cannot write the status", "zonerebalance", klog.KObj(r))
		}
		return false
	}
	if r.ResourceVersion != before {
		if c.replaced[r.UID] == nil {
			c.replaced[r.UID] = map[string]bool{}
		}
		c.replaced[r.UID][before] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status[r.Name] = *r.DeepCopy()
	return true
}

// tell writes an event for each move that has come further, and if the ZoneRebalance is stopped. The process that comes
// next does not know that it is news, so it is told although this one ends.
func (c *Controller) tell(ctx context.Context, before, after *v1alpha1.ZoneRebalance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	for _, event := range eventsBetween(before, after) {
		if err := c.shared.Client.Create(ctx, event); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot write an event", "zonerebalance", klog.KObj(after))
		}
	}
}

// eventsBetween returns the events about what is otherwise in a status than it was.
func eventsBetween(before, after *v1alpha1.ZoneRebalance) []*eventsv1.Event {
	known := map[types.UID]v1alpha1.RebalanceMove{}
	for i := range before.Status.Moves {
		known[before.Status.Moves[i].UID] = before.Status.Moves[i]
	}
	var out []*eventsv1.Event
	add := func(kind, reason, note string, related *v1.ObjectReference) {
		e := newEvent(after, len(out))
		e.Type, e.Reason, e.Note, e.Related = kind, reason, crd.Shortened(note), related
		out = append(out, e)
	}
	for i := range after.Status.Moves {
		m := &after.Status.Moves[i]
		if last := known[m.UID]; last.State == m.State && last.Begun.Equal(&m.Begun) {
			continue
		}
		kind := v1.EventTypeNormal
		if act.Failed(m) {
			kind = v1.EventTypeWarning
		}
		note := fmt.Sprintf("pod %s/%s of %s, from zone %s to %s", m.Namespace, m.Name, m.Workload, m.From, strings.Join(m.To, " or "))
		if m.Why != "" {
			note += ": " + m.Why
		}
		if m.Failures > 0 {
			note += fmt.Sprintf("; moves of its workload have failed or were undone %d times", m.Failures)
		}
		add(kind, "Move"+string(m.State), note,
			&v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: m.Namespace, Name: m.Name, UID: m.UID})
	}
	stopped := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStopped)
	if stopped != nil && stopped.Status == metav1.ConditionTrue &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionStopped) {
		add(v1.EventTypeWarning, "MovesStopped", stopped.Reason+": "+stopped.Message, nil)
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
