package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a running component.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// exited is closed once the process is gone.
	exited chan struct{}
	// err is what Wait returned; read it after exited.
	err error
	// stopping is set before the process is told to end.
	stopping atomic.Bool
}

// spawn runs start on a thread that lives as long as this process. The kernel
// signals a child when the *thread* that started it ends, and Go ends threads
// as it likes; a thread that a goroutine has locked and never leaves stays.
var spawn = sync.OnceValue(func() func(start func() error) error {
	type job struct {
		start func() error
		done  chan error
	}
	jobs := make(chan job)
	go func() {
		runtime.LockOSThread()
		for j := range jobs {
			j.done <- j.start()
		}
	}()
	return func(start func() error) error {
		j := job{start, make(chan error, 1)}
		jobs <- j
		return <-j.done
	}
})

// startProcess runs the executable in a process group of its own with its
// output in the file log.
func startProcess(name, path, log string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer out.Close()
	p := &process{name: name, log: log, cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = childAttributes()
	if err := spawn()(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop asks the process to end, and after grace makes it. It returns when the
// process is gone.
func (p *process) stop(grace time.Duration) {
	p.stopping.Store(true)
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.exited
}

// signal sends to the whole group.
func (p *process) signal(s syscall.Signal) error {
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

// ExitError says that a component ended although nobody told it to.
type ExitError struct {
	// Component is the executable's name.
	Component string
	// Log is the end of what it wrote.
	Log string
	// Err is the state that it ended with, nil for exit code 0.
	Err error
}

// Error names the component, why it ended, and what it said last.
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
	return &ExitError{Component: p.name, Log: tail(p.log, tailLines), Err: p.err}
}

// await calls probe until it succeeds, the process ends or the context does.
func (p *process) await(ctx context.Context, probe func(context.Context) error) error {
	const every = 100 * time.Millisecond
	ticker := time.NewTicker(every)
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
			cause := context.Cause(ctx)
			if errors.Is(cause, context.Canceled) || errors.As(cause, new(*ExitError)) {
				return cause
			}
			return fmt.Errorf("%s does not answer: %w (%w)\n%s", p.name, err, cause, tail(p.log, tailLines))
		case <-ticker.C:
		}
	}
}

const (
	tailLines = 12
	tailBytes = 16 << 10
	tailWidth = 240
)

// tail returns the last lines of a file, indented; what cannot be read is
// said instead.
func tail(path string, lines int) string {
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
	last := all[max(0, len(all)-lines):]
	for i, line := range last {
		if runes := []rune(line); len(runes) > tailWidth {
			last[i] = string(runes[:tailWidth]) + "..."
		}
	}
	return "  " + strings.Join(last, "\n  ")
}
