package policy

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// limit is spec.maxPerZone: a number of pods or a percentage of the replicas; the zero limit limits nothing.
type limit struct {
	pods    int64
	percent int64
	down    bool // round a percentage down rather than up
}

func (l limit) String() string {
	if l.percent > 0 {
		return strconv.FormatInt(l.percent, 10) + "%"
	}
	return strconv.FormatInt(l.pods, 10)
}

// parseLimit reads maxPerZone.
func parseLimit(v *intstr.IntOrString) limit {
	switch {
	case v == nil:
		return limit{}
	case v.Type == intstr.Int:
		return limit{pods: max(1, int64(v.IntVal))}
	}
	percent, _ := strconv.ParseInt(strings.TrimSuffix(v.StrVal, "%"), 10, 64) // 0 in a string that the schema refuses
	return limit{percent: min(max(1, percent), 100)}
}

// inPods returns the limit in pods for this many replicas, Unlimited without a limit. A percentage never comes
// to less than 1, so that a small workload can start.
func (l limit) inPods(replicas int64) int64 {
	switch {
	case l.pods > 0:
		return l.pods
	case l.percent == 0 || replicas == UnknownReplicas:
		return Unlimited
	case l.down:
		return max(1, l.percent*replicas/100)
	}
	return max(1, (l.percent*replicas+99)/100)
}

// quorumCap is the largest number of pods that a zone may hold so that more than half of the replicas are
// elsewhere: replicas - cap > replicas/2. With 1 or 2 replicas there is none; a single pod is let in and
// the policy is reported as infeasible.
func quorumCap(replicas int64) int64 {
	if replicas == UnknownReplicas {
		return Unlimited
	}
	return max(1, (replicas-1)/2)
}

// capOf returns the most pods of those in Held that the zone may hold, and the rule that limits them.
func (p *Policy) capOf(maxPods, replicas int64) (int64, Rule) {
	least, rule := maxPods, MaxPods
	if c := p.perZone.inPods(replicas); c < least {
		least, rule = c, MaxPerZone
	}
	if p.quorumSafe {
		if c := quorumCap(replicas); c < least {
			least, rule = c, QuorumSafe
		}
	}
	return least, rule
}

// Cap returns how many pods a zone may hold at most of what R is the number of; ok is false when there is no such
// limit.
func (p *Policy) Cap(zone string, replicas int64) (pods int64, ok bool) {
	_, maxPods := p.weightOf(zone)
	pods, _ = p.capOf(maxPods, replicas)
	return pods, pods < Unlimited
}

// Caps reports whether the policy has caps, so that Held has to be counted.
func (p *Policy) Caps() bool {
	return p.ScalesCaps() || p.perZone.pods > 0 ||
		slices.ContainsFunc(p.declared, func(z declaredZone) bool { return z.maxPods < Unlimited })
}

// ScalesCaps reports whether caps depend on the desired replicas.
func (p *Policy) ScalesCaps() bool { return p.quorumSafe || p.perZone.percent > 0 }

// SameCaps reports whether two numbers of replicas give the same caps.
func (p *Policy) SameCaps(a, b int64) bool {
	return p.perZone.inPods(a) == p.perZone.inPods(b) && (!p.quorumSafe || quorumCap(a) == quorumCap(b))
}

// Scaling is what a refused pod's Table says about other numbers of replicas, in pods that the caps count.
type Scaling struct {
	// AtCap is the smallest count of a zone that is refused by a cap which follows R; Unlimited if there is none.
	AtCap int64
	// Behind is the count of the zone that all others are compared with; 0 if there is none.
	Behind int64
}

// Helped reports whether a higher R may let the pod go to a zone that a cap refuses.
func (s Scaling) Helped(p *Policy, replicas int64) bool {
	most, _ := p.capOf(Unlimited, replicas)
	return most > s.AtCap
}

// Freed reports whether a lower R may let the pod go to a zone that the skew refuses: a zone at its cap holds no other
// zone back.
func (s Scaling) Freed(p *Policy, replicas int64) bool {
	most, _ := p.capOf(Unlimited, replicas)
	return most <= s.Behind
}

// UnknownReplicas is R of a pod whose workload is not known: percentages and quorumSafe then refuse nothing, since
// nothing proves that they should.
const UnknownReplicas = int64(0)

// maxReplicas bounds what outside numbers can do to the formulas; no cluster comes near it.
const maxReplicas = int64(1) << 40

// Replicas returns R, the desired number of pods that percentages and quorumSafe refer to, for a pod of a workload: at
// least 1, or UnknownReplicas. It never follows the pods counted so far: a percentage of a growing count would refuse
// or misplace the first pods. matching is how many live pods the policy selects, of all revisions and waiting ones
// included, which is what spec.replicas Matching asks for; -1 while that is not known.
func (p *Policy) Replicas(w *Workload, matching int64) int64 {
	switch {
	case p.replicas.number > 0:
		return p.replicas.number
	case p.replicas.matching && matching < 0, !p.replicas.matching && !w.Known:
		return UnknownReplicas
	case p.replicas.matching:
		return min(max(matching, 1), maxReplicas)
	}
	return min(max(w.Replicas, 1), maxReplicas)
}

// ByOwner reports whether R is that of the pod's workload (spec.replicas Owner), so that each workload has the caps for
// itself.
func (p *Policy) ByOwner() bool { return p.replicas.number == 0 && !p.replicas.matching }

// Matching reports whether R is the number of live pods (spec.replicas Matching).
func (p *Policy) Matching() bool { return p.replicas.matching }

// Held says which pods the caps count for an incoming pod, which are those that R is the number of: they match All, and
// if Own is not nil they either do not match Own or match Revision. Old revisions of the pod's own workload never
// count, so that a rollout's surge is not refused because of the pods that it replaces.
type Held struct{ All, Own, Revision labels.Selector }

// HeldFor returns what the caps count for a pod of a workload.
//
// With spec.replicas Owner these are the pods of its own workload and revision, otherwise all pods that the policy
// selects except old revisions of that workload. Without a known workload, only matchLabelKeys separates revisions.
func (p *Policy) HeldFor(w *Workload, podLabels labels.Set) Held {
	revision := p.SelectorFor(podLabels)
	switch {
	case p.gangs || w.Selector == nil:
		return Held{All: revision}
	case p.ByOwner():
		return Held{All: both(revision, w.Selector)}
	case p.Revision(podLabels) == "":
		return Held{All: p.selector}
	}
	return Held{All: p.selector, Own: both(p.selector, w.Selector), Revision: both(revision, w.Selector)}
}

// CountedFor returns the selector of the pods that may count for an incoming pod, for the skew or for the caps.
func (p *Policy) CountedFor(podLabels labels.Set) labels.Selector {
	if p.Caps() && !p.ByOwner() {
		return p.selector
	}
	return p.SelectorFor(podLabels)
}

// Counts reports whether a pod with these labels counts; for the zero Held none does.
func (h *Held) Counts(podLabels labels.Set) bool {
	return h.All != nil && h.All.Matches(podLabels) &&
		(h.Own == nil || !h.Own.Matches(podLabels) || h.Revision.Matches(podLabels))
}

// both selects what both selectors select.
func both(a, b labels.Selector) labels.Selector {
	requirements, _ := b.Requirements()
	return a.Add(requirements...)
}
