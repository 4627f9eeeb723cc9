package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// TestWaitsForTheSamePod: of several pods that are equally young each look names the same one, so that the status
// stays as it is.
func TestWaitsForTheSamePod(t *testing.T) {
	s := newScene(t)
	for _, name := range []string{"d", "b", "c", "a"} {
		s.seen.Pods[types.UID(name)] = Pod{
			UID: types.UID(name), Name: name, Controller: "web", Node: "node-a", Zone: "a", Ready: true,
			Created: start.Add(-time.Second),
		}
	}
	for range 20 {
		require.Equal(t, "pod shop/a, which could be taken for the one in place of web0", s.next().Waits)
	}
}
