package sim

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

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
