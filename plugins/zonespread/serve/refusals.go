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

// Attempt is what a scheduling cycle in which a pod found no node shows about one of its policies.
type Attempt struct {
	Applied *Applied
	Answer  *Answer
	// Refused are the zones that the policy refused, by the rule; Pass stands for a rule that is not known. NoLabel tells that
	// it refused nodes without a zone.
	Refused map[string]policy.Rule
	NoLabel bool
	// Full are the zones of which other plugins refused every node that is eligible for the pod; true when no node there
	// has what the pod asks for.
	Full map[string]bool
	// Held is what the policy's caps count for the pod.
	Held policy.Held
}

// waiter is a pod that found no node when it was tried last, and that has policies.
type waiter struct {
	pod      *v1.Pod
	workload types.UID
	attempts int
	tried    time.Time
	refusals []*refusal
}

// refusal is what a policy that refused a pod refused.
type refusal struct {
	entry    *entry
	waiter   *waiter
	zones    map[string]policy.Rule
	selector labels.Selector // of the pods that count for the skew
	held     policy.Held
}

// Attempted takes in that a pod found no node.
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
			r := &refusal{entry: e, waiter: w, zones: a.Refused, selector: a.Applied.SelectorFor(pod.Labels), held: a.Held}
			w.refusals = append(w.refusals, r)
			e.refused[pod.UID], e.stale = r, true
			if e.changes != a.Answer.changes {
				s.wakeLocked(w) // something that may help happened while the pod was tried
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

// forgetLocked drops a pod that does not wait any more, or is tried again.
func (s *Policies) forgetLocked(w *waiter) {
	delete(s.waiting, w.pod.UID)
	s.agenda.remove(task{wakePod, w.pod.UID})
	for _, r := range w.refusals {
		delete(r.entry.refused, w.pod.UID)
		r.entry.stale = true
	}
}

// dropRefusalsLocked forgets what a policy refused that is deleted, and the pods of its namespace that have no other policy
// and are not about to be woken.
func (s *Policies) dropRefusalsLocked(e *entry) {
	for uid, w := range s.waiting {
		w.refusals = slices.DeleteFunc(w.refusals, func(r *refusal) bool { return r.entry == e })
		if _, wakes := s.agenda.of[task{wakePod, uid}]; !wakes && len(w.refusals) == 0 && w.pod.Namespace == e.object.Latest.Namespace {
			delete(s.waiting, uid)
		}
	}
}

// releaseLocked has the pods woken that a policy refused and that a change may help.
func (s *Policies) releaseLocked(e *entry, helps func(*refusal) bool) {
	e.changes++
	for _, r := range e.refused {
		if helps(r) {
			s.wakeLocked(r.waiter)
		}
	}
}

// wakeLocked has a pod woken when its backoff is over.
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

// rescaled has the pods of a workload woken that another number of replicas may help.
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

// helpedByReplicas tells whether another number of replicas may help by other caps: higher ones help if a cap refused
// a zone, and a zone that reaches a lower one holds no other back.
func (r *refusal) helpedByReplicas(before, after int64) bool {
	return !r.entry.object.Spec.SameCaps(before, after) && (after > before && r.byCap() || after < before && bySkew(r))
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

// helpedByEndOf tells whether it may help that a pod no longer counts. zone is where it was, empty when that is not known.
func (r *refusal) helpedByEndOf(pod *v1.Pod, zone string) bool {
	counts := r.selector.Matches(labels.Set(pod.Labels)) || r.held.Counts(labels.Set(pod.Labels))
	if !counts || zone == "" {
		return counts
	}
	rule, refused := r.zones[zone]
	return refused && rule.Resolvable()
}

// helpedByStartOf tells whether it may help that another pod counts in a zone: the emptiest zone may be fuller for it, and a
// zone that reaches its cap holds no other back.
func (r *refusal) helpedByStartOf(pod *v1.Pod, zone string) bool {
	_, refused := r.zones[zone]
	return !refused && bySkew(r) && (r.selector.Matches(labels.Set(pod.Labels)) || r.held.Counts(labels.Set(pod.Labels)))
}

// Helps tells whether the change of an assigned pod may help a pod that policies refused: it counts no more, not yet, or in
// another way. was and is are nil for a pod that comes or goes. That a pod terminated before it went makes no difference:
// there is no other event for its end.
func (s *Policies) Helps(pod, was, is *v1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[pod.UID]
	if w == nil {
		return true // not known, which is so after a cycle of a pod group: PostFilter has no part in it
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
