package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// victimCommand makes the test binary a demo that has started a process and is
// then killed.
const victimCommand = "__victim"

// patience is how long a test waits for what other processes do.
const patience = 20 * time.Second

// victim starts a guard and a process that ignores every polite signal, says
// so, and waits for its end.
func victim(dir string) {
	self, err := os.Executable()
	fatal(err)
	g, err := startGuard(self, dir)
	fatal(err)
	p, err := startProcess("sleeper", "/bin/sh", filepath.Join(dir, "log"), "-c", "trap '' TERM INT HUP; sleep 1000 & echo $! $$; wait")
	fatal(err)
	g.watch(p.cmd.Process.Pid)
	for {
		// The shell has trapped the signals once it has written.
		if content, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && strings.HasSuffix(string(content), "\n") {
			fmt.Print(string(content))
			break
		}
		time.Sleep(time.Millisecond)
	}
	select {}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A demo that is killed without a chance to clean up leaves neither a process,
// grandchildren included, nor its directory.
func TestNothingSurvivesADemoThatIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	require.NoError(t, os.Mkdir(dir, 0o700))
	self, err := os.Executable()
	require.NoError(t, err)
	demo := exec.Command(self, victimCommand, dir)
	demo.Stderr = os.Stderr
	out, err := demo.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, demo.Start())
	buffer := make([]byte, 100)
	n, err := out.Read(buffer)
	require.NoError(t, err)
	var pids []int
	for field := range strings.FieldsSeq(string(buffer[:n])) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.True(t, alive(pid))
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)

	require.NoError(t, demo.Process.Kill())
	_ = demo.Wait()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, patience, 5*time.Millisecond, "process %d", pid)
	}
	require.Eventually(t, func() bool { return !exists(dir) }, patience, 5*time.Millisecond)
}

func TestADismissedGuardTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	g, err := startGuard(self, dir)
	require.NoError(t, err)
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	g.watch(other.Process.Pid)
	g.dismiss()
	require.True(t, alive(other.Process.Pid))
	require.True(t, exists(dir))
}

func TestRunGuard(t *testing.T) {
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	kept, forgotten, killed := start(), start(), start()
	dir := filepath.Join(t.TempDir(), "demo")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))

	script := fmt.Sprintf("+%d\n+%d\n-%d\nnonsense\n+1\n+0\n+-1\n", forgotten.Process.Pid, killed.Process.Pid, forgotten.Process.Pid)
	require.NoError(t, RunGuard(strings.NewReader(script), dir))
	require.False(t, exists(dir))
	state, err := killed.Process.Wait()
	require.NoError(t, err)
	require.Equal(t, "signal: killed", state.String())
	require.True(t, alive(kept.Process.Pid))
	require.True(t, alive(forgotten.Process.Pid))
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[0] != "Z"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
