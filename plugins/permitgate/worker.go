package permitgate

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/execute"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/serve"
)

// worker carries out what the gangs decide. It is the only goroutine that calls the scheduling queue and waiting pods
// for that, and it does so without locks.
type worker struct {
	executor    execute.Executor
	gangs       *gangs
	freed       *freedRoom
	nominations *nominations
	queue       *gangQueue
	profiles    *profiles
	leading     <-chan struct{}
	// report hears what has become of a gang.
	report func(ctx context.Context, r serve.Report)
}

// gangWork is what the worker takes out of the lock.
type gangWork struct {
	execute.Work
	report serve.Report
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
	ended, refused, again := w.gangs.keeping.takeEnded(now)
	if ended {
		logger.V(4).Info("Nodes are not kept any more", "pods", len(refused))
		w.profiles.any().Activate(logger, refused)
		w.freed.note(clusterKey)
	}
	w.gangs.actAt(clusterKey, again)
	preemptors, again := w.freed.wake(now)
	w.gangs.actAt(clusterKey, again)
	if preemptors {
		nominated := w.nominations.all()
		maps.DeleteFunc(nominated, func(_ string, pod *v1.Pod) bool { return !w.gangs.preemptsAlone(pod) })
		w.profiles.any().Activate(logger, nominated)
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
	for _, pod := range work.unnominated {
		w.profiles.any().DeleteNominatedPodIfExists(pod)
	}
	w.executor.Do(logger, key, &work.Work, func(ready []types.UID) (released []types.UID) {
		w.gangs.update(key, func(e *gangEntry, now time.Time) { released = e.gang.Release(ready, now) })
		if len(released) > 0 {
			w.gangs.agenda.Add(key)
		}
		return released
	})
	w.report(ctx, work.report)
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
	work.Work = execute.NewWork(e.gang, actions, e.podOf)
	slices.SortFunc(work.Activate, func(a, b *v1.Pod) int { return byAge(a, b, nil) })
	work.report = serve.Report{Key: key, Actions: actions}
	if r := actions.Rollback; r != nil {
		work.report.Member = e.podOf(r.Member)
	}
	for _, uid := range actions.BindFailed {
		if pod := e.podOf(uid); pod != nil {
			work.report.BindFailed, work.report.Node = pod, e.gang.Node(uid)
		}
	}
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
	w.gangs.actAt(key, actions.Next)
	return work, true
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
	w.gangs.actAt(clusterKey, again)
}
