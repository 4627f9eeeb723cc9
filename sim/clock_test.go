package sim

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
)

// TestOwedTimePassesFromDeadlineToDeadline: what is deferred is not seen before it is paid, except by the queue what
// has ticked, and nothing is fired together with what is due later.
func TestOwedTimePassesFromDeadlineToDeadline(t *testing.T) {
	began := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := newClock(began)
	queue := queueClock{c}
	first, second := c.NewTimer(time.Millisecond), c.NewTimer(2*time.Millisecond)
	c.countEvent()
	c.deferAdvance(2500 * time.Microsecond)
	require.Zero(t, c.Since(began))
	require.Equal(t, time.Microsecond, queue.Since(began), "the queue tells events apart")

	require.True(t, c.advanceDeferred())
	require.Len(t, first.C(), 1)
	require.Empty(t, second.C())
	require.Equal(t, time.Millisecond, c.Since(began))
	require.Equal(t, c.Now(), queue.Now(), "the queue is not ahead for good")

	require.True(t, c.advanceDeferred())
	require.Len(t, second.C(), 1)
	require.False(t, c.advanceDeferred())
	require.Equal(t, 2501*time.Microsecond, c.Since(began))
	require.False(t, c.advanceDeferred(), "nothing is deferred")
	require.Equal(t, 2501*time.Microsecond, c.Since(began))
}

// TestPatience: a run waits for the grace periods of the policy that has the longest ones, but not for those that are
// as good as endless.
func TestPatience(t *testing.T) {
	var objects []client.Object
	for i, u := range []v1alpha1.UnavailableZones{
		{},
		{DownAfter: &metav1.Duration{Duration: time.Hour}, FullAfter: &metav1.Duration{Duration: LongestGrace + 1}},
		{DownAfter: &metav1.Duration{Duration: time.Minute}, FullAfter: &metav1.Duration{Duration: 30 * time.Minute}},
	} {
		name := fmt.Sprintf("policy-%d", i)
		p := &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": name}
		p.Spec.UnavailableZones = u
		objects = append(objects, p)
	}
	s, err := New(t.Context(), objects, Options{})
	require.NoError(t, err)
	defer s.Close()
	want := 90*time.Minute + flushInterval + time.Second
	require.Equal(t, want, s.patience(nil))
	member := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{schedulingv1alpha1.PodGroupLabel: "gang"}}}
	require.Equal(t, want+gangPatience, s.patience([]*v1.Pod{member}))
}

// TestUseOneProcessor: one is enough, unless the environment says otherwise.
func TestUseOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	t.Setenv("GOMAXPROCS", "3")
	UseOneProcessor()
	require.Equal(t, 3, runtime.GOMAXPROCS(0))
	t.Setenv("GOMAXPROCS", "")
	UseOneProcessor()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
}
