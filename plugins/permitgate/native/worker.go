package native

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// reasonLabelIgnored is the reason of the event about a pod with the label of the other API that is in no gang.
const reasonLabelIgnored = "PodGroupLabelIgnored"

// job is what the worker takes out of the lock.
type job struct {
	actions  gang.Actions
	failure  string // why the members that are sent back are
	group    *schedulingv1beta1.PodGroup
	pods     map[types.UID]*v1.Pod // those of the actions that are known
	events   []events.Message
	rewrites bool // the conditions or nominations may be wrong
}

// act carries out what a gang decides. Only the worker calls it; it holds no lock while it calls the scheduling queue and waiting pods.
func (g *Gangs) act(ctx context.Context, key types.NamespacedName) {
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	j, ok := g.take(key)
	if !ok {
		return
	}
	if r := j.actions.Rollback; r != nil {
		logger.V(2).Info("Native gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	if j.actions.BecameWhole {
		logger.V(2).Info("Native gang is whole", "after", j.actions.TimeToWhole)
	}
	g.config.Acted(&j.actions)
	g.config.SendBack(j.actions.Reject, j.pods, "PodGroup "+key.String()+": the gang was rolled back: "+j.failure)
	for _, r := range j.actions.Rehearse {
		g.rehearser.Begin(key, r)
	}
	if len(j.actions.Probe) > 0 {
		released := g.config.Release(j.actions.Probe, j.pods, func(ready []types.UID) (released []types.UID) {
			g.change(key, func(e *entry, now time.Time) { released = e.gang.Release(ready, now) })
			return released
		})
		if released > 0 {
			logger.V(3).Info("Native gang released", "members", released)
		}
	}
	for _, uid := range j.actions.Activate {
		if pod := j.pods[uid]; pod != nil {
			logger.V(4).Info("Activating the group", "pod", klog.KObj(pod))
			g.config.Handle(pod.Spec.SchedulerName).Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
		}
	}
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
	defer g.settleKeptLocked(e)
	defer g.settleRoomLocked(e)
	now := g.config.Clock.Now()
	if again := g.settleCycleLocked(e, now); !again.IsZero() {
		g.agenda.AddAt(key, again)
	}
	j.actions = e.gang.Act(now)
	e.barrier.Answer()
	j.actions.Activate = append(j.actions.Activate, g.takeWokenLocked(e, now)...)
	if r := j.actions.Rollback; r != nil {
		e.noteRolledBack(r.Cause)
	}
	if e.refusalDue {
		j.actions.Rollbacks = addOne(j.actions.Rollbacks, e.refusal.Cause)
	}
	j.failure, j.group = e.gang.LastRollback().Detail, e.group
	j.pods = map[types.UID]*v1.Pod{}
	for _, uid := range slices.Concat(j.actions.Probe, j.actions.Reject, j.actions.Activate) {
		if m := e.pods[uid]; m != nil {
			j.pods[uid] = m.pod
		}
	}
	j.events = append(e.dueEvents(&j.actions, now), e.takeLabelled(g.leads)...)
	e.refusalDue = false
	if e.tooFewSince(now) > 0 && now.Before(e.arrivedAt.Add(arrivalGrace)) {
		g.agenda.AddAt(key, e.arrivedAt.Add(arrivalGrace))
	}
	j.rewrites = len(j.actions.BindFailed) > 0 || j.actions.Rollback != nil || len(e.wrongConditions(now)) > 0
	if next := j.actions.Next; !next.IsZero() {
		if soonest := now.Add(time.Millisecond); next.Before(soonest) {
			next = soonest
		}
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

func addOne(counts map[gang.Cause]int, cause gang.Cause) map[gang.Cause]int {
	if counts == nil {
		counts = map[gang.Cause]int{}
	}
	counts[cause]++
	return counts
}

// dueEvents returns the due events about a gang.
func (e *entry) dueEvents(actions *gang.Actions, now time.Time) (due []events.Message) {
	if e.group == nil {
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
	pod := func(uid types.UID) *v1.Pod {
		if m := e.pods[uid]; m != nil {
			return m.pod
		}
		return nil
	}
	if r := actions.Rollback; r != nil {
		add(string(r.Cause), events.ReasonRolledBack, e.rollbackNote(r), pod(r.Member))
	}
	if e.refusalDue {
		add(string(e.refusal.Cause), events.ReasonRolledBack, e.refusal.Detail, nil)
	}
	for _, uid := range actions.BindFailed {
		if m := e.pods[uid]; m != nil {
			add(events.ReasonBindFailed, events.ReasonBindFailed,
				fmt.Sprintf("member %s: its bind to node %s failed after the gang had been released; the node is kept for the member", m.pod.Name, m.node), m.pod)
		}
	}
	if actions.Stranded {
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

func (e *entry) rollbackNote(r *gang.Rollback) string {
	note := r.Detail
	if m := e.pods[r.Member]; m != nil {
		note = "member " + m.pod.Name + ": " + note
	}
	if r.Rejected > 0 {
		note += fmt.Sprintf("; %d waiting members were sent back", r.Rejected)
	}
	return note
}

func (e *entry) partlyBoundNote() string {
	live, _, settled := e.gang.Counts()
	return fmt.Sprintf("%d of %d members are bound, and the other %d have not joined them for a long time; %s",
		settled, e.gang.MinMember(), live-settled, podgroup.FateOfBoundMembers(e.group))
}

// reference refers to a PodGroup, for events.
func reference(group *schedulingv1beta1.PodGroup) *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "PodGroup",
		Namespace: group.Namespace, Name: group.Name, UID: group.UID,
	}
}
