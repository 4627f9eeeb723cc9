package survival

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/survival"
)

// slowRound is how long a full round may take without that the old answers are marked first: to mark each of them on a small cluster, where
// the new answer comes in a second, would only be two writes in place of one.
const slowRound = 5 * time.Second

// outdate makes a status say that the cluster has another fingerprint than the one that was survived, and reports whether it had to. A
// certificate that is False stays: what is wrong is worth a warning until it is known to be mended.
func outdate(status *v1alpha1.ZoneSurvivalStatus, now *survival.Options) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSurvives)
	if c == nil || c.Status != metav1.ConditionTrue || status.Snapshot.Hash == now.Fingerprint {
		return false
	}
	return meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: c.Type, Status: metav1.ConditionUnknown, ObservedGeneration: c.ObservedGeneration, LastTransitionTime: metav1.Time{Time: now.Sim.Now},
		Reason:  v1alpha1.ReasonClusterChanged,
		Message: "at computedAt every loss was survived; the cluster has changed since, and only the next full round can say whether that is still so",
	})
}

// outdate marks the answers that do not fit the cluster.
func (r *round) outdate(ctx context.Context) {
	for _, s := range r.asked {
		r.mu.Lock()
		last, known := r.answers[s.Name]
		status := last.DeepCopy()
		r.mu.Unlock()
		if known && outdate(status, &r.options) {
			r.writeStatus(ctx, s, *status)
		}
	}
}

// remember takes the answers of another process for the last ones, so that their metrics go on before the first round is over.
func (c *Controller) remember(asked []*v1alpha1.ZoneSurvival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range asked {
		c.answers[s.Name] = *s.Status.DeepCopy()
	}
}

// told is what events have told of a condition: that a certificate which was True waits for the next round is no news.
func told(c *metav1.Condition) metav1.ConditionStatus {
	switch {
	case c == nil:
		return ""
	case c.Reason == v1alpha1.ReasonClusterChanged:
		return metav1.ConditionTrue
	}
	return c.Status
}
