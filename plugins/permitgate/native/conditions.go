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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podstatus"
)

const (
	// writeGrace is how long kube-scheduler has to clear a nomination itself before what is left is corrected.
	writeGrace = 250 * time.Millisecond
	// A write that failed is repeated after writeRetry, then after twice as long each time, up to writeRetryLimit.
	writeRetry      = 250 * time.Millisecond
	writeRetryLimit = time.Minute
	// writers is how many gangs are written at a time.
	writers = 4
	// arrivalGrace is how long members may be missing, with no new one, before the PodGroup says so.
	arrivalGrace = 5 * time.Second
)

// Lead starts what only the leader does, until ctx ends.
func (g *Gangs) Lead(ctx context.Context, h fwk.Handle) {
	if g == nil {
		return
	}
	client, patcher := h.ClientSet(), podstatus.New(h)
	g.rehearser.Lead(ctx, client)
	g.mu.Lock()
	g.leads = true
	for key := range g.byKey {
		g.agenda.Add(key) // what could not be done or said before
		g.writes.Add(key)
	}
	g.mu.Unlock()
	go g.writes.Run(ctx, writers, func(key types.NamespacedName) { g.write(ctx, client, patcher, key) })
}

func (g *Gangs) leading() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leads
}

// latestGroup returns the PodGroup as the informer shows it, or as the last patch has left it if that is later.
func (e *entry) latestGroup() *schedulingv1beta1.PodGroup {
	if e.patched != nil && e.patched.UID == e.group.UID {
		if order, err := resourceversion.CompareResourceVersion(e.group.ResourceVersion, e.patched.ResourceVersion); err == nil && order < 0 {
			return e.patched
		}
	}
	return e.group
}

// wrongConditions returns the conditions that the PodGroup should have and has not, but for times.
func (e *entry) wrongConditions(now time.Time) (wrong []metav1.Condition) {
	if e.group == nil {
		return nil
	}
	has := e.latestGroup().Status.Conditions
	want := func(kind string, status metav1.ConditionStatus, reason, message string) {
		message = crd.Shortened(message)
		if c := apimeta.FindStatusCondition(has, kind); c == nil || c.Status != status || c.Reason != reason || c.Message != message {
			wrong = append(wrong, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: e.group.Generation})
		}
	}
	switch {
	case !e.guarded && composite(e.group):
		want(ConditionGuarded, metav1.ConditionFalse, "CompositeGroup", "members of composite groups are not guarded: they are bound one by one")
		return wrong
	case !e.guarded:
		return wrong
	case len(e.group.Spec.ResourceClaims) > 0:
		want(ConditionGuarded, metav1.ConditionFalse, "SharedClaims",
			"the members are bound together or not at all, but they do not give back the devices of spec.resourceClaims: kube-scheduler allocates these before the barrier, and keeps them for the PodGroup until a cycle of it is in vain")
	}
	phase, last := e.gang.Phase(), e.gang.LastRollback()
	if reason, message := e.whyNotPlaced(now); reason != "" {
		want(ConditionFits, metav1.ConditionFalse, reason, message)
	} else if e.gang.Lacking() <= 0 && apimeta.IsStatusConditionFalse(has, ConditionFits) {
		want(ConditionFits, metav1.ConditionTrue, "Placed", "the gang has been placed")
	}
	if e.complaint != "" {
		want(ConditionPacked, metav1.ConditionFalse, "Ignored", e.complaint)
	} else if apimeta.IsStatusConditionFalse(has, ConditionPacked) {
		want(ConditionPacked, metav1.ConditionTrue, "Accepted", "the annotation applies, if there is one")
	}
	switch {
	case phase == gang.Whole:
		want(ConditionReleased, metav1.ConditionTrue, "Bound", fmt.Sprintf("%d members or more are bound", e.gang.MinMember()))
	case last.Cause != "" && (phase == gang.Backoff || e.gang.Closed()):
		want(ConditionReleased, metav1.ConditionFalse, events.ReasonRolledBack, events.RollbackNote(&last, e.podOf(last.Member)))
	}
	switch {
	case e.gang.Stranded(now):
		want(ConditionPartlyBound, metav1.ConditionTrue, events.ReasonPartlyBound, e.partlyBoundNote())
	case apimeta.IsStatusConditionTrue(has, ConditionPartlyBound) && phase != gang.Releasing:
		want(ConditionPartlyBound, metav1.ConditionFalse, "Bound", "the gang is not bound in part any more")
	}
	return wrong
}

// whyNotPlaced says why the gang cannot be placed; empty if nothing is known that keeps it.
func (e *entry) whyNotPlaced(now time.Time) (reason, message string) {
	switch {
	case e.tooFewSince(now) >= arrivalGrace:
		_, message = e.gang.BlockedBy()
		if e.succeeded > 0 {
			message += fmt.Sprintf("; %d more have succeeded, which kube-scheduler does not count for spec.schedulingPolicy.gang.minCount", e.succeeded)
		}
		return "TooFewMembers", message
	case !e.vain || e.gang.Lacking() <= 0:
		return "", ""
	case e.refusal.Cause == gang.CauseNoRoom:
		return "NoRoom", e.refusal.ConditionMessage()
	case e.refusal.Cause != "":
		return "Unschedulable", e.refusal.ConditionMessage()
	}
	if why := e.whyUnschedulable(); why != "" {
		return "Unschedulable", why
	}
	return "", ""
}

// tooFewSince returns for how long members have waited for others to be created; 0 if none does.
func (e *entry) tooFewSince(now time.Time) time.Duration {
	if reason, _ := e.gang.BlockedBy(); reason != gang.ReasonTooFew {
		return 0
	}
	if !e.anyUnbound() {
		return 0
	}
	return max(now.Sub(e.gang.ShortSince()), 1)
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
		keeps, now := e.gang.KeptNode(uid), m.pod.Status.NominatedNodeName
		if m.pod.Spec.NodeName == "" && now != keeps && (keeps != "" || e.gang.SentBack(uid)) {
			wrong = append(wrong, nomination{m.pod, keeps})
		}
	}
	slices.SortFunc(wrong, func(a, b nomination) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return wrong
}

// sentBack lists the members that have lost their nodes and have not been in a cycle since.
func (e *entry) sentBack() (pods []*v1.Pod) {
	for uid, m := range e.pods {
		if e.gang.SentBack(uid) && m.pod.Spec.NodeName == "" {
			pods = append(pods, m.pod)
		}
	}
	return pods
}

// write corrects the conditions of a gang's PodGroup and the nominations of its members, as they are by now, and takes
// back the devices of those that have been sent back.
func (g *Gangs) write(ctx context.Context, client clientset.Interface, patcher *podstatus.Patcher, key types.NamespacedName) {
	g.mu.Lock()
	e := g.byKey[key]
	if e == nil {
		g.mu.Unlock()
		g.writes.Forget(key)
		return
	}
	now := g.config.Clock.Now()
	tooFew := e.tooFewSince(now) >= arrivalGrace
	g.mu.Unlock()
	succeeded := 0
	if tooFew {
		n, err := countSucceeded(ctx, client, key)
		if err != nil {
			g.retryWrite(ctx, key, err)
			return
		}
		succeeded = n
	}
	var errs []error
	g.mu.Lock()
	e.succeeded = succeeded
	conditions, nominations, sentBack := e.wrongConditions(now), e.wrongNominations(), e.sentBack()
	var group *schedulingv1beta1.PodGroup
	if len(conditions) > 0 {
		group = e.latestGroup()
	}
	g.mu.Unlock()
	if group != nil {
		for i := range conditions {
			c := &conditions[i]
			c.LastTransitionTime = metav1.Time{Time: now}
			if old := apimeta.FindStatusCondition(group.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		patched, err := patchConditions(ctx, client, group, conditions)
		if errs = append(errs, err); err == nil {
			g.mu.Lock()
			e.patched = patched
			g.mu.Unlock()
		}
	}
	for _, n := range nominations {
		errs = append(errs, patcher.Nomination(ctx, n.pod, n.node))
	}
	for _, pod := range sentBack {
		errs = append(errs, patcher.Deallocate(ctx, pod))
	}
	if err := errors.Join(errs...); err != nil {
		g.retryWrite(ctx, key, err)
		return
	}
	g.writes.Forget(key)
}

// retryWrite has what could not be written about a gang tried again.
func (g *Gangs) retryWrite(ctx context.Context, key types.NamespacedName, err error) {
	if ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Could not write about a native gang; will try again", "podGroup", key, "err", err)
		g.writes.Retry(key, writeRetry, writeRetryLimit)
	}
}

// patchConditions gives a PodGroup conditions, and returns it as it is then. It is not an error if the PodGroup is
// gone.
func patchConditions(ctx context.Context, client clientset.Interface, group *schedulingv1beta1.PodGroup, conditions []metav1.Condition) (patched *schedulingv1beta1.PodGroup, err error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": group.UID},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	patched, err = client.SchedulingV1beta1().PodGroups(group.Namespace).Patch(
		ctx, group.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return patched, err
}

// countSucceeded counts the members that have succeeded, which the scheduler's informer leaves out.
func countSucceeded(ctx context.Context, client clientset.Interface, key types.NamespacedName) (n int, err error) {
	list, err := client.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=" + string(v1.PodSucceeded), ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("listing pods that have succeeded: %w", err)
	}
	for i := range list.Items {
		if group, ok := GroupOf(&list.Items[i]); ok && group == key && list.Items[i].Status.Phase == v1.PodSucceeded {
			n++
		}
	}
	return n, nil
}
