package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed guard.sh
var guardScript string

// guard is a small process that outlives a killed demo: when the pipe from the demo closes, it ends what is left.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts the guard of a directory in its own session, so that no signal for the demo's group or terminal reaches it.
func startGuard(dir string) (*guard, error) {
	g := &guard{cmd: exec.Command("/bin/sh", "-c", guardScript, "zonewise-demo-guard", dir)}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := g.cmd.StdinPipe()
	if err == nil {
		g.pipe, err = pipe, g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return g, nil
}

// sweep ends the processes, removes the directory, and returns when both is done.
func (g *guard) sweep() error {
	_ = g.pipe.Close() // it has nothing to write
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
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

// startProcess runs a script of wrap in its own process group, so that a Ctrl-C at the terminal reaches only the demo. Its
// output goes to the file log. ended is called if it ends by itself. kill ends the group, and returns when the process is gone.
func startProcess(script, log string, ended func(error), args ...string) (kill func(), err error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, script, args...)
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
			ended(exitError(filepath.Base(script), log, err))
		}
	}()
	return func() { cancel(); <-exited }, nil
}

// exitError says that a component ended by itself. err is its exit state, nil for exit code 0.
func exitError(component, log string, err error) error {
	if err == nil {
		err = errors.New("exit code 0")
	}
	return fmt.Errorf("%s ended with %w\n%s", component, err, tail(log))
}

// tailLines is how many lines of a log an error has.
const tailLines = 12

// tail returns the last lines of a file, indented, or an error text.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("  (no log: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}
