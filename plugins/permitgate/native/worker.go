package native

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/execute"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// reasonLabelIgnored is the reason of the event about a pod with the label of the other API that is in no gang.
const reasonLabelIgnored = "PodGroupLabelIgnored"

// job is what the worker takes out of the lock.
type job struct {
	execute.Work
	events   []events.Message
	rewrites bool // the conditions or nominations may be wrong
}

// act carries out what a gang decides. Only the worker calls it; it holds no lock while it calls the scheduling queue and waiting pods.
func (g *Gangs) act(ctx context.Context, key types.NamespacedName) {
	j, ok := g.take(key)
	if !ok {
		return
	}
	g.config.Do(klog.FromContext(ctx).WithValues("podGroup", key, "native", true), key, &j.Work, func(ready []types.UID) (released []types.UID) {
		g.change(key, func(e *entry, now time.Time) { released = e.gang.Release(ready, now) })
		return released
	})
	if !g.leading() {
		return
	}
	if j.rewrites {
		g.writes.AddAt(key, g.config.Clock.Now().Add(writeGrace))
	}
	events.Send(ctx, g.config.Handle, key, j.events...)
}

// take asks a gang what is to be done, and gathers what that needs.
func (g *Gangs) take(key types.NamespacedName) (j job, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byKey[key]
	if e == nil {
		return j, false
	}
	if e.group == nil && len(e.pods) == 0 && e.gang.Empty() {
		delete(g.byKey, key)
		delete(g.refused, e)
		delete(g.cycling, e)
		return j, false
	}
	defer g.settleLocked(e)
	now := g.config.Clock.Now()
	if again := g.settleCycleLocked(e, now); !again.IsZero() {
		g.agenda.AddAt(key, again)
	}
	actions := e.gang.Act(now)
	actions.Activate = append(actions.Activate, g.takeWokenLocked(e, now)...)
	if r := actions.Rollback; r != nil {
		e.noteRolledBack(r.Cause)
	}
	if e.refusalDue {
		actions.Rollbacks = append(actions.Rollbacks, e.refusal.Cause)
	}
	j.Work = execute.NewWork(e.gang, actions, e.podOf)
	j.events = append(e.dueEvents(g.leads, &actions, now), e.takeLabelled(g.leads)...)
	e.refusalDue = false
	if at := e.gang.ShortSince().Add(arrivalGrace); e.tooFewSince(now) > 0 && now.Before(at) {
		g.agenda.AddAt(key, at)
	}
	j.rewrites = len(actions.BindFailed) > 0 || actions.Rollback != nil || len(e.wrongConditions(now)) > 0
	if next := actions.Next; !next.IsZero() {
		g.agenda.AddAt(key, next)
	}
	return j, true
}

// SendEvent sends an event about a PodGroup, if it exists and this process leads.
func (g *Gangs) SendEvent(ctx context.Context, key types.NamespacedName, reason, note string) {
	var group *schedulingv1beta1.PodGroup
	g.mu.Lock()
	if e := g.byKey[key]; e != nil && g.leads {
		group = e.group
	}
	g.mu.Unlock()
	if group != nil {
		events.Send(ctx, g.config.Handle, key, events.About(reference(group), reason, note))
	}
}

// dueEvents returns the due events about a gang; without the lead none.
func (e *entry) dueEvents(leads bool, actions *gang.Actions, now time.Time) (due []events.Message) {
	if e.group == nil || !leads {
		return nil
	}
	add := func(cause, reason, note string, pod *v1.Pod) {
		if !e.failures.NoteIfDue(cause, now) {
			return
		}
		due = append(due, events.About(reference(e.group), reason, note))
		if pod != nil {
			due = append(due, events.About(pod, reason, note))
		}
	}
	if r := actions.Rollback; r != nil {
		add(string(r.Cause), events.ReasonRolledBack, events.RollbackNote(r, e.podOf(r.Member)), e.podOf(r.Member))
	}
	if e.refusalDue {
		add(string(e.refusal.Cause), events.ReasonRolledBack, e.refusal.Detail, nil)
	}
	for _, uid := range actions.BindFailed {
		if pod := e.podOf(uid); pod != nil {
			add(events.ReasonBindFailed, events.ReasonBindFailed, events.BindFailedNote(pod, e.gang.Node(uid)), pod)
		}
	}
	if e.gang.Stranded(now) && !apimeta.IsStatusConditionTrue(e.latestGroup().Status.Conditions, ConditionPartlyBound) {
		add(events.ReasonPartlyBound, events.ReasonPartlyBound, e.partlyBoundNote(), nil)
	}
	return due
}

// takeLabelled returns the events about pods whose label would make them members of a gang of the other API, if
// spec.schedulingGroup did not name a group with a basic policy. Without the lead only those that have a node by now are forgotten.
func (e *entry) takeLabelled(leads bool) (due []events.Message) {
	if e.group == nil {
		return nil
	}
	for uid := range e.labelled {
		m := e.pods[uid]
		if m != nil && !leads && m.pod.Spec.NodeName == "" {
			continue
		}
		delete(e.labelled, uid)
		if m != nil && leads && e.group.Spec.SchedulingPolicy.Basic != nil {
			due = append(due, events.About(m.pod, reasonLabelIgnored, fmt.Sprintf(
				"the label %s: %s makes this pod no member of a gang, because its spec.schedulingGroup names a PodGroup of scheduling.k8s.io, which has a basic policy; the pod is bound without waiting for others. "+
					"A Job that is to be a gang needs spec.scheduling with a gang policy", v1alpha1.PodGroupLabel, m.pod.Labels[v1alpha1.PodGroupLabel])))
		}
	}
	slices.SortFunc(due, func(a, b events.Message) int {
		return cmp.Compare(a.Regarding.(*v1.Pod).Name, b.Regarding.(*v1.Pod).Name) //nolint:forcetypeassert // they are all about pods
	})
	return due
}

func (e *entry) partlyBoundNote() string {
	live, _, settled := e.gang.Counts()
	return fmt.Sprintf("%d of %d members are bound, and the other %d have not joined them for a long time; the bound members keep running",
		settled, e.gang.MinMember(), live-settled)
}

// reference refers to a PodGroup, for events.
func reference(group *schedulingv1beta1.PodGroup) *v1.ObjectReference {
	return events.PodGroup(schedulingv1beta1.SchemeGroupVersion, podgroup.Key(group), group.UID)
}
