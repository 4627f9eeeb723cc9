package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// work carries out what the gangs decide, until the queue is shut down. It is the only goroutine that
// calls the scheduling queue and waiting pods, and it does so without the lock.
func (s *Shared) work(ctx context.Context) {
	for {
		key, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		s.process(ctx, key)
		s.queue.Done(key)
	}
}

// waiter is a member that may wait in Permit or at the barrier.
type waiter struct {
	uid    types.UID
	handle fwk.Handle
}

// job is what process takes out of the lock.
type job struct {
	phase    gang.Phase
	actions  gang.Actions
	failure  string // what the waiting members that are sent back are told
	probe    []waiter
	commit   []waiter
	reject   []waiter
	activate map[string]*v1.Pod
	messages []message
	recover  bool
	again    time.Duration // when to look again; 0 means not by time
}

// sendBack ends the attempt of a member that waits in Permit or is being prepared for its bind; it does
// nothing to one that the framework lists as neither.
func (w waiter) sendBack(why string) {
	if waiting := w.handle.GetWaitingPod(w.uid); waiting != nil {
		waiting.Reject(Name, why)
	} else if preparing := w.handle.GetPodInPreBind(w.uid); preparing != nil {
		preparing.CancelPod(why)
	}
}

// process does what is to be done for one gang now.
func (s *Shared) process(ctx context.Context, key types.NamespacedName) {
	logger := klog.FromContext(ctx).WithValues("podGroup", key)
	defer s.wakeOthers(ctx)
	j, ok := s.take(key)
	if !ok {
		return
	}
	if r := j.actions.Rollback; r != nil {
		logger.V(2).Info("Gang rolled back", "cause", r.Cause, "member", r.Member, "detail", r.Detail, "rejected", r.Rejected, "backoff", r.Backoff)
	}
	for cause, n := range j.actions.Rollbacks {
		rollbacks.WithLabelValues(string(cause)).Add(float64(n))
	}
	for _, w := range j.reject {
		w.sendBack("PodGroup " + key.String() + ": the gang was rolled back: " + j.failure)
	}
	for _, r := range j.actions.Rehearse {
		s.rehearsals.Add(rehearsal{key, r})
	}
	if j.recover {
		s.recoveries.Add(key)
	}
	if len(j.commit) > 0 {
		s.commit(logger, key, j.commit)
	}
	if len(j.probe) > 0 && s.release(logger, key, j.probe) {
		s.queue.Add(key)
	}
	if len(j.activate) > 0 {
		logger.V(4).Info("Activating members", "members", len(j.activate), "phase", j.phase)
		s.anyHandle().Activate(logger, j.activate)
	}
	if j.actions.BecameWhole {
		logger.V(2).Info("Gang is whole", "after", j.actions.TimeToWhole)
		timeToWhole.Observe(j.actions.TimeToWhole.Seconds())
	}
	for _, m := range j.messages {
		m.send(logger)
	}
	if j.again > 0 {
		s.queue.AddAfter(key, j.again)
	}
}

// take asks a gang what is to be done, and gathers what that needs.
func (s *Shared) take(key types.NamespacedName) (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.gangs[key]
	if !ok {
		return job{}, false
	}
	now := time.Now()
	e.gang.SetRehearse(s.rehearsesLocked(key.Namespace), now)
	j := job{actions: e.gang.Act(now)}
	s.settledLocked(e)
	j.phase, j.failure = e.gang.Phase(), e.gang.LastFailure()
	j.probe = s.waitersLocked(e, j.actions.Probe)
	if j.actions.Rollback != nil {
		for uid := range e.pods {
			s.checkNominationLocked(e, uid)
		}
	}
	if j.actions.Stranded && e.group != nil {
		policy, _ := recoveryPolicyOf(e.group, s.args.RecoveryPolicy)
		j.recover = policy == RecoveryEvict
	}
	j.commit = s.waitersLocked(e, j.actions.Commit)
	j.reject = s.waitersLocked(e, j.actions.Reject)
	if n := len(j.actions.Activate); n > 0 {
		j.activate = make(map[string]*v1.Pod, n)
		for _, uid := range j.actions.Activate {
			if pod := e.pods[uid]; pod != nil {
				j.activate[keyOf(pod).String()] = pod
			}
		}
	}
	if !j.actions.Next.IsZero() {
		j.again = max(j.actions.Next.Sub(now), time.Millisecond)
	}
	var due time.Duration
	j.messages, due = s.messagesLocked(e, j.actions, now)
	if due > 0 && (j.again == 0 || due < j.again) {
		j.again = due
	}
	return j, true
}

// waitersLocked pairs members with the handle of their profile. A member that is gone from the informer
// may be in any profile.
func (s *Shared) waitersLocked(e *entry, uids []types.UID) []waiter {
	var ws []waiter
	for _, uid := range uids {
		if pod := e.pods[uid]; pod != nil {
			if h := s.profiles[pod.Spec.SchedulerName]; h != nil {
				ws = append(ws, waiter{uid, h})
			}
			continue
		}
		for _, h := range s.profiles {
			ws = append(ws, waiter{uid, h})
		}
	}
	return ws
}

// release lets the members go together that wait in Permit for this plugin alone, and reports whether it did. The
// framework adds a waiting pod only after Permit has returned, so that a member may not be found at first;
// the gang then asks again.
func (s *Shared) release(logger klog.Logger, key types.NamespacedName, members []waiter) bool {
	ready := make([]types.UID, 0, len(members))
	waiting := make(map[types.UID]fwk.WaitingPod, len(members))
	for _, w := range members {
		pod := w.handle.GetWaitingPod(w.uid)
		if pod == nil {
			continue
		}
		if pending := pod.GetPendingPlugins(); len(pending) == 1 && pending[0] == Name {
			ready = append(ready, w.uid)
			waiting[w.uid] = pod
		}
	}
	var released []types.UID
	s.look(key, func(e *entry, now time.Time) { released = e.gang.Release(ready, now) })
	for _, uid := range released {
		waiting[uid].Allow(Name)
	}
	if len(released) > 0 {
		logger.V(3).Info("Gang let go", "members", len(released))
	}
	return len(released) > 0
}

// anyHandle returns a handle for what all profiles have in common, such as the scheduling queue.
func (s *Shared) anyHandle() fwk.Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.profiles {
		return h
	}
	return nil
}
