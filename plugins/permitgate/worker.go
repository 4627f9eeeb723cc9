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
		if pods := w.gangs.takeRefused(); len(pods) > 0 {
			klog.FromContext(ctx).V(4).Info("Activating pods that found no node while a gang collected room", "pods", len(pods))
			w.profiles.any().Activate(klog.FromContext(ctx), pods)
		}
		if w.gangs.victimGone.Swap(false) {
			w.profiles.any().Activate(klog.FromContext(ctx), w.nominations.preemptors())
		}
		w.gangs.dropReturned(w.gangs.clock.Now())
		if again := w.freed.wake(w.gangs.clock.Now()); !again.IsZero() {
			w.gangs.agenda.AddAt(clusterKey, again)
		}
		w.admitNext()
		return
	}
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	j, ok := w.take(key)
	if !ok {
		w.queue.remove(key)
		w.report(ctx, serve.Report{Key: key, Gone: true})
		return
	}
	w.log(logger, &j)
	handle := w.profiles.any()
	for _, pod := range j.unnominated {
		handle.DeleteNominatedPodIfExists(pod)
	}
	for _, member := range j.reject {
		waiting.SendBack(member.handle, member.uid, Name, "PodGroup "+key.String()+": the gang was rolled back: "+j.failure)
	}
	for _, r := range j.report.Actions.Rehearse {
		w.rehearse(key, r)
	}
	if len(j.probe) > 0 {
		w.release(logger, key, j.probe)
	}
	if len(j.activate) > 0 {
		logger.V(4).Info("Activating members", "members", len(j.activate), "phase", j.phase)
		for _, pod := range j.activate { // one by one: the queue keeps the order of those that it gets at the same time
			handle.Activate(logger, map[string]*v1.Pod{podgroup.Key(pod).String(): pod})
		}
	}
	w.report(ctx, j.report)
	w.admitNext()
}

func (w *worker) log(logger klog.Logger, j *gangWork) {
	if r := j.report.Actions.Rollback; r != nil {
		logger.V(2).Info("Gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	if j.report.Actions.BecameWhole {
		logger.V(2).Info("Gang is whole", "after", j.report.Actions.TimeToWhole)
	}
	observe(&j.report.Actions)
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
func (w *worker) take(key types.NamespacedName) (j gangWork, ok bool) {
	w.gangs.mu.Lock()
	defer w.gangs.mu.Unlock()
	e, ok := w.gangs.byKey[key]
	if !ok {
		return j, false
	}
	now := w.gangs.clock.Now()
	actions := e.gang.Act(now)
	w.gangs.afterChangeLocked(e)
	j.phase, j.failure = e.gang.Phase(), e.gang.LastRollback().Detail
	j.report = serve.Report{Key: key, Actions: actions}
	if r := actions.Rollback; r != nil {
		if m := e.pods[r.Member]; m != nil {
			j.report.Member = m.pod
		}
	}
	for _, uid := range actions.BindFailed {
		if m := e.pods[uid]; m != nil {
			j.report.BindFailed, j.report.Node = m.pod, m.node
		}
	}
	j.probe = w.waiters(e, actions.Probe)
	j.reject = w.waiters(e, actions.Reject)
	for _, uid := range actions.Activate {
		if m := e.pods[uid]; m != nil {
			j.activate = append(j.activate, m.pod)
		}
	}
	slices.SortFunc(j.activate, func(a, b *v1.Pod) int { return byAge(a, b, nil) })
	if e.preempting == nil {
		j.unnominated = e.unnominated
	}
	e.unnominated = nil
	if w.gangs.forgetLocked(e) {
		w.queue.remove(key)
		j.report.Gone = true
		return j, true
	}
	if e.gang.Ready() {
		w.queue.update(e.rank(), e.gang.Admitted())
	} else {
		w.queue.remove(key)
	}
	if !actions.Next.IsZero() {
		w.gangs.agenda.AddAt(key, later(actions.Next, now.Add(time.Millisecond)))
	}
	return j, true
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

// waiters pairs members with the handle of their profile. A member that is gone from the informer
// may be in any profile.
func (w *worker) waiters(e *gangEntry, uids []types.UID) []waitingMember {
	var ws []waitingMember
	for _, uid := range uids {
		if m := e.pods[uid]; m != nil {
			if h := w.profiles.of(m.pod.Spec.SchedulerName); h != nil {
				ws = append(ws, waitingMember{uid, h})
			}
			continue
		}
		for _, h := range w.profiles.all() {
			ws = append(ws, waitingMember{uid, h})
		}
	}
	return ws
}

// release lets the members go together that wait in Permit for this plugin alone. The gang asks again about those that
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
