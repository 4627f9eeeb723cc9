package permitgate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/pods"
	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/preempt"
)

// eventHandlers passes informers' events to the gangs. Its handlers run before or after the scheduler's own.
type eventHandlers struct {
	*Shared
	handle fwk.Handle
	claims *claims
	logger klog.Logger
}

// watch starts the handlers, and returns functions that report whether they have seen the first lists.
func (f *eventHandlers) watch(factory informers.SharedInformerFactory) ([]toolscache.InformerSynced, error) {
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(informer.Funcs[*v1.Pod]{
		Add: func(pod *v1.Pod, _ bool) {
			f.podSeen(pod)
			_, member := podgroup.Of(pod)
			if member && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" && f.profiles.has(pod.Spec.SchedulerName) { // after a restart
				upstream.KeepNomination(f.logger, f.handle, preempt.NewPodInfo(pod))
			}
		},
		Update: func(before, after *v1.Pod) {
			old, _ := f.gangs.memberOf(before)
			if id, _ := f.gangs.memberOf(after); id != old {
				f.memberGone(before)
			}
			if before.Spec.NodeName != "" && shrinks(before, after) {
				f.gangs.freed.note()
			}
			f.podSeen(after)
		},
		Delete: f.podGone,
	})
	if err != nil {
		return nil, err
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(informer.Funcs[*v1.Node]{
		Add: func(*v1.Node, bool) { f.gangs.freed.note() },
		Update: func(before, after *v1.Node) {
			if nodeMayFitMore(before, after) {
				f.gangs.freed.note()
			}
			if gone := after.DeletionTimestamp != nil; gone && before.DeletionTimestamp == nil || nodeCloses(before, after) {
				f.gangs.loseNode(after.Name, gone)
			}
		},
		Delete: func(node *v1.Node) { f.gangs.loseNode(node.Name, true) },
	})
	if err != nil {
		return nil, err
	}
	synced := []toolscache.InformerSynced{pods.HasSynced, nodes.HasSynced}
	watched, err := f.claims.watch(factory, f.claimCreated)
	return append(synced, watched...), err
}

// nodeCloses reports whether a node has been cordoned or has got a taint that keeps pods off.
func nodeCloses(before, after *v1.Node) bool {
	if after.Spec.Unschedulable && !before.Spec.Unschedulable {
		return true
	}
	return slices.ContainsFunc(after.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(before.Spec.Taints, func(old v1.Taint) bool { return old.MatchTaint(&t) })
	})
}

// claimCreated has members looked at again that lacked a claim.
func (f *eventHandlers) claimCreated(ref claimRef) {
	for _, id := range f.gangs.lacking(ref) {
		f.gangs.change(id, func(e *gangEntry, now time.Time) {
			for _, m := range e.pods {
				if m.absent == ref {
					f.updateMember(e, m.pod, now)
				}
			}
		})
	}
}

// shrinks reports whether a bound pod requests less of any resource than before.
func shrinks(before, after *v1.Pod) bool {
	if before.Generation == after.Generation && before.Status.ObservedGeneration == after.Status.ObservedGeneration {
		return false
	}
	opts := resource.PodResourcesOptions{UseStatusResources: true}
	requests := resource.PodRequests(after, opts)
	for name, old := range resource.PodRequests(before, opts) {
		if request := requests[name]; request.Cmp(old) < 0 {
			return true
		}
	}
	return false
}

// podSeen handles the current state of a pod. The informer leaves out finished pods.
func (f *eventHandlers) podSeen(pod *v1.Pod) {
	id, ok := f.gangs.memberOf(pod)
	left := f.nominations.set(pod)
	if !ok {
		if left {
			f.gangs.freed.note()
		}
		return
	}
	if !pods.Live(pod) {
		if pod.Spec.NodeName == "" {
			f.handle.DeleteNominatedPodIfExists(pod) // no cycle ends it any more, and a finalizer may keep the pod for long
			f.server.PodLeaves(pod)
		}
		f.memberGone(pod)
		return
	}
	kept := ""
	f.gangs.change(id, func(e *gangEntry, now time.Time) {
		f.updateMember(e, pod, now)
		kept = e.keptNode(pod.UID)
	})
	if pod.Spec.NodeName == "" && (pod.Status.NominatedNodeName != "" || kept != "") {
		f.server.CheckNominations(id)
	}
}

// updateMember takes the current state of a live pod into its gang. Its claims are looked at on the lock, so that the
// event of one that is created now finds the member. Whether members of a native gang have claims, and which scheduler
// they name, is for kube-scheduler, which keeps the whole group then.
func (f *eventHandlers) updateMember(e *gangEntry, pod *v1.Pod, now time.Time) {
	m, keptOut := &member{pod: pod}, false
	if !e.id.Native {
		m.absent = f.claims.absentOf(pod)
		keptOut = m.absent != (claimRef{}) || !f.profiles.has(pod.Spec.SchedulerName)
	}
	e.updateMember(m, keptOut, now)
}

// updateMember takes the current state of a live pod. One without a node cannot be awaited if it has scheduling gates,
// or is kept out of its gang's cycles.
func (e *gangEntry) updateMember(m *member, keptOut bool, now time.Time) {
	pod := m.pod
	held := (keptOut || len(pod.Spec.SchedulingGates) > 0) && pod.Spec.NodeName == ""
	switch old := e.pods[pod.UID]; {
	case old == nil:
		m.read()
	case old.pod.Generation == pod.Generation && old.pod.Spec.NodeName == pod.Spec.NodeName && maps.Equal(old.pod.Labels, pod.Labels):
		m.signature, m.onAnyNode, m.amounts = old.signature, old.onAnyNode, old.amounts
	default:
		m.read()
		if old.signature != m.signature && !e.id.Native {
			e.gang.Changed(now)
		}
	}
	e.add(pod.UID, m)
	e.gang.SetPod(pod.UID, gang.Pod{Bound: pod.Spec.NodeName != "", Held: held, Template: m.template()}, now)
}

// podGone handles the end of a pod: its node has room.
func (f *eventHandlers) podGone(pod *v1.Pod) {
	if f.nominations.delete(pod.UID) || pod.Spec.NodeName != "" {
		f.gangs.freed.note()
	}
	// It may have been the victim of a pod, which kube-scheduler retries when the victim leaves its node, but not until
	// the victim is deleted. One whose binding cycle was stopped leaves its node first, and its deletion is no event then.
	if _, member := podgroup.Of(pod); pod.Spec.NodeName == "" && (member || preempted(pod)) {
		f.gangs.freed.notePreemptors()
	}
	f.preemptor.Gone(pod.UID)
	f.memberGone(pod)
}

// preempted reports whether a scheduler has deleted a pod to make room.
func preempted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}

// memberGone handles a pod that is no longer a member. It may never have been one that lives.
func (f *eventHandlers) memberGone(pod *v1.Pod) {
	id, ok := f.gangs.memberOf(pod)
	if ok && f.gangs.update(id, func(e *gangEntry, now time.Time) {
		e.noteLost(pod)
		e.remove(pod.UID)
		e.gang.DeletePod(pod.UID, now)
		e.lastCycle.happened = e.lastCycle.happened && e.unbound > 0
	}) {
		f.gangs.agenda.Add(id)
	}
}

// groupSeen handles the current state of a PodGroup. A terminating one still counts: its finalizers may take
// long, and no other can have its name meanwhile.
func (f *eventHandlers) groupSeen(group *podgroup.Group) {
	f.gangs.change(group.ID, func(e *gangEntry, now time.Time) {
		if e.setGroup(group, now) && e.id.Native {
			e.changedAt = now
			f.gangs.wakeLocked(e, now)
			e.latest = now
		}
	})
}

// setGroup takes the current state of the PodGroup, and reports whether what it asks for has changed.
func (e *gangEntry) setGroup(group *podgroup.Group, now time.Time) (changed bool) {
	before := e.group
	e.group = group
	packed := before == nil || before.GetUID() != group.GetUID() || before.Topology != group.Topology // in another way than before
	changed = before != nil && (packed || before.GetGeneration() != group.GetGeneration())
	if packed || e.id.Native && changed {
		e.tried = nil
	}
	if group.Gang == nil {
		e.gang.DeleteGroup(now)
	} else {
		e.gang.SetGroup(*group.Gang, now)
	}
	return changed
}
