package survival

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/survival"
)

// slowRound is how long a full round may take without that the old answers are marked first: to mark each of them on a
// small cluster, where the new answer comes in a second, would only be two writes in place of one.
const slowRound = 5 * time.Second

// answer is what is known about a ZoneSurvival.
type answer struct {
	// computed is the last answer. Shown is that answer as the status has it, which says where it no longer fits.
	computed, shown v1alpha1.ZoneSurvivalStatus
}

// asShown returns an answer as it is shown: a certificate that is True does not stay so if it is about another cluster
// than the one of now, about another spec, or if not all of the cluster is known. One that is False stays: what is
// wrong is worth a warning until it is known to be mended.
func asShown(
	computed *v1alpha1.ZoneSurvivalStatus, asked *v1alpha1.ZoneSurvival, now *survival.Options,
) v1alpha1.ZoneSurvivalStatus {
	shown := *computed.DeepCopy()
	survives := meta.FindStatusCondition(shown.Conditions, v1alpha1.ConditionSurvives)
	switch {
	case len(now.Missing) > 0:
		setUnknown(&shown, v1alpha1.ConditionHeld, v1alpha1.ReasonSnapshotIncomplete, strings.Join(now.Missing, "; "), now)
		setUnknown(&shown, v1alpha1.ConditionServes, v1alpha1.ReasonSnapshotIncomplete, strings.Join(now.Missing, "; "), now)
		if survives == nil { // it has never been answered
			shown.ComputedAt, shown.ReplayedAt = metav1.Time{Time: now.Sim.Now}, metav1.Time{Time: now.Sim.Now}
			shown.ObservedGeneration = asked.Generation
			meta.SetStatusCondition(&shown.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue, ObservedGeneration: asked.Generation,
			})
		}
		missing := strings.Join(now.Missing, "; ")
		setUnknown(&shown, v1alpha1.ConditionSurvives, v1alpha1.ReasonSnapshotIncomplete, missing, now)
	case survives != nil && survives.ObservedGeneration != asked.Generation:
		setUnknown(&shown, v1alpha1.ConditionSurvives, v1alpha1.ReasonClusterChanged,
			"at computedAt every loss was survived; the spec has changed since, and only the next full round can answer it", now)
	case shown.Snapshot.Hash != now.Fingerprint:
		setUnknown(&shown, v1alpha1.ConditionSurvives, v1alpha1.ReasonClusterChanged,
			"at computedAt every loss was survived; the cluster has changed since, and only the next full round can say "+
				"whether that is still so", now)
	}
	return shown
}

// setUnknown makes a condition that is True Unknown.
func setUnknown(status *v1alpha1.ZoneSurvivalStatus, condition, reason, message string, now *survival.Options) {
	c := meta.FindStatusCondition(status.Conditions, condition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: c.Type, Status: metav1.ConditionUnknown, ObservedGeneration: c.ObservedGeneration,
		LastTransitionTime: metav1.Time{Time: now.Sim.Now},
		Reason:             reason, Message: message,
	})
}

// markOutdated shows which of the last answers do not fit the cluster, and reports whether all that was to be written
// is.
func (r *round) markOutdated(ctx context.Context) bool {
	all := true
	for _, s := range r.asked {
		last := r.lastAnswer(s.Name)
		shown := asShown(&last.computed, s, &r.options)
		if !equality.Semantic.DeepEqual(shown, last.shown) {
			all = r.writeStatus(ctx, s, answer{last.computed, shown}) && all
		}
	}
	return all
}

// lastAnswer returns the last answer about a ZoneSurvival, an empty one if there is none.
func (c *Controller) lastAnswer(name string) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.answers[name]
	return answer{*last.computed.DeepCopy(), *last.shown.DeepCopy()}
}

// rememberWritten takes the answers of another process for the last ones, so that their metrics go on before the first
// round is over.
func (c *Controller) rememberWritten(asked []*v1alpha1.ZoneSurvival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range asked {
		c.answers[s.Name] = answer{*s.Status.DeepCopy(), *s.Status.DeepCopy()}
	}
}

// toldStatus is what events have told of a condition: that a certificate which was True waits for the next round is no
// news.
func toldStatus(c *metav1.Condition) metav1.ConditionStatus {
	switch {
	case c == nil:
		return ""
	case c.Reason == v1alpha1.ReasonClusterChanged:
		return metav1.ConditionTrue
	}
	return c.Status
}
