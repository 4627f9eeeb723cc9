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

// victim starts a guard and, as a component, a process that ignores every polite signal, says so, and waits for its end.
func victim(dir string) {
	_, err := startGuard(dir)
	fatal(err)
	script, err := wrap(dir, "sleeper", "/bin/sh")
	fatal(err)
	log := filepath.Join(dir, "log")
	_, err = startProcess(script, log, func(error) {}, "-c", "trap '' TERM INT HUP; sleep 1000 & echo $! $$; wait")
	fatal(err)
	for {
		// The shell has trapped the signals once it has written.
		if content, err := os.ReadFile(log); err == nil && strings.HasSuffix(string(content), "\n") {
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
	dir := directory(t)
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

// sweep starts a guard of a directory and lets it work.
func sweep(t *testing.T, dir string) {
	t.Helper()
	g, err := startGuard(dir)
	require.NoError(t, err)
	require.NoError(t, g.sweep())
}

// started starts a process in a group of its own.
func started(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// directory makes that of a cluster, with files that note processes.
func directory(t *testing.T, pids ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's a demo")
	for _, sub := range []string{"bin", "pids"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	for i, pid := range pids {
		require.NoError(t, os.WriteFile(pidFile(dir, fmt.Sprint(i)), []byte(pid), 0o600))
	}
	return dir
}

func TestSweepKillsWhatIsNotedAndNothingElse(t *testing.T) {
	kept, killed := started(t), started(t)
	ended := make(chan error, 1)
	go func() { ended <- killed.Wait() }()
	dir := directory(t, fmt.Sprintf("%d\n", killed.Process.Pid), "", "nonsense", "1", "0", "-1")
	sweep(t, dir)
	require.False(t, exists(dir))
	require.False(t, exists(dir+".gone"))
	require.EqualError(t, <-ended, "signal: killed")
	require.True(t, alive(kept.Process.Pid))
	sweep(t, dir) // again does no harm
}

func TestNothingStartsAfterASweep(t *testing.T) {
	dir := directory(t)
	log := filepath.Join(t.TempDir(), "log")
	script, err := wrap(dir, "thing", "/bin/echo")
	require.NoError(t, err)
	kept := filepath.Join(t.TempDir(), "thing")
	require.NoError(t, os.Link(script, kept))
	ended := make(chan error, 1)
	run := func(word string) error {
		_, err := startProcess(kept, log, func(err error) { ended <- err }, word)
		require.NoError(t, err)
		return <-ended
	}
	require.ErrorContains(t, run("hello"), "thing ended with exit code 0\n  hello")
	sweep(t, dir)
	require.ErrorContains(t, run("again"), "thing ended with exit status")
	require.NotContains(t, tail(log), "again")
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
