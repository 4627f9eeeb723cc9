package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a running component.
type process struct {
	name, log string
	cmd       *exec.Cmd
	// exited is closed once the process is gone; err is then the result of Wait.
	exited chan struct{}
	err    error
	// stopping is set before the process is killed.
	stopping atomic.Bool
}

// startProcess runs the executable in its own process group, so that a Ctrl-C at the terminal reaches only the demo. Its
// output goes to the file log.
func startProcess(name, path, log string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer out.Close()
	p := &process{name: name, log: log, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// kill ends the process and its children, and returns when it is gone.
func (p *process) kill() {
	p.stopping.Store(true)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
}

// ExitError says that a component ended by itself.
type ExitError struct {
	// Component is its name.
	Component string
	// Log is the end of what it wrote.
	Log string
	// Err is its exit state, nil for exit code 0.
	Err error
}

// Error names the component, why it ended, and its last output.
func (e *ExitError) Error() string {
	state := "with exit code 0"
	if e.Err != nil {
		state = "with " + e.Err.Error()
	}
	return fmt.Sprintf("%s ended %s\n%s", e.Component, state, e.Log)
}

// Unwrap returns the state.
func (e *ExitError) Unwrap() error { return e.Err }

func (p *process) exitError() error {
	return &ExitError{Component: p.name, Log: tail(p.log), Err: p.err}
}

// await calls probe until it succeeds, or the process or the context ends.
func (p *process) await(ctx context.Context, probe func(context.Context) error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := probe(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return p.exitError()
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
				return cause
			}
			return fmt.Errorf("%s does not answer: %w (%w)\n%s", p.name, err, context.Cause(ctx), tail(p.log))
		case <-ticker.C:
		}
	}
}

const (
	tailLines = 12
	tailBytes = 16 << 10
	tailWidth = 240
)

// tail returns the last lines of a file, indented, or an error text.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tailBytes), io.SeekStart)
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return "  (its log is empty)"
	}
	all := strings.Split(string(content), "\n")
	last := all[max(0, len(all)-tailLines):]
	for i, line := range last {
		if runes := []rune(line); len(runes) > tailWidth {
			last[i] = string(runes[:tailWidth]) + "..."
		}
	}
	return "  " + strings.Join(last, "\n  ")
}
