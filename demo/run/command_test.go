package run

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/program"
)

// command runs the command line and returns what a shell would see.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := NewCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = program.Report(&errs, "zonewise-demo", cmd.ExecuteContext(t.Context()), ExitCodes)
	return code, out.String(), errs.String()
}

func TestBadInputIsOneLineAndExitCode2(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--nodes", "9"}, "unknown flag: --nodes"},
		{[]string{"--seed", "-1"}, `invalid argument "-1" for "--seed"`},
		{[]string{"--port", "-2"}, `invalid argument "-2" for "--port"`},
		{[]string{"--board-port", "70000"}, `invalid argument "70000" for "--board-port"`},
		{[]string{"--timeout", "0s"}, "--timeout: must be positive, got 0s"},
		{[]string{"-o", "yaml"}, `--output: must be text or json, got "yaml"`},
		{[]string{"--zones", "4"}, "unknown flag: --zones"},
		{[]string{"now"}, `zonewise-demo takes no arguments, got "now"`},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := command(t, tc.args...)
			require.Equal(t, program.Misused, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "zonewise-demo: "+tc.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

func TestMissingBinariesAreOneLineAndExitCode1(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := command(t, "--bin-dir", dir)
	require.Equal(t, program.Failed, code)
	require.Contains(t, stderr, "zonewise-demo: missing: "+filepath.Join(dir, "etcd")+" (not found)")
	require.Contains(t, stderr, `run "make build controlplane"`)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}

// TestReport: a demo whose checks do not hold has an exit code of its own. The other errors are those of every program.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	err := fmt.Errorf("%w: a gang is partly bound", ErrBroken)
	require.Equal(t, ExitCodes[ErrBroken], program.Report(&out, "zonewise-demo", err, ExitCodes))
	require.Equal(t, "zonewise-demo: checks do not hold: a gang is partly bound\n", out.String())
}

func TestHelpListsTheFlags(t *testing.T) {
	_, out, _ := command(t, "--help")
	for _, flag := range []string{"--bin-dir", "--keep", "--output", "--port", "--quiet", "--seed", "--timeout", "Exit codes"} {
		require.Contains(t, out, flag)
	}
}
