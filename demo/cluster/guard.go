package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// GuardCommand is the hidden argument that makes the executable a guard.
const GuardCommand = "__guard"

// guard is a small process that outlives a killed demo: when the pipe from the demo closes, it sweeps what is left.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard runs self as the guard of dir, in its own session, so that no signal for the demo's group or terminal reaches
// it.
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

// dismiss ends the guard, after the directory has been swept.
func (g *guard) dismiss() {
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// RunGuard is the guard's main function. It waits until from ends, and sweeps dir.
func RunGuard(from io.Reader, dir string) error {
	_, _ = io.Copy(io.Discard, from)
	return sweep(dir)
}

// script runs a component: it records its process, whose group has the same number, and becomes the component. It fails
// once the directory has been swept, so that nothing starts after that.
const script = `#!/bin/sh
echo $$ >%s || exit 1
exec %s "$@"
`

// wrap writes a script that runs a component, and returns its path.
func wrap(dir, name, path string) (string, error) {
	file := filepath.Join(dir, "bin", name)
	return file, os.WriteFile(file, fmt.Appendf(nil, script, quote(pidFile(dir, name)), quote(path)), 0o700)
}

func pidFile(dir, name string) string { return filepath.Join(dir, "pids", name) }

// quote makes one word of text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// sweep kills the process groups that are recorded in dir, and removes dir if it exists.
func sweep(dir string) error {
	// Rename it first: components that start from now on fail.
	gone := dir + ".gone"
	if err := os.Rename(dir, gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	files, err := filepath.Glob(pidFile(gone, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		pid, notNumber := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil && notNumber == nil && pid > 1 {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
		}
	}
	return removeAll(gone)
}

// removeAll removes a directory in which ending processes may still write.
func removeAll(dir string) error {
	var err error
	for range 100 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond) // there is no event for the end of a killed process
	}
	return err
}
