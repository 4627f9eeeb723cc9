package worlds

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/test/build"
)

// TestQuestionsAreNoCycles: a search for victims runs PreFilter for members that it asks about.
func TestQuestionsAreNoCycles(t *testing.T) {
	m, pod := &probe{cycles: &atomic.Int64{}}, build.Pod("p", "1")
	question := framework.NewCycleState()
	hypothetical.Mark(question)
	m.PreFilter(t.Context(), question, pod, nil)
	require.Empty(t, m.attempts)
	m.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
	require.Equal(t, map[string]int{"p": 1}, m.attempts)
}
