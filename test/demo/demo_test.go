package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// start starts the demo with temporary files below tmp.
func start(t *testing.T, tmp string, args ...string) (cmd *exec.Cmd, stdout *bytes.Buffer, stderr io.Reader) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	path, err := program.Demo(root)
	require.NoError(t, err)
	_, err = program.Scheduler(root)
	require.NoError(t, err)
	cmd = exec.CommandContext(t.Context(), path, append([]string{"--timeout", "15m"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	stdout = &bytes.Buffer{}
	cmd.Stdout = stdout
	stderr, err = cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, stdout, stderr
}

// requireNothingLeft requires that the demo has left neither its directory nor processes that have the directory in
// their command line.
func requireNothingLeft(t *testing.T, tmp string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(tmp, "zonewise-demo-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range lines {
		content, err := os.ReadFile(file)
		if err == nil { // it may have ended
			require.NotContains(t, string(content), tmp, file)
		}
	}
}

// TestDemo runs the whole story: all checks hold at all five moments, the page is saved, the kubeconfig that --keep
// prints works, and an interrupt leaves nothing.
func TestDemo(t *testing.T) {
	t.Parallel()
	tmp, report := t.TempDir(), filepath.Join(t.TempDir(), "board.html")
	cmd, stdout, stderr := start(t, tmp, "-o", "json", "--report", report, "--keep")
	var said strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if _, kubeconfig, found := strings.Cut(lines.Text(), "export KUBECONFIG="); found {
			require.FileExists(t, kubeconfig)
			kubectl := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(cmd.Path), "kubectl"), "--kubeconfig", kubeconfig, "get", "pods", "-A", "-o", "name")
			pods, err := kubectl.Output()
			require.NoError(t, err)
			require.Greater(t, strings.Count(string(pods), "\n"), 300)
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		}
	}
	err := cmd.Wait()
	require.NoError(t, err, "%s\n%s", said.String(), stdout)

	var board struct {
		Moments []struct {
			Title  string
			Checks []struct {
				Name, Evidence string
				Violations     []string
			}
		}
		Phases []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &board))
	require.Len(t, board.Moments, 5)
	for i, m := range board.Moments {
		var names []string
		for _, c := range m.Checks {
			names = append(names, c.Name)
			require.Empty(t, c.Violations, "%s, %s", c.Name, m.Title)
			require.NotEmpty(t, c.Evidence, "%s, %s", c.Name, m.Title)
			t.Logf("%s, %s: %s", c.Name, m.Title, c.Evidence)
		}
		// That no other one is forgotten is the promise of TestEachFaultIsFound (demo/check).
		require.Contains(t, strings.Join(names, "\n"), []string{
			"the services survive the loss of any zone", "what the certificates said came true", "what the certificates said came true",
			"every replica of every service is bound", "is moved back",
		}[i], m.Title)
	}
	page, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(page), "what the certificates said came true")
	requireNothingLeft(t, tmp)
}

// TestAnInterruptWhileTheControlPlaneStartsLeavesNothing: Ctrl-C works at every moment.
func TestAnInterruptWhileTheControlPlaneStartsLeavesNothing(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd, stdout, stderr := start(t, tmp, "--report", "")
	require.Eventually(t, func() bool {
		logs, err := filepath.Glob(filepath.Join(tmp, "zonewise-demo-*", "logs", "control-plane.log"))
		return err == nil && len(logs) == 1
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	_ = cmd.Wait()
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), string(rest))
	require.Empty(t, stdout.String())
	requireNothingLeft(t, tmp)
}
