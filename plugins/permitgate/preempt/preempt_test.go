package preempt

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// heard counts what a Preemptor tells the gangs.
type heard struct{ cleared, givenUp []string }

func (h *heard) Cleared(id podgroup.ID) { h.cleared = append(h.cleared, id.Name) }

func (h *heard) GivenUp(id podgroup.ID, _ bool) { h.givenUp = append(h.givenUp, id.Name) }

func newPreemptor(clock *clocktesting.FakeClock) (*Preemptor, *heard) {
	h := &heard{}
	return New(Config{
		Clock: clock, Gangs: h, Exists: func(*v1.Pod) bool { return true },
		Event: func(context.Context, podgroup.ID, *v1.Pod, string, string) {},
	}), h
}

func gangNamed(name string) podgroup.ID {
	return podgroup.ID{NamespacedName: types.NamespacedName{Name: name}}
}

// TestPodsAreBarredForATime, and forgotten after it, whether or not they are asked about.
func TestPodsAreBarredForATime(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	p, h := newPreemptor(clock)
	for i := range 3 {
		id, pod := gangNamed(fmt.Sprint("gang-", i)), labelled(fmt.Sprint("pod-", i), nil)
		pod.UID = types.UID(pod.Name)
		p.Begin(t.Context(), id, &Result{Victims: []*v1.Pod{pod}})
		require.True(t, p.IsVictim(pod.UID))
		require.False(t, p.Stays(pod))
		clock.Step(2 * time.Minute) // beyond the deadline
		p.advance(t.Context(), id)
		require.True(t, p.IsVictim(pod.UID))
		require.True(t, p.Stays(pod))
		clock.Step(barTime)
		require.False(t, p.IsVictim(pod.UID))
	}
	require.Len(t, p.barred, 1, "the others were forgotten")
	require.Equal(t, []string{"gang-0", "gang-1", "gang-2"}, h.givenUp)
}

// TestPodThatSeveralGangsWaitFor: each of them hears when it is gone, and has its room when its last one is.
func TestPodThatSeveralGangsWaitFor(t *testing.T) {
	p, h := newPreemptor(clocktesting.NewFakeClock(time.Unix(1_000_000, 0)))
	shared, own := labelled("shared", nil), labelled("own", nil)
	shared.UID, own.UID = "shared", "own"
	p.Begin(t.Context(), gangNamed("a"), &Result{Leaving: []*v1.Pod{shared}})
	p.Begin(t.Context(), gangNamed("b"), &Result{Leaving: []*v1.Pod{shared}, Victims: []*v1.Pod{own}})
	p.Gone(shared.UID)
	require.Equal(t, []string{"a"}, h.cleared)
	p.Gone(own.UID)
	require.Equal(t, []string{"a", "b"}, h.cleared)
	require.Empty(t, p.ops)
}
