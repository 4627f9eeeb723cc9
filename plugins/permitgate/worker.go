package permitgate

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/serve"
)

// worker carries out what the gangs decide. It is the only goroutine that calls the scheduling queue and waiting pods
// for that, and it does so without locks.
type worker struct{ *Shared }

// gangWork is what the worker takes out of the lock.
type gangWork struct {
	report   serve.Report // with what the gang has decided
	activate []*v1.Pod    // the members to be activated, in this order
	failure  string       // why members are sent back
	// pods are those that may wait or are to be sent back, nil if they are gone.
	pods map[types.UID]*v1.Pod
	// unnominated are members for which a preemption keeps nothing any more.
	unnominated []*v1.Pod
}

// act does what is to be done now: for one gang, or for all together.
func (w *worker) act(ctx context.Context, id gangID) {
	if id == noGang {
		w.actOnCluster(klog.FromContext(ctx))
	} else {
		w.actOnGang(ctx, id)
	}
	w.admitNext(klog.FromContext(ctx))
}

// actOnCluster wakes those that may be helped by what has changed for all.
func (w *worker) actOnCluster(logger klog.Logger) {
	now := w.gangs.clock.Now()
	ended, refused, again := w.gangs.keeping.takeEnded(now)
	if ended {
		logger.V(4).Info("Nodes are not kept any more", "pods", len(refused))
		w.profiles.any().Activate(logger, refused)
		w.gangs.freed.note()
	}
	w.gangs.actAt(noGang, again)
	if w.holds != nil {
		owners, again := w.gangs.keeping.takeOwners(w.holds.Owns, now)
		w.profiles.any().Activate(logger, owners)
		w.gangs.actAt(noGang, again)
	}
	preemptors, again := w.gangs.freed.wake(now)
	w.gangs.actAt(noGang, again)
	if preemptors {
		nominated := w.nominations.all()
		maps.DeleteFunc(nominated, func(_ string, pod *v1.Pod) bool { return !w.gangs.preemptsAlone(pod) })
		w.profiles.any().Activate(logger, nominated)
	}
}

// actOnGang carries out what a gang has decided.
func (w *worker) actOnGang(ctx context.Context, id gangID) {
	logger := klog.FromContext(ctx).WithValues("podGroup", id, "native", id.Native)
	work, ok := w.take(id)
	if !ok {
		w.server.Report(ctx, serve.Report{ID: id, Gone: true})
		return
	}
	for _, pod := range work.unnominated {
		w.profiles.any().DeleteNominatedPodIfExists(pod)
	}
	w.execute(logger, id, &work)
	w.server.Report(ctx, work.report)
}

// observe counts what a gang has done.
func observe(actions *gang.Actions) {
	for _, cause := range actions.Rollbacks {
		rollbacks.WithLabelValues(string(cause)).Inc()
	}
	if actions.BecameWhole {
		timeToWhole.Observe(actions.TimeToWhole.Seconds())
	}
}

// take asks a gang what is to be done, and gathers what that needs.
func (w *worker) take(id gangID) (work gangWork, ok bool) {
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	e, ok := w.gangs.byID[id]
	if !ok {
		return work, false
	}
	now := w.gangs.clock.Now()
	w.gangs.settleCycleLocked(e, now)
	actions := e.gang.Act(now)
	e.noteRelease(&actions, now)
	w.gangs.afterChangeLocked(e)
	work.report = serve.Report{ID: id, Actions: actions}
	work.failure, work.pods = e.gang.LastRollback().Detail, map[types.UID]*v1.Pod{}
	for _, uid := range slices.Concat(actions.Probe, actions.Reject) {
		work.pods[uid] = e.podOf(uid)
	}
	for _, uid := range actions.Activate {
		if pod := e.podOf(uid); pod != nil {
			work.activate = append(work.activate, pod)
		}
	}
	slices.SortFunc(work.activate, func(a, b *v1.Pod) int { return byAge(a, b, nil) })
	if r := actions.Rollback; r != nil {
		work.report.Member = e.podOf(r.Member)
	}
	if e.preempting == nil {
		work.unnominated = e.unnominated
	}
	e.unnominated = nil
	if w.gangs.forgetLocked(e) {
		work.report.Gone = true
		return work, true
	}
	w.gangs.actAt(id, actions.Next)
	return work, true
}

// leads reports whether this process leads.
func (w *worker) leads() bool {
	select {
	case <-w.leader.Leading():
		return true
	default:
		return false
	}
}

// admitNext lets the gang that is next send its scouts, or activates it if it is a native one. On a replica that does
// not lead there are no cycles for them.
func (w *worker) admitNext(logger klog.Logger) {
	if w.leads() {
		pod, again := w.gangs.admitNext()
		w.gangs.actAt(noGang, again)
		if pod != nil {
			w.activate(logger, pod)
		}
	}
}
