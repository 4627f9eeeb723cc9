package serve

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/zonespread/policy"
)

// The backoff of a pod that was refused n times is backoffInterval * 2^(n-1), and at most backoffLimit: the defaults of
// kube-scheduler, which a plugin cannot read.
const (
	backoffInterval = time.Second
	backoffLimit    = 10 * time.Second
)

// Attempt is what a failed scheduling cycle of a pod shows about one of its policies.
type Attempt struct {
	Input
	// Refused are the zones that the policy refused, with the rule; Pass means an unknown rule. NoLabel is true if it refused
	// nodes without a zone.
	Refused map[string]policy.Rule
	NoLabel bool
	// Full are the zones in which something else refused every node that is eligible for the pod, and Excluded those in which
	// the pod's volumes did.
	Full     []string
	Excluded map[string]bool
	// Scaling is how the zones stand that the policy's caps apply to.
	Scaling policy.Scaling
}

// waiter is a pod with policies that found no node when it was last tried.
type waiter struct {
	pod      *v1.Pod
	workload types.UID
	attempts int
	tried    time.Time
	wakeAt   time.Time // while it is about to be woken
	refusals []*refusal
	excluded map[string]map[string]bool // zones that its volumes exclude, by topology key
}

// refusal is an attempt in which the policy refused nodes to the pod.
type refusal struct {
	*Attempt
	waiter *waiter
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
		e := a.entry
		w.workload = a.workload
		if e.applied == nil {
			s.wakeLocked(w) // it has ceased to apply during the attempt
			continue
		}
		if len(a.Refused) > 0 || a.NoLabel {
			r := &refusal{Attempt: a, waiter: w}
			w.refusals = append(w.refusals, r)
			e.refused[pod.UID], e.stale = r, true
			if e.changes != a.changes {
				s.wakeLocked(w) // something that may help happened during the attempt
			}
			if !maps.Equal(a.Excluded, a.Input.Excluded) {
				s.wakeLocked(w) // other zones take part now
			}
		}
		w.excluded[a.TopologyKey()] = a.Excluded
		changed, full := false, false
		for _, zone := range a.Full {
			c, f := e.zones.RecordRefusal(now, zone, a.runs)
			changed, full = changed || c, full || f
		}
		if changed {
			s.factsChangedLocked(e)
		}
		if full {
			s.releaseLocked(e, bySkew)
		}
	}
}

// waitsLocked reports whether a pod is still there and has no node. What is not, ends in no event that is still to come.
func (s *Policies) waitsLocked(pod *v1.Pod) bool {
	latest, err := s.cluster.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && latest.UID == pod.UID && latest.Spec.NodeName == "" && latest.DeletionTimestamp == nil
}

// forgetLocked drops a pod that no longer waits, or is tried again.
func (s *Policies) forgetLocked(w *waiter) {
	delete(s.waiting, w.pod.UID)
	delete(s.waking, w.pod.UID)
	for _, r := range w.refusals {
		delete(r.entry.refused, w.pod.UID)
		r.entry.stale = true
	}
}

// dropRefusalsLocked drops the refusals of a policy that no longer applies. If it was the last one of its namespace, in which pods are not
// followed any more then, it drops their pods as well, except those that are about to be woken.
func (s *Policies) dropRefusalsLocked(e *entry) {
	for _, r := range e.refused {
		r.waiter.refusals = slices.DeleteFunc(r.waiter.refusals, func(of *refusal) bool { return of == r })
	}
	clear(e.refused)
	namespace := e.object.Latest.Namespace
	if s.active.has(namespace) {
		return
	}
	for uid, w := range s.waiting {
		if s.waking[uid] == nil && w.pod.Namespace == namespace {
			delete(s.waiting, uid)
		}
	}
}

// releaseLocked wakes the pods that a policy refused and that a change may help.
func (s *Policies) releaseLocked(e *entry, helps func(*refusal) bool) {
	e.changes++
	for _, r := range e.refused {
		if helps(r) {
			s.wakeLocked(r.waiter)
		}
	}
}

// wakeLocked wakes a pod when its backoff is over.
func (s *Policies) wakeLocked(w *waiter) {
	if s.waking[w.pod.UID] != nil {
		return
	}
	backoff := backoffLimit
	if shift := w.attempts - 1; shift < 4 {
		backoff = min(backoff, backoffInterval<<shift)
	}
	w.wakeAt = w.tried.Add(backoff)
	if soon := s.clock.Now().Add(gatherInterval); w.wakeAt.Before(soon) {
		w.wakeAt = soon
	}
	s.waking[w.pod.UID] = w
	s.agenda.AddAt(task{kind: wakePods}, w.wakeAt)
}

// activate sends the pods that are to be woken by now back to the scheduling queue together, without a lock held.
func (s *Policies) activate(ctx context.Context) {
	s.mu.Lock()
	now := s.clock.Now()
	pods := map[string]*v1.Pod{}
	for uid, w := range s.waking {
		if w.wakeAt.After(now) {
			s.agenda.AddAt(task{kind: wakePods}, w.wakeAt)
			continue
		}
		delete(s.waking, uid)
		pods[w.pod.Namespace+"/"+w.pod.Name] = w.pod
		if len(w.refusals) == 0 {
			delete(s.waiting, uid) // its policy no longer applies
		}
	}
	s.mu.Unlock()
	if len(pods) > 0 {
		logger := klog.FromContext(ctx)
		logger.V(4).Info("Activating pods that a ZoneSpreadPolicy refused", "pods", len(pods))
		s.handle.Activate(logger, pods)
	}
}

// rescaled wakes the pods of a workload that a changed number of replicas may help.
func (s *Policies) rescaled(namespace string, w policy.Workload, before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active.in(namespace) {
		if a.ByOwner() && !a.SameCaps(before, w.Replicas) {
			a.entry.changes++ // for a pod that is being tried for the first time, which does not wait yet
		}
	}
	for _, waiter := range s.waiting {
		if waiter.workload != w.UID {
			continue
		}
		for _, r := range waiter.refusals {
			if r.ByOwner() && r.helpedByReplicas(before, w.Replicas) {
				s.wakeLocked(waiter)
			}
		}
	}
}

// helpedByReplicas reports whether a changed number of replicas may help through the caps: a higher cap may admit the pod,
// and a zone that reaches a lower cap no longer holds other zones back. What the zones hold is as of the attempt: the pod has been
// woken already if a pod has come to the zone that holds others back, or has left one at its cap.
func (r *refusal) helpedByReplicas(before, after int64) bool {
	switch {
	case r.SameCaps(before, after):
		return false
	case after > before:
		return r.by(policy.MaxPods, policy.MaxPerZone, policy.QuorumSafe) && (r.by(policy.Pass) || r.Scaling.Helped(r.Policy, after))
	}
	return bySkew(r) && (r.by(policy.Pass) || r.Scaling.Freed(r.Policy, after))
}

func anyRefusal(*refusal) bool { return true }

func bySkew(r *refusal) bool { return r.by(policy.Skew) }

// by reports whether one of the rules refused a zone; an unknown rule may be any.
func (r *refusal) by(rules ...policy.Rule) bool {
	for _, of := range r.Refused {
		if of == policy.Pass || slices.Contains(rules, of) {
			return true
		}
	}
	return false
}

// counts reports whether a pod counts for the refused one.
func (r *refusal) counts(pod *v1.Pod) bool {
	return r.Selector.Matches(labels.Set(pod.Labels)) || r.Held.Counts(labels.Set(pod.Labels))
}

// helpedByEndOf reports whether it may help that a pod no longer counts. zone is where it was, empty if unknown.
func (r *refusal) helpedByEndOf(pod *v1.Pod, zone string) bool {
	rule, refused := r.Refused[zone]
	return r.counts(pod) && (zone == "" || refused && rule.Resolvable())
}

// helpedByStartOf reports whether it may help that another pod counts in a zone: the emptiest zone may become fuller, and a
// zone that reaches its cap no longer holds other zones back.
func (r *refusal) helpedByStartOf(pod *v1.Pod, zone string) bool {
	_, refused := r.Refused[zone]
	return !refused && bySkew(r) && r.counts(pod)
}

// Helps reports whether the change of an assigned pod may help a pod that policies refused, because it begins, ceases or
// changes to count. was is nil for a new pod, and is for a deleted one. A deleted pod may help even if it was terminating,
// since there is no other event for its end.
func (s *Policies) Helps(pod, was, is *v1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[pod.UID]
	if w == nil {
		return true // unknown after a cycle of a pod group, in which PostFilter is not called
	}
	for _, r := range w.refusals {
		key := r.TopologyKey()
		if was != nil && r.helpedByEndOf(was, s.zoneOf(key, was.Spec.NodeName)) || is != nil && live(is) && r.helpedByStartOf(is, s.zoneOf(key, is.Spec.NodeName)) {
			return true
		}
	}
	return false
}
