package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what other processes do.
const patience = 20 * time.Second

// shell starts a shell command. The channel receives the error if it ends by itself.
func shell(t *testing.T, script string) (kill func(), log string, ended chan error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "thing")
	executable(t, file, script)
	log, ended = filepath.Join(dir, "log"), make(chan error, 1)
	kill, err := startProcess("thing", file, log, func(err error) { ended <- err })
	require.NoError(t, err)
	t.Cleanup(kill)
	return kill, log, ended
}

func TestAProcessThatEndsIsReportedWithTheEndOfItsLog(t *testing.T) {
	_, _, ended := shell(t, "for i in $(seq 40); do echo line $i; done; echo 'listen: address already in use' >&2; exit 3")
	lines := strings.Split((<-ended).Error(), "\n")
	require.Equal(t, "thing ended with exit status 3", lines[0])
	require.Len(t, lines, 1+tailLines)
	require.Equal(t, "  line 30", lines[1])
	require.Equal(t, "  listen: address already in use", lines[len(lines)-1])
}

func TestKillEndsWhatDoesNotListenAndReportsNothing(t *testing.T) {
	kill, log, ended := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(content), "ready")
	}, patience, time.Millisecond)
	kill()
	require.Empty(t, ended)
}

func TestStartProcessNamesWhatItCannotStart(t *testing.T) {
	dir := t.TempDir()
	_, err := startProcess("absent", filepath.Join(dir, "absent"), filepath.Join(dir, "log"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent")
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.Contains(t, lastLines(file), "no log: ")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("a\n", 20)+"c\nd\n"), 0o600))
	require.Equal(t, strings.Repeat("  a\n", tailLines-2)+"  c\n  d", lastLines(file))
}
