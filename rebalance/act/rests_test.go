package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// TestFailuresAreForgotten: a workload is moved each day, and each tenth move of it fails. While the moves in between
// succeed and are not undone, it rests for the cooldown each time, and no longer.
func TestFailuresAreForgotten(t *testing.T) {
	const workload = "Deployment shop/web"
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	r.Spec.Cooldown = &metav1.Duration{Duration: cooldown}
	excess, live, ready := int64(1), int64(3), int64(3)
	observe := func() *Observed {
		return &Observed{
			Now: now, Runs: func(*v1alpha1.RebalanceMove) bool { return false }, Excess: func(string) int64 { return excess },
			Replicas: func(types.UID) Replicas {
				return Replicas{Wanted: 3, Live: live, Bound: live, Ready: ready, ReadyWithin: readyWithin}
			},
		}
	}
	for n := range 60 {
		now = now.Add(day)
		excess, live, ready = 1, 3, 3
		require.Empty(t, Rests([]*v1alpha1.ZoneRebalance{r}, cooldown, workload, observe()), "move %d", n)
		move := v1alpha1.RebalanceMove{MovedPod: v1alpha1.MovedPod{Workload: workload}, UID: types.UID(rune('a' + n)), Replicas: 3}
		Begin(r, []v1alpha1.RebalanceMove{move}, []time.Duration{grace}, observe())
		now = now.Add(time.Minute)
		if n%10 == 9 {
			ready, now = 2, now.Add(time.Hour)
		} else {
			excess = 0
		}
		Follow(r, observe())
		last := r.Status.Moves[len(r.Status.Moves)-1]
		require.Equal(t, n%10 == 9, Failed(&last), "move %d: %+v", n, last)
		require.LessOrEqual(t, last.Failures, int64(1), "move %d", n)
	}
}
