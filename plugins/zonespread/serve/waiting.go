package serve

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/zonespread/policy"
)

// wakeInterval is the resolution of the times at which pods are woken.
const wakeInterval = 50 * time.Millisecond

// Attempt is what a failed scheduling cycle of a pod shows about one of its policies.
type Attempt struct {
	Input
	// Refused is true if the policy refused a node.
	Refused bool
	// Full are the zones in which something else refused every node that is eligible for the pod, and Excluded those in
	// which one of its volumes refused some.
	Full     []string
	Excluded map[string]bool
	// ClosesAt is when a zone closes for the pod although others have open nodes there; zero if none does.
	ClosesAt time.Time
	// Scaling is how the zones stand that the policy's caps apply to.
	Scaling policy.Scaling
}

// waiter is a pod with policies that found no node when it was last tried.
type waiter struct {
	pod      *v1.Pod
	owner    types.UID // of its controller
	workload types.UID // of its top-level workload; empty if it is not known
	attempts int
	tried    time.Time
	// when it is tried again, its backoff apart; zero for when an event of the framework does that
	wake     time.Time
	refusals []*Attempt                 // by the policies that refused it a node
	excluded map[string]map[string]bool // zones that its volumes exclude, by topology key
}

// Attempted records that a pod found no node. It keeps the attempts.
func (s *Policies) Attempted(pod *v1.Pod, attempts []Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waitsLocked(pod) {
		return // the event of its end may have come before
	}
	now := s.clock.Now()
	w := &waiter{pod: pod, attempts: 1, tried: now, excluded: map[string]map[string]bool{}}
	if before := s.waiting[pod.UID]; before != nil {
		w.attempts += before.attempts
		s.forgetLocked(before)
	}
	s.waiting[pod.UID] = w
	for i := range attempts {
		a := &attempts[i]
		w.owner, w.workload = a.owner, a.workload
		w.excluded[a.TopologyKey()] = a.Excluded
		switch {
		case a.entry.applied == nil:
			s.wakeLocked(w, now) // it has ceased to apply during the attempt
		case a.Refused:
			s.refusedLocked(w, a)
		}
	}
}

// refusedLocked records that a policy held a pod back, and has it tried again when it may no longer.
func (s *Policies) refusedLocked(w *waiter, a *Attempt) {
	e := a.entry
	w.refusals = append(w.refusals, a)
	e.refused[w.pod.UID], e.stale = a, true
	if e.changes != a.changes || !maps.Equal(a.Excluded, a.Input.Excluded) {
		// something that may help happened during the attempt, or other zones take part now
		s.wakeLocked(w, w.tried)
	}
	if a.OwnerMissing {
		at := w.pod.CreationTimestamp.Add(ownerLimit)
		if _, missing := s.cluster.workload(w.pod.Namespace, ownerOf(w.pod)); !missing {
			at = w.tried
		}
		s.wakeLocked(w, at)
	}
	changed, full := false, false
	for _, zone := range a.Full {
		c, f := e.zones.RecordRefusal(w.tried, zone, a.runs)
		changed, full = changed || c, full || f
	}
	if changed {
		s.factsChangedLocked(e)
	}
	if full {
		s.wakeIfLocked(e, func(other *Attempt) bool { return other.runs == a.runs })
	}
	for _, at := range []time.Time{e.zones.NextWake(a.asOf, a.runs), a.ClosesAt} {
		if !at.IsZero() {
			s.wakeLocked(w, at)
		}
	}
}

// waitsLocked reports whether a pod is still there and has no node. What is not, ends in no event that is still to
// come.
func (s *Policies) waitsLocked(pod *v1.Pod) bool {
	latest, err := s.cluster.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && latest.UID == pod.UID && latest.Spec.NodeName == "" && latest.DeletionTimestamp == nil
}

// forgetLocked drops a pod that no longer waits, or is tried again.
func (s *Policies) forgetLocked(w *waiter) {
	delete(s.waiting, w.pod.UID)
	for _, a := range w.refusals {
		delete(a.entry.refused, w.pod.UID)
		a.entry.stale = true
	}
}

// dropRefusalsLocked drops the refusals of a policy that no longer applies. If it was the last one of its namespace, in
// which pods are not followed any more then, it drops their pods as well, except those that are about to be woken.
func (s *Policies) dropRefusalsLocked(e *entry) {
	for uid := range e.refused {
		w := s.waiting[uid]
		for i, a := range w.refusals {
			if a.entry == e {
				w.refusals = append(w.refusals[:i:i], w.refusals[i+1:]...)
				break
			}
		}
	}
	clear(e.refused)
	namespace := e.object.Latest.Namespace
	if s.active.hasNamespace(namespace) {
		return
	}
	for uid, w := range s.waiting {
		if w.wake.IsZero() && w.pod.Namespace == namespace {
			delete(s.waiting, uid)
		}
	}
}

// wakeAllLocked wakes the pods that a policy refused.
func (s *Policies) wakeAllLocked(e *entry) {
	s.wakeIfLocked(e, func(*Attempt) bool { return true })
}

// wakeIfLocked wakes the pods that a policy refused and that a change may help.
func (s *Policies) wakeIfLocked(e *entry, helps func(*Attempt) bool) {
	e.changes++
	now := s.clock.Now()
	for uid, a := range e.refused {
		if helps(a) {
			s.wakeLocked(s.waiting[uid], now)
		}
	}
}

// wakeLocked has a pod tried again at a time, but not before its backoff is over, which is that of the queue: after n
// attempts the initial one * 2^(n-1), and at most the longest.
func (s *Policies) wakeLocked(w *waiter, at time.Time) {
	initial, longest := s.podBackoff()
	backoff := longest
	if shift := w.attempts - 1; shift < 32 && initial<<shift < longest {
		backoff = initial << shift
	}
	if after := w.tried.Add(backoff); at.Before(after) {
		at = after
	}
	// Rounded up, so that many pods are woken together.
	at = at.Add(wakeInterval - 1).Truncate(wakeInterval)
	if w.wake.IsZero() || at.Before(w.wake) {
		w.wake = at
		s.wakes.AddAt(struct{}{}, at)
	}
}

// activate sends the pods that are to be woken by now back to the scheduling queue together, without a lock held. It is
// called by the only goroutine that calls the scheduling queue.
func (s *Policies) activate(ctx context.Context) {
	s.mu.Lock()
	now := s.clock.Now()
	pods := map[string]*v1.Pod{}
	for uid, w := range s.waiting {
		switch {
		case w.wake.IsZero():
		case w.wake.After(now):
			s.wakes.AddAt(struct{}{}, w.wake)
		default:
			w.wake = time.Time{}
			pods[w.pod.Namespace+"/"+w.pod.Name] = w.pod
			if len(w.refusals) == 0 {
				delete(s.waiting, uid) // its policy no longer applies
			}
		}
	}
	s.mu.Unlock()
	if len(pods) > 0 {
		logger := klog.FromContext(ctx)
		logger.V(4).Info("Activating pods that a ZoneSpreadPolicy refused", "pods", len(pods))
		s.handle.Activate(logger, pods)
	}
}

// ownerArrived wakes the pods of a controller that was not known when they were tried.
func (s *Policies) ownerArrived(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		if w.owner == uid && w.workload == "" {
			s.wakeLocked(w, s.clock.Now())
		}
	}
}

// rescaled wakes the pods of a workload whose desired replicas have changed, if caps follow them.
func (s *Policies) rescaled(namespace string, w *policy.Workload) {
	applied := s.active.inNamespace(namespace)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range applied {
		if a.ByOwner() && a.ScalesCaps() {
			s.wakeIfLocked(a.entry, func(refused *Attempt) bool { return refused.workload == w.UID })
		}
	}
}

// helpedByReplicas reports whether another number of replicas may help through the caps: a higher cap may admit the
// pod, and a zone that reaches a lower cap no longer holds others back. What the zones hold is as of the attempt: the
// pod has been woken already if a pod has come to the zone that holds others back, or has left one at its cap.
func (a *Attempt) helpedByReplicas(before, after int64) bool {
	if after > before {
		return a.Scaling.Helped(a.Policy, after)
	}
	return a.Scaling.Freed(a.Policy, after)
}

// counts reports whether a pod counts for the refused one.
func (in *Input) counts(pod *v1.Pod) bool {
	return in.Selector.Matches(labels.Set(pod.Labels)) || in.Held.Counts(labels.Set(pod.Labels))
}
