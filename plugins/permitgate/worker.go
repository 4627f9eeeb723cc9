package permitgate

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/serve"
	"zonewise.dev/plugins/permitgate/waiting"
)

// worker carries out what the gangs decide. It is the only goroutine that calls the scheduling queue and waiting pods
// for that, and it does so without locks.
type worker struct {
	waiting     waiting.Pods
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
	failure  string                // why the members that are sent back are
	pods     map[types.UID]*v1.Pod // those of the actions that are known
	activate []*v1.Pod             // the oldest first
	// unnominated are members for which a preemption keeps nothing any more.
	unnominated []*v1.Pod
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
	now := w.gangs.clock.Now()
	preemptors, again := w.nominations.takePreemptors(now)
	w.profiles.any().Activate(logger, preemptors)
	if !again.IsZero() {
		w.gangs.agenda.AddAt(clusterKey, again)
	}
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
	w.waiting.SendBack(work.report.Actions.Reject, work.pods, "PodGroup "+key.String()+": the gang was rolled back: "+work.failure)
	for _, r := range work.report.Actions.Rehearse {
		w.rehearse(key, r)
	}
	if len(work.report.Actions.Probe) > 0 {
		w.release(logger, key, &work)
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
	work.pods = map[types.UID]*v1.Pod{}
	for _, uid := range slices.Concat(actions.Probe, actions.Reject, actions.Activate) {
		if m := e.pods[uid]; m != nil {
			work.pods[uid] = m.pod
		}
	}
	for _, uid := range actions.Activate {
		if pod := work.pods[uid]; pod != nil {
			work.activate = append(work.activate, pod)
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

// release releases the members together that wait in Permit for this plugin alone. The gang asks again about those that
// are not found.
func (w *worker) release(logger klog.Logger, key types.NamespacedName, work *gangWork) {
	released := w.waiting.Release(work.report.Actions.Probe, work.pods, func(ready []types.UID) (released []types.UID) {
		w.gangs.update(key, func(e *gangEntry, now time.Time) { released = e.gang.Release(ready, now) })
		return released
	})
	if released > 0 {
		logger.V(3).Info("Gang released", "members", released)
		w.gangs.agenda.Add(key)
	}
}
