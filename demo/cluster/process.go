package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// startProcess runs a component in a process group of its own, so that a Ctrl-C at the terminal reaches only the demo.
// Its output goes to the file log. ended is called if it ends by itself. kill ends the group, and returns when the
// process is gone.
func startProcess(component, path, log string, ended func(error), args ...string) (kill func(), err error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		if err := cmd.Wait(); ctx.Err() == nil {
			ended(exitError(component, log, err))
		}
	}()
	return func() { cancel(); <-exited }, nil
}

// exitError says that a component ended by itself. err is its exit state, nil for exit code 0.
func exitError(component, log string, err error) error {
	if err == nil {
		err = errors.New("exit code 0")
	}
	return fmt.Errorf("%s ended with %w\n%s", component, err, lastLines(log))
}

// tailLines is how many lines of a log an error has.
const tailLines = 12

// lastLines returns the last lines of a file, indented, or an error text.
func lastLines(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}
