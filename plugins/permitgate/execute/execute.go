// Package execute carries out what a gang has decided: it sends members back, has binds rehearsed, and releases and
// activates members. It takes kube-scheduler's locks: call it without others.
package execute

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Executor carries out the decisions of gangs.
type Executor struct {
	// Plugin is in whose name members wait and are sent back.
	Plugin string
	// Handle returns that of the profile with a name, or of any when it has no such plugin; Handles returns all.
	Handle  func(profile string) fwk.Handle
	Handles func() []fwk.Handle
	// Rehearse has a bind rehearsed.
	Rehearse func(id podgroup.ID, r gang.Rehearsal)
	// Observe counts what a gang has done.
	Observe func(actions *gang.Actions)
}

// Work is what a gang has decided, with the pods that it is about.
type Work struct {
	Actions gang.Actions
	// Activate are the members to be activated, in this order.
	Activate []*v1.Pod

	failure string // why members are sent back
	pods    map[types.UID]*v1.Pod
}

// NewWork returns the work of a gang. pod returns that of a member, nil if it is gone.
func NewWork(g *gang.Gang, actions gang.Actions, pod func(uid types.UID) *v1.Pod) Work {
	w := Work{Actions: actions, failure: g.LastRollback().Detail, pods: map[types.UID]*v1.Pod{}}
	for _, uid := range slices.Concat(actions.Probe, actions.Reject) {
		w.pods[uid] = pod(uid)
	}
	for _, uid := range actions.Activate {
		if member := pod(uid); member != nil {
			w.Activate = append(w.Activate, member)
		}
	}
	return w
}

// Do carries out the work of a gang. Of the members that wait only for the gang, release says which are
// released.
func (x *Executor) Do(logger klog.Logger, id podgroup.ID, w *Work, release func(ready []types.UID) (released []types.UID)) {
	if r := w.Actions.Rollback; r != nil {
		logger.V(2).Info("Gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	if w.Actions.BecameWhole {
		logger.V(2).Info("Gang is whole", "after", w.Actions.TimeToWhole)
	}
	x.Observe(&w.Actions)
	for _, uid := range w.Actions.Reject {
		for _, h := range x.handlesFor(w.pods[uid]) {
			x.sendBack(h, uid, "PodGroup "+id.String()+": the gang was rolled back: "+w.failure)
		}
	}
	for _, r := range w.Actions.Rehearse {
		x.Rehearse(id, r)
	}
	if len(w.Actions.Probe) > 0 {
		x.release(logger, w, release)
	}
	if len(w.Activate) > 0 {
		logger.V(4).Info("Activating members", "members", len(w.Activate))
	}
	for _, pod := range w.Activate { // one by one: the queue keeps the order of those that it gets at the same time
		x.Handle(pod.Spec.SchedulerName).Activate(logger, map[string]*v1.Pod{podgroup.Key(pod).String(): pod})
	}
}

// handlesFor returns the handle of a pod's profile. A pod that is gone from the informer, which is nil, may be in any.
func (x *Executor) handlesFor(pod *v1.Pod) []fwk.Handle {
	if pod == nil {
		return x.Handles()
	}
	return []fwk.Handle{x.Handle(pod.Spec.SchedulerName)}
}

// sendBack ends the attempt of a pod, if the framework lists it as waiting or as being prepared.
func (x *Executor) sendBack(h fwk.Handle, uid types.UID, why string) {
	if waiting := h.GetWaitingPod(uid); waiting != nil {
		// kube-scheduler itself rejects a pod that is deleted, and notes a rejection under a read lock only: two of
		// them are a data race. Allow in the name of no plugin changes nothing, but takes the write lock, which orders
		// what is not at the very same moment.
		waiting.Allow("")
		waiting.Reject(x.Plugin, why)
		waiting.Allow("")
	} else if preparing := h.GetPodInPreBind(uid); preparing != nil {
		preparing.CancelPod(why)
	}
}

// release lets members go together that wait in Permit only for the plugin. The framework lists a waiting pod
// only after Permit has returned, so the gang asks again about those that are not found.
func (x *Executor) release(logger klog.Logger, w *Work, release func(ready []types.UID) (released []types.UID)) {
	waiting := map[types.UID]fwk.WaitingPod{}
	ready := make([]types.UID, 0, len(w.Actions.Probe))
	for _, uid := range w.Actions.Probe {
		for _, h := range x.handlesFor(w.pods[uid]) {
			pod := h.GetWaitingPod(uid)
			if pod == nil {
				continue
			}
			if pending := pod.GetPendingPlugins(); len(pending) == 1 && pending[0] == x.Plugin {
				waiting[uid] = pod
				ready = append(ready, uid)
			}
		}
	}
	released := release(ready)
	for _, uid := range released {
		waiting[uid].Allow(x.Plugin)
	}
	if len(released) > 0 {
		logger.V(3).Info("Gang released", "members", len(released))
	}
}
