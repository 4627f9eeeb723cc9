package act

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// MaxPerHour is that of the spec.
func MaxPerHour(r *v1alpha1.ZoneRebalance) int32 {
	return ptr.Deref(r.Spec.MaxPerHour, v1alpha1.DefaultMaxPerHour)
}

// Cooldown is that of the spec.
func Cooldown(r *v1alpha1.ZoneRebalance) time.Duration {
	return durationOr(r.Spec.Cooldown, v1alpha1.DefaultCooldown)
}

// After is that of the spec.
func After(r *v1alpha1.ZoneRebalance) time.Duration {
	return durationOr(r.Spec.After, v1alpha1.DefaultAfter)
}

func durationOr(d *metav1.Duration, text string) time.Duration {
	if d != nil {
		return d.Duration
	}
	out, _ := time.ParseDuration(text) // a constant
	return out
}
