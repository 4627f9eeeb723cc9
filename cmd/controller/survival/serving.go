package survival

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/survival"
)

// recountServing brings what is left without a zone up to date in the answers: the readiness of pods decides it, and
// nothing of a replay.
func (r *round) recountServing(ctx context.Context, now time.Time) {
	if len(r.asked) == 0 {
		return // to read the cluster for it costs CPU at each look
	}
	impaired := survival.NewImpaired(r.objects)
	for _, s := range r.asked {
		last := r.lastAnswer(s.Name)
		if len(last.shown.Conditions) == 0 {
			continue
		}
		impaired.Answer(s, metav1.Time{Time: now}, &last.computed)
		if impaired.Answer(s, metav1.Time{Time: now}, &last.shown) {
			r.writeStatus(ctx, s, last)
		}
	}
}
