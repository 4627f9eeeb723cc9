package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func shell(t *testing.T, script string) *process {
	t.Helper()
	p, err := startProcess("thing", "/bin/sh", filepath.Join(t.TempDir(), "log"), "-c", script)
	require.NoError(t, err)
	t.Cleanup(func() { p.kill() })
	return p
}

func TestAProcessThatEndsIsReportedWithTheEndOfItsLog(t *testing.T) {
	p := shell(t, "for i in $(seq 40); do echo line $i; done; echo 'listen: address already in use' >&2; exit 3")
	<-p.exited
	err := p.exitError()
	var ended *ExitError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, "thing", ended.Component)
	lines := strings.Split(err.Error(), "\n")
	require.Equal(t, "thing ended with exit status 3", lines[0])
	require.Len(t, lines, 1+tailLines)
	require.Equal(t, "  line 30", lines[1])
	require.Equal(t, "  listen: address already in use", lines[len(lines)-1])
}

func TestAwaitEndsWhenTheProcessDoes(t *testing.T) {
	p := shell(t, "exit 0")
	err := p.await(t.Context(), func(context.Context) error { return errors.New("not yet") })
	require.EqualError(t, err, "thing ended with exit code 0\n  (its log is empty)")
}

func TestAwaitTriesUntilItSucceeds(t *testing.T) {
	p := shell(t, "sleep 1000")
	tries := 0
	require.NoError(t, p.await(t.Context(), func(context.Context) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	require.Equal(t, 3, tries)
}

func TestAwaitSaysWhyTheTimeRanOut(t *testing.T) {
	p := shell(t, "echo busy; sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.await(ctx, func(context.Context) error { return errors.New("connection refused") })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "thing does not answer: connection refused")
	require.ErrorContains(t, err, "busy")
}

func TestAwaitEndsAtOnceWhenItIsCancelled(t *testing.T) {
	p := shell(t, "sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	err := p.await(ctx, func(context.Context) error {
		cancel()
		return errors.New("not yet")
	})
	require.Equal(t, context.Canceled, err)
}

func TestKillEndsWhatDoesNotListen(t *testing.T) {
	p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	require.Eventually(t, func() bool { return strings.Contains(tail(p.log), "ready") }, 20*time.Second, time.Millisecond)
	p.kill()
	require.EqualError(t, p.err, "signal: killed")
}

func TestStartProcessNamesWhatItCannotStart(t *testing.T) {
	_, err := startProcess("thing", filepath.Join(t.TempDir(), "absent"), filepath.Join(t.TempDir(), "log"))
	require.ErrorContains(t, err, "thing: fork/exec")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.Contains(t, tail(file), "no log: ")
	require.NoError(t, os.WriteFile(file, []byte("\n \n"), 0o600))
	require.Equal(t, "  (its log is empty)", tail(file))
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("a\n", 20)+"c\nd\n"), 0o600))
	require.Equal(t, strings.Repeat("  a\n", tailLines-2)+"  c\n  d", tail(file))
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("x", 3*tailBytes)+"\nlast\n"), 0o600))
	got := tail(file)
	require.Equal(t, "  "+strings.Repeat("x", tailWidth)+"...\n  last", got)
}
