package native

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podstatus"
)

// The types of the conditions of PodGroups.
const (
	// ConditionReleased is True when minCount members have been bound together, False since a rollback.
	ConditionReleased = "zonewise.dev/Released"
	// ConditionPartlyBound is True while the gang stays bound in part.
	ConditionPartlyBound = "zonewise.dev/PartlyBound"
	// ConditionGuarded is False for a PodGroup of a composite group, which is not guarded.
	ConditionGuarded = "zonewise.dev/Guarded"
)

const (
	// writeGrace is how long kube-scheduler has to clear a nomination itself before what is left is corrected.
	writeGrace = 250 * time.Millisecond
	// A write that failed is repeated after writeRetry, then after twice as long each time, up to writeRetryLimit.
	writeRetry      = 250 * time.Millisecond
	writeRetryLimit = time.Minute
	// writers is how many gangs are written at a time.
	writers = 4
)

// Lead starts what only the leader does, until ctx ends.
func (g *Gangs) Lead(ctx context.Context, client clientset.Interface) {
	if g == nil {
		return
	}
	g.rehearser.Lead(ctx, client)
	g.mu.Lock()
	g.leads = true
	for key, e := range g.byKey {
		e.gang.ReportAgain()
		g.agenda.Add(key) // what could not be done or said before
		g.writes.Add(key)
	}
	g.mu.Unlock()
	go g.writes.Run(ctx, writers, func(key types.NamespacedName) { g.write(ctx, client, key) })
}

func (g *Gangs) leading() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leads
}

// wrongConditions returns the conditions that the PodGroup should have and has not, but for times.
func (e *entry) wrongConditions(now time.Time) (wrong []metav1.Condition) {
	if e.group == nil {
		return nil
	}
	want := func(kind string, status metav1.ConditionStatus, reason, message string) {
		message = crd.Shortened(message)
		if c := apimeta.FindStatusCondition(e.group.Status.Conditions, kind); c == nil || c.Status != status || c.Reason != reason || c.Message != message {
			wrong = append(wrong, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: e.group.Generation})
		}
	}
	if !e.guarded {
		if composite(e.group) {
			want(ConditionGuarded, metav1.ConditionFalse, "CompositeGroup", "members of composite groups are not guarded: they are bound one by one")
		}
		return wrong
	}
	phase, last := e.gang.Phase(), e.gang.LastRollback()
	switch {
	case phase == gang.Whole:
		want(ConditionReleased, metav1.ConditionTrue, "Bound", fmt.Sprintf("%d members or more are bound", e.gang.MinMember()))
	case last.Cause != "" && (phase == gang.Backoff || e.gang.Closed()):
		want(ConditionReleased, metav1.ConditionFalse, events.ReasonRolledBack, e.rollbackNote(&last))
	}
	switch {
	case e.gang.Stranded(now):
		want(ConditionPartlyBound, metav1.ConditionTrue, events.ReasonPartlyBound, e.partlyBoundNote())
	case apimeta.IsStatusConditionTrue(e.group.Status.Conditions, ConditionPartlyBound) && phase != gang.Releasing:
		want(ConditionPartlyBound, metav1.ConditionFalse, "Bound", "the gang is not bound in part any more")
	}
	return wrong
}

// nomination is the node that a member is to be nominated to; empty for none.
type nomination struct {
	pod  *v1.Pod
	node string
}

// wrongNominations returns the members whose nominations are to be corrected: one whose bind has failed keeps its node, and one that
// has been sent back keeps none. kube-scheduler clears a nomination only if its informer has shown it by then.
func (e *entry) wrongNominations() (wrong []nomination) {
	for uid, m := range e.pods {
		keeps, now := "", m.pod.Status.NominatedNodeName
		if e.gang.KeepsNode(uid) {
			keeps = m.node
		}
		if m.pod.Spec.NodeName == "" && now != keeps && (keeps != "" || e.gang.SentBack(uid)) {
			wrong = append(wrong, nomination{m.pod, keeps})
		}
	}
	slices.SortFunc(wrong, func(a, b nomination) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return wrong
}

// write corrects the conditions of a gang's PodGroup and the nominations of its members, as they are by now.
func (g *Gangs) write(ctx context.Context, client clientset.Interface, key types.NamespacedName) {
	g.mu.Lock()
	e := g.byKey[key]
	if e == nil {
		g.mu.Unlock()
		g.writes.Forget(key)
		return
	}
	now := g.config.Clock.Now()
	group, conditions, nominations := e.group, e.wrongConditions(now), e.wrongNominations()
	g.mu.Unlock()
	var errs []error
	if len(conditions) > 0 {
		for i := range conditions {
			c := &conditions[i]
			c.LastTransitionTime = metav1.Time{Time: now}
			if old := apimeta.FindStatusCondition(group.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		errs = append(errs, patchConditions(ctx, client, group, conditions))
	}
	patcher := podstatus.Patcher{Client: client}
	for _, n := range nominations {
		errs = append(errs, patcher.Nomination(ctx, n.pod, n.node))
	}
	switch err := errors.Join(errs...); {
	case err == nil:
		g.writes.Forget(key)
	case ctx.Err() == nil:
		klog.FromContext(ctx).V(2).Info("Could not write about a native gang; will try again", "podGroup", key, "err", err)
		g.writes.Retry(key, writeRetry, writeRetryLimit)
	}
}

// patchConditions gives a PodGroup conditions. It is not an error if the PodGroup is gone.
func patchConditions(ctx context.Context, client clientset.Interface, group *schedulingv1beta1.PodGroup, conditions []metav1.Condition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": group.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = client.SchedulingV1beta1().PodGroups(group.Namespace).Patch(ctx, group.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
