package permitgate

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/serve"
	"zonewise.dev/plugins/permitgate/waiting"
)

// worker carries out what the gangs decide. It is the only goroutine that calls the scheduling queue and waiting pods
// for that, and it does so without locks.
type worker struct {
	gangs       *gangs
	freed       *freedRoom
	nominations *nominations
	queue       *gangQueue
	profiles    *profiles
	leading     <-chan struct{}
	// rehearse begins a rehearsal.
	rehearse func(key types.NamespacedName, r gang.Rehearsal)
	// report hears what has become of a gang.
	report func(ctx context.Context, r serve.Report)
}

// gangWork is what the worker takes out of the lock.
type gangWork struct {
	report   serve.Report
	phase    gang.Phase
	failure  string // why the members that are sent back are
	probe    []waitingMember
	reject   []waitingMember
	activate []*v1.Pod // the oldest first
	// unnominated are members for which a preemption keeps nothing any more.
	unnominated []*v1.Pod
}

// waitingMember is a member that may wait in Permit or at the barrier.
type waitingMember struct {
	uid    types.UID
	handle fwk.Handle
}

// act does what is to be done now: for one gang, or for all together.
func (w *worker) act(ctx context.Context, key types.NamespacedName) {
	if key == clusterKey {
		w.actOnCluster(klog.FromContext(ctx))
	} else {
		w.actOnGang(ctx, key)
	}
	w.admitNext()
}

// actOnCluster wakes those that may be helped by what has changed for all.
func (w *worker) actOnCluster(logger klog.Logger) {
	if w.gangs.victimGone.Swap(false) {
		w.profiles.any().Activate(logger, w.nominations.preemptors())
	}
	now := w.gangs.clock.Now()
	ended, refused, again := w.gangs.collecting.takeEnded(now)
	if ended {
		logger.V(4).Info("No gang collects room any more", "pods", len(refused))
		w.profiles.any().Activate(logger, refused)
		w.freed.note(clusterKey)
	}
	if !again.IsZero() {
		w.gangs.agenda.AddAt(clusterKey, again)
	}
	w.gangs.dropReturned(now)
	if again := w.freed.wake(now); !again.IsZero() {
		w.gangs.agenda.AddAt(clusterKey, again)
	}
}

// actOnGang carries out what a gang has decided.
func (w *worker) actOnGang(ctx context.Context, key types.NamespacedName) {
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	work, ok := w.take(key)
	if !ok {
		w.queue.remove(key)
		w.report(ctx, serve.Report{Key: key, Gone: true})
		return
	}
	w.log(logger, &work)
	handle := w.profiles.any()
	for _, pod := range work.unnominated {
		handle.DeleteNominatedPodIfExists(pod)
	}
	for _, member := range work.reject {
		waiting.SendBack(member.handle, member.uid, Name, "PodGroup "+key.String()+": the gang was rolled back: "+work.failure)
	}
	for _, r := range work.report.Actions.Rehearse {
		w.rehearse(key, r)
	}
	if len(work.probe) > 0 {
		w.release(logger, key, work.probe)
	}
	if len(work.activate) > 0 {
		logger.V(4).Info("Activating members", "members", len(work.activate), "phase", work.phase)
		for _, pod := range work.activate { // one by one: the queue keeps the order of those that it gets at the same time
			handle.Activate(logger, map[string]*v1.Pod{podgroup.Key(pod).String(): pod})
		}
	}
	w.report(ctx, work.report)
}

func (w *worker) log(logger klog.Logger, work *gangWork) {
	if r := work.report.Actions.Rollback; r != nil {
		logger.V(2).Info("Gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	if work.report.Actions.BecameWhole {
		logger.V(2).Info("Gang is whole", "after", work.report.Actions.TimeToWhole)
	}
	observe(&work.report.Actions)
}

// observe counts what a gang has done.
func observe(actions *gang.Actions) {
	for cause, n := range actions.Rollbacks {
		rollbacks.WithLabelValues(string(cause)).Add(float64(n))
	}
	if actions.BecameWhole {
		timeToWhole.Observe(actions.TimeToWhole.Seconds())
	}
}

// take asks a gang what is to be done, and gathers what that needs.
func (w *worker) take(key types.NamespacedName) (work gangWork, ok bool) {
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	e, ok := w.gangs.byKey[key]
	if !ok {
		return work, false
	}
	now := w.gangs.clock.Now()
	actions := e.gang.Act(now)
	w.gangs.afterChangeLocked(e)
	work.phase, work.failure = e.gang.Phase(), e.gang.LastRollback().Detail
	work.report = serve.Report{Key: key, Actions: actions}
	if r := actions.Rollback; r != nil {
		if m := e.pods[r.Member]; m != nil {
			work.report.Member = m.pod
		}
	}
	for _, uid := range actions.BindFailed {
		if m := e.pods[uid]; m != nil {
			work.report.BindFailed, work.report.Node = m.pod, m.node
		}
	}
	work.probe = w.waitingMembers(e, actions.Probe)
	work.reject = w.waitingMembers(e, actions.Reject)
	for _, uid := range actions.Activate {
		if m := e.pods[uid]; m != nil {
			work.activate = append(work.activate, m.pod)
		}
	}
	slices.SortFunc(work.activate, func(a, b *v1.Pod) int { return byAge(a, b, nil) })
	if e.preempting == nil {
		work.unnominated = e.unnominated
	}
	e.unnominated = nil
	if w.gangs.forgetLocked(e) {
		w.queue.remove(key)
		work.report.Gone = true
		return work, true
	}
	if e.gang.Ready() {
		w.queue.update(e.rank(), e.gang.Admitted())
	} else {
		w.queue.remove(key)
	}
	if !actions.Next.IsZero() {
		w.gangs.agenda.AddAt(key, later(actions.Next, now.Add(time.Millisecond)))
	}
	return work, true
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// admitNext lets the gangs that are next send their scouts. On a replica that does not lead there are no cycles for
// them.
func (w *worker) admitNext() {
	select {
	case <-w.leading:
	default:
		return
	}
	now := w.gangs.clock.Now()
	keys, again := w.queue.next(now)
	for _, key := range keys {
		w.gangs.change(key, func(e *gangEntry, now time.Time) { e.gang.Admit(now) })
	}
	if !again.IsZero() {
		w.gangs.agenda.AddAt(clusterKey, again)
	}
}

// waitingMembers pairs members with the handle of their profile. A member that is gone from the informer
// may be in any profile.
func (w *worker) waitingMembers(e *gangEntry, uids []types.UID) []waitingMember {
	var found []waitingMember
	for _, uid := range uids {
		if m := e.pods[uid]; m != nil {
			if h := w.profiles.of(m.pod.Spec.SchedulerName); h != nil {
				found = append(found, waitingMember{uid, h})
			}
			continue
		}
		for _, h := range w.profiles.all() {
			found = append(found, waitingMember{uid, h})
		}
	}
	return found
}

// release releases the members together that wait in Permit for this plugin alone. The gang asks again about those that
// are not found.
func (w *worker) release(logger klog.Logger, key types.NamespacedName, members []waitingMember) {
	ready := make(map[types.UID]fwk.WaitingPod, len(members))
	for _, member := range members {
		if pod := waiting.For(member.handle, member.uid, Name); pod != nil {
			ready[member.uid] = pod
		}
	}
	var released []types.UID
	w.gangs.update(key, func(e *gangEntry, now time.Time) { released = e.gang.Release(slices.Collect(maps.Keys(ready)), now) })
	for _, uid := range released {
		ready[uid].Allow(Name)
	}
	if len(released) > 0 {
		logger.V(3).Info("Gang released", "members", len(released))
		w.gangs.agenda.Add(key)
	}
}
