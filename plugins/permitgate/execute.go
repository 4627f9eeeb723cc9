package permitgate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// execute carries out what a gang has decided: it sends members back, has binds rehearsed, and releases and activates
// members. It takes kube-scheduler's locks, and is called without others.
func (w *worker) execute(logger klog.Logger, id gangID, work *gangWork) {
	actions := &work.report.Actions
	if r := actions.Rollback; r != nil {
		logger.V(2).Info("Gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	if actions.BecameWhole {
		logger.V(2).Info("Gang is whole", "after", actions.TimeToWhole)
	}
	observe(actions)
	for _, uid := range actions.Reject {
		for _, h := range w.handlesFor(work.pods[uid]) {
			sendBack(h, uid, "PodGroup "+id.String()+": the gang was rolled back: "+work.failure)
		}
	}
	for _, r := range actions.Rehearse {
		w.rehearser.Begin(id, r)
	}
	if len(actions.Probe) > 0 {
		w.release(logger, id, work)
	}
	w.activate(logger, work.activate...)
}

// activate has the scheduling queue try members. It does so one by one: the queue keeps the order of those that it gets
// at the same time.
func (w *worker) activate(logger klog.Logger, members ...*v1.Pod) {
	if len(members) > 0 {
		logger.V(4).Info("Activating members", "members", len(members))
	}
	for _, pod := range members {
		w.profiles.orAny(pod.Spec.SchedulerName).Activate(logger, map[string]*v1.Pod{podgroup.Key(pod).String(): pod})
	}
}

// handlesFor returns the handle of a pod's profile. A pod that is gone from the informer, which is nil, may be in any.
func (w *worker) handlesFor(pod *v1.Pod) []fwk.Handle {
	if pod == nil {
		return w.profiles.all()
	}
	return []fwk.Handle{w.profiles.orAny(pod.Spec.SchedulerName)}
}

// sendBack ends the attempt of a pod, if the framework lists it as waiting or as being prepared.
func sendBack(h fwk.Handle, uid types.UID, why string) {
	if waiting := h.GetWaitingPod(uid); waiting != nil {
		// kube-scheduler itself rejects a pod that is deleted, and notes a rejection under a read lock only: two of
		// them are a data race. Allow in the name of no plugin changes nothing, but takes the write lock, which orders
		// what is not at the very same moment.
		waiting.Allow("")
		waiting.Reject(Name, why)
		waiting.Allow("")
	} else if preparing := h.GetPodInPreBind(uid); preparing != nil {
		preparing.CancelPod(why)
	}
}

// release lets members go together that wait in Permit only for this plugin. The framework lists a waiting pod
// only after Permit has returned, so the gang asks again about those that are not found.
func (w *worker) release(logger klog.Logger, id gangID, work *gangWork) {
	waiting := map[types.UID]fwk.WaitingPod{}
	ready := make([]types.UID, 0, len(work.report.Actions.Probe))
	for _, uid := range work.report.Actions.Probe {
		for _, h := range w.handlesFor(work.pods[uid]) {
			pod := h.GetWaitingPod(uid)
			if pod == nil {
				continue
			}
			if pending := pod.GetPendingPlugins(); len(pending) == 1 && pending[0] == Name {
				waiting[uid] = pod
				ready = append(ready, uid)
			}
		}
	}
	released := w.gangs.release(id, ready)
	for _, uid := range released {
		waiting[uid].Allow(Name)
	}
	if len(released) > 0 {
		logger.V(3).Info("Gang released", "members", len(released))
	}
}
