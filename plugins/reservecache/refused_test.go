package reservecache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
	"zonewise.dev/test/build"
)

// TestRefusedPodsAreWokenAfterTheirBackoff: a pod that fits now is activated once the backoff of the configuration has
// passed since its last attempt, which doubles with each attempt up to the longest; until then the answer says when to
// ask again.
func TestRefusedPodsAreWokenAfterTheirBackoff(t *testing.T) {
	r := newRefusedPods(nil, func() (initial, longest time.Duration) { return 3 * time.Second, 10 * time.Second })
	claims := reserving(t, 1, headroom).plugin.running.server.Claims()
	pod := build.Pod("p", "1")
	request := ledger.Resources{MilliCPU: 1000, Pods: 1}
	room := []floor.At{{Node: "a", Allocatable: ledger.Resources{MilliCPU: 4000, Pods: 10}}}
	choose := func(now time.Time) serve.Woken { return r.Choose(floor.New(1), room, claims, false, now) }
	for attempt, backoff := range []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second, 10 * time.Second} {
		tried := t0.Add(time.Duration(attempt) * time.Minute)
		r.beginAttempt(pod.UID)
		require.Empty(t, choose(tried).Pods, "a pod in its cycle is left alone")
		r.record(pod, &floor.Pod{Request: request}, tried)
		early := choose(tried.Add(backoff - time.Millisecond))
		require.Empty(t, early.Pods, "attempt %d", attempt)
		require.Equal(t, tried.Add(backoff), early.Next, "attempt %d", attempt)
		woken := choose(tried.Add(backoff))
		require.Equal(t, map[string]*v1.Pod{klog.KObj(pod).String(): pod}, woken.Pods, "attempt %d", attempt)
	}
}
