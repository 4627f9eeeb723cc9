package worlds

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// victim is a pod that the scheduler has deleted.
type victim struct {
	pod string
	at  time.Time
	// upstreams is true if kube-scheduler itself will evict the pod that replaces it, too, see returnsFirst.
	upstreams bool
}

// noteVictim is called before the scheduler deletes a pod.
func (p *player) noteVictim(pod string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.victims = append(p.victims, victim{pod: pod, at: time.Now()})
	return nil
}

// notePreemptors is called when the scheduler has deleted a pod. There are no preemptors if it was for a gang of ours.
func (p *player) notePreemptors(pod *v1.Pod, preemptors []*v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.victims) - 1; i >= 0; i-- {
		if v := &p.victims[i]; v.pod == pod.Name {
			v.upstreams = slices.ContainsFunc(preemptors, func(preemptor *v1.Pod) bool { return returnsFirst(pod, preemptor) })
			return
		}
	}
}

// returnsFirst reports whether kube-scheduler lets the pod that replaces a victim come to the node before the preemptor,
// and so evicts that one as well, without end: the preemptor's anti-affinity is against the victim, which has no terms
// of its own. InterPodAffinity skips the cycle of such a pod unless a pod that has a node is against it. Then it does
// not hear of the pods that are nominated either. The preemptor's nomination keeps its room, but nothing more.
func returnsFirst(victim, preemptor *v1.Pod) bool {
	return !hasTerms(victim) && mustBeApart(preemptor, victim)
}

// mustBeApart reports whether a pod's anti-affinity is against another pod, which then may not come to its node either.
func mustBeApart(pod, other *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil {
		return false
	}
	return slices.ContainsFunc(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t v1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		return err == nil && selector.Matches(labels.Set(other.Labels))
	})
}

// waitsForStuck reports whether kube-scheduler has the unit wait for a pod that never ends to terminate. It takes such a
// pod for a victim, and the same one in each cycle, be there others. A gang that lacks more than one member does not
// preempt by kube-scheduler.
func (u unit) waitsForStuck(p *player, c *view) bool {
	return u.need == 1 && slices.ContainsFunc(u.pods, func(pod *v1.Pod) bool {
		n := c.byName[pod.Status.NominatedNodeName]
		return n != nil && slices.ContainsFunc(n.pods, func(there *v1.Pod) bool { return p.stuck[there.UID] && priorityOf(there) < priorityOf(pod) })
	})
}

// hasTerms reports whether a pod has to be with other pods, or apart from them.
func hasTerms(pod *v1.Pod) bool {
	a := pod.Spec.Affinity
	return a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

// lateVictims returns the victims of a cluster in which nothing has happened for long, but for evictions and what comes
// back.
func (p *player) lateVictims() []victim {
	p.mu.Lock()
	victims := slices.Clone(p.victims)
	p.mu.Unlock()
	if !p.atRest {
		return nil
	}
	return slices.DeleteFunc(victims, func(v victim) bool { return v.at.Sub(p.quietSince()) <= evictionsEnd })
}

// quietSince returns when a cluster at rest last changed without the scheduler's doing.
func (p *player) quietSince() time.Time {
	if p.succeeded.After(p.restsFrom) {
		return p.succeeded
	}
	return p.restsFrom
}

// checkVictims: the scheduler evicts no pod of such a cluster, but for those that kube-scheduler evicts without our
// plugins, too.
func (p *player) checkVictims() {
	for _, v := range p.lateVictims() {
		if !v.upstreams {
			p.fail(EvictionsEnd, "pod %s was evicted after nothing had happened for %v", v.pod, v.at.Sub(p.quietSince()))
			return
		}
	}
}

// evictsForEver reports whether kube-scheduler evicts pods without end.
func (p *player) evictsForEver() bool {
	return slices.ContainsFunc(p.lateVictims(), func(v victim) bool { return v.upstreams })
}
