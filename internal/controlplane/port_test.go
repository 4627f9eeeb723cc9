package controlplane

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFreePort: one can listen on it, and it is none that the kernel gives to somebody else.
func TestFreePort(t *testing.T) {
	for range 20 {
		port, err := FreePort()
		require.NoError(t, err)
		require.GreaterOrEqual(t, port, 15000)
		require.Less(t, port, 32768)
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

// TestPortsAreGivenAwayOnce: the program that the first one is for may not listen yet.
func TestPortsAreGivenAwayOnce(t *testing.T) {
	const first, last = firstPort, firstPort + 30
	dir := t.TempDir()
	given := map[int]bool{}
	for range 15 {
		port, err := freePort(dir, first, last)
		require.NoError(t, err)
		require.False(t, given[port], "port %d is given away again", port)
		given[port] = true
	}
	old := time.Now().Add(-2 * promised)
	for port := range given {
		require.NoError(t, os.Chtimes(filepath.Join(dir, strconv.Itoa(port)), old, old))
	}
	_, err := freePort(dir, first, last)
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "the old ones are forgotten")
}
