package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// GuardCommand is the hidden argument that makes the executable a guard.
const GuardCommand = "__guard"

// guard is a small process that outlives a demo that was killed: when the pipe
// from the demo closes without a farewell, it kills the process groups that it
// was told of and removes the directory.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard runs self as the guard of dir, in a session of its own so that no
// signal for the demo's group or terminal reaches it.
func startGuard(self, dir string) (*guard, error) {
	cmd := exec.Command(self, GuardCommand, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// watch tells the guard of a process group. A write that fails means that the
// guard is gone; the kernel's own signal is left then.
func (g *guard) watch(pgid int) { _, _ = fmt.Fprintf(g.pipe, "+%d\n", pgid) }

// forget tells the guard that a process group has ended, so that its number
// may belong to somebody else.
func (g *guard) forget(pgid int) { _, _ = fmt.Fprintf(g.pipe, "-%d\n", pgid) }

// dismiss ends the guard: the demo has cleaned up itself.
func (g *guard) dismiss() {
	_, _ = fmt.Fprintln(g.pipe, "done")
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// RunGuard is the guard's main function. It reads from the demo until the
// pipe closes and then, unless the demo said that it is done, cleans up.
func RunGuard(from io.Reader, dir string) error {
	groups := map[int]bool{}
	scanner := bufio.NewScanner(from)
	for scanner.Scan() {
		line := scanner.Text()
		if line == "done" {
			return nil
		}
		pgid, err := strconv.Atoi(strings.TrimLeft(line, "+-"))
		if err != nil || pgid <= 1 {
			continue // never a group that the demo did not start
		}
		if strings.HasPrefix(line, "-") {
			delete(groups, pgid)
		} else {
			groups[pgid] = true
		}
	}
	for pgid := range groups {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
	return removeAll(dir)
}

// removeAll removes a directory in which dying processes may still write.
func removeAll(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // no event tells when a killed process has let go
	}
	return err
}
