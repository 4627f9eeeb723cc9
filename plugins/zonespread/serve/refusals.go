package serve

import (
	"context"
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
	Applied *Applied
	Answer  *Answer
	// Refused are the zones that the policy refused, with the rule; Pass means an unknown rule. NoLabel is true if it refused
	// nodes without a zone.
	Refused map[string]policy.Rule
	NoLabel bool
	// Full are the zones in which other plugins refused every node that is eligible for the pod; true if all of them lack what
	// the pod requests.
	Full map[string]bool
	// Held is what the policy's caps count for the pod, and Scaling how the zones stand that they apply to.
	Held    policy.Held
	Scaling policy.Scaling
}

// waiter is a pod with policies that found no node when it was last tried.
type waiter struct {
	pod      *v1.Pod
	workload types.UID
	attempts int
	tried    time.Time
	refusals []*refusal
}

// refusal is what a policy refused a pod.
type refusal struct {
	entry    *entry
	waiter   *waiter
	zones    map[string]policy.Rule
	selector labels.Selector // of the pods that count for the skew
	held     policy.Held
	scaling  policy.Scaling
}

// Attempted records that a pod found no node.
func (s *Policies) Attempted(pod *v1.Pod, requests policy.Requests, attempts []Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	w := &waiter{pod: pod, attempts: 1, tried: now}
	if before := s.waiting[pod.UID]; before != nil {
		w.attempts += before.attempts
		s.forgetLocked(before)
	}
	s.waiting[pod.UID] = w
	for i := range attempts {
		a := &attempts[i]
		e := a.Applied.entry
		if s.entries[a.Applied.UID()] != e {
			continue // deleted meanwhile
		}
		w.workload = a.Answer.Workload.UID
		if len(a.Refused) > 0 || a.NoLabel {
			r := &refusal{entry: e, waiter: w, zones: a.Refused, selector: a.Applied.SelectorFor(pod.Labels), held: a.Held, scaling: a.Scaling}
			w.refusals = append(w.refusals, r)
			e.refused[pod.UID], e.stale = r, true
			if e.changes != a.Answer.changes {
				s.wakeLocked(w) // something that may help happened during the attempt
			}
		}
		changed, full := false, false
		for zone, resources := range a.Full {
			c, f := e.zones.Refused(now, zone, requests, resources)
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

// forgetLocked drops a pod that no longer waits, or is tried again.
func (s *Policies) forgetLocked(w *waiter) {
	delete(s.waiting, w.pod.UID)
	s.agenda.remove(task{wakePod, w.pod.UID})
	for _, r := range w.refusals {
		delete(r.entry.refused, w.pod.UID)
		r.entry.stale = true
	}
}

// dropRefusalsLocked drops the refusals of a deleted policy, and the pods of its namespace that have no other policy and are
// not about to be woken.
func (s *Policies) dropRefusalsLocked(e *entry) {
	for uid, w := range s.waiting {
		w.refusals = slices.DeleteFunc(w.refusals, func(r *refusal) bool { return r.entry == e })
		if _, wakes := s.agenda.of[task{wakePod, uid}]; !wakes && len(w.refusals) == 0 && w.pod.Namespace == e.object.Latest.Namespace {
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
	backoff := backoffLimit
	if shift := w.attempts - 1; shift < 4 {
		backoff = min(backoff, backoffInterval<<shift)
	}
	at := w.tried.Add(backoff)
	if soon := s.clock.Now().Add(gatherInterval); at.Before(soon) {
		at = soon
	}
	s.scheduleAtLocked(task{wakePod, w.pod.UID}, at)
}

// activate sends waiting pods back to the scheduling queue, without a lock held.
func (s *Policies) activate(ctx context.Context, uids []types.UID) {
	s.mu.Lock()
	pods := make(map[string]*v1.Pod, len(uids))
	for _, uid := range uids {
		if w := s.waiting[uid]; w != nil {
			pods[w.pod.Namespace+"/"+w.pod.Name] = w.pod
			if len(w.refusals) == 0 {
				delete(s.waiting, uid) // its policy is gone
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

// rescaled wakes the pods of a workload that a changed number of replicas may help.
func (s *Policies) rescaled(w policy.Workload, before int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waiter := range s.waiting {
		if waiter.workload != w.UID {
			continue
		}
		for _, r := range waiter.refusals {
			if r.entry.object.Valid() && r.entry.object.Spec.ByOwner() && r.helpedByReplicas(before, w.Replicas) {
				r.entry.changes++
				s.wakeLocked(waiter)
			}
		}
	}
}

// helpedByReplicas reports whether a changed number of replicas may help through the caps: a higher cap may admit the pod,
// and a zone that reaches a lower cap no longer holds other zones back. What the zones hold is as of the attempt: the pod has been
// woken already if a pod has come to the zone that holds others back, or has left one at its cap.
func (r *refusal) helpedByReplicas(before, after int64) bool {
	p := r.entry.object.Spec
	switch {
	case p.SameCaps(before, after):
		return false
	case after > before:
		return r.byCap() && (r.by(policy.Pass) || r.scaling.Helped(p, after))
	}
	return bySkew(r) && (r.by(policy.Pass) || r.scaling.Freed(p, after))
}

func anyRefusal(*refusal) bool { return true }

func bySkew(r *refusal) bool { return r.by(policy.Skew) }

func (r *refusal) byCap() bool {
	return r.by(policy.MaxPods) || r.by(policy.MaxPerZone) || r.by(policy.QuorumSafe)
}

func (r *refusal) by(rule policy.Rule) bool {
	for _, of := range r.zones {
		if of == rule || of == policy.Pass {
			return true
		}
	}
	return false
}

// helpedByEndOf reports whether it may help that a pod no longer counts. zone is where it was, empty if unknown.
func (r *refusal) helpedByEndOf(pod *v1.Pod, zone string) bool {
	counts := r.selector.Matches(labels.Set(pod.Labels)) || r.held.Counts(labels.Set(pod.Labels))
	if !counts || zone == "" {
		return counts
	}
	rule, refused := r.zones[zone]
	return refused && rule.Resolvable()
}

// helpedByStartOf reports whether it may help that another pod counts in a zone: the emptiest zone may become fuller, and a
// zone that reaches its cap no longer holds other zones back.
func (r *refusal) helpedByStartOf(pod *v1.Pod, zone string) bool {
	_, refused := r.zones[zone]
	return !refused && bySkew(r) && (r.selector.Matches(labels.Set(pod.Labels)) || r.held.Counts(labels.Set(pod.Labels)))
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
		if !r.entry.object.Valid() {
			continue
		}
		key := r.entry.object.Spec.TopologyKey()
		if was != nil && r.helpedByEndOf(was, s.zoneOf(key, was)) || is != nil && live(is) && r.helpedByStartOf(is, s.zoneOf(key, is)) {
			return true
		}
	}
	return false
}
