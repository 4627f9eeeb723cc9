package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/demo/board"
	"zonewise.dev/internal/demo/run"
)

// zonewise runs the command line and returns what a shell would see.
func zonewise(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = report(&errs, root.ExecuteContext(ctx))
	return code, out.String(), errs.String()
}

func TestBadInputIsOneLineAndExitCode2(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"demo", "--scale", "0"}, "--scale: must be above 0 and at most 1, got 0"},
		{[]string{"demo", "--scale", "NaN"}, "--scale: must be above 0 and at most 1, got NaN"},
		{[]string{"demo", "--scale", "much"}, `invalid argument "much" for "--scale"`},
		{[]string{"demo", "--nodes", "1"}, "--nodes: must be 0 or between 6 and 5000, got 1"},
		{[]string{"demo", "--seed", "-1"}, `invalid argument "-1" for "--seed"`},
		{[]string{"demo", "--port", "-2"}, "--port: must be between 0 and 65535, got -2"},
		{[]string{"demo", "--board-port", "70000"}, "--board-port: must be between 0 and 65535, got 70000"},
		{[]string{"demo", "--timeout", "0s"}, "--timeout: must be positive, got 0s"},
		{[]string{"demo", "-o", "yaml"}, `--output: must be text or json, got "yaml"`},
		{[]string{"demo", "--zones", "4"}, "unknown flag: --zones"},
		{[]string{"demo", "now"}, `unknown command "now" for "zonewise demo"`},
		{[]string{"demos"}, `unknown command "demos" for "zonewise"`},
		{[]string{"version", "-o", "xml"}, `--output: must be text or json, got "xml"`},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := zonewise(t.Context(), tc.args...)
			require.Equal(t, exitUsage, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "zonewise: "+tc.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

func TestMissingBinariesAreOneLineAndExitCode1(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	dir := t.TempDir()
	code, _, stderr := zonewise(t.Context(), "demo", "--bin-dir", dir)
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "zonewise: missing: "+filepath.Join(dir, "etcd")+" (not found)")
	require.Contains(t, stderr, `run "make build controlplane"`)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)

	assets := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	_, _, stderr = zonewise(t.Context(), "demo", "--bin-dir", dir)
	require.Contains(t, stderr, filepath.Join(assets, "etcd"))
}

func TestReport(t *testing.T) {
	invariant := &run.InvariantError{Broken: []board.Check{{Name: "no gang is partly bound", Violations: []string{"gang g: 1 bound, minMember 2"}}}}
	for _, tc := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"fine", nil, exitOK, ""},
		{"failure", errors.New("boom"), exitFailure, "zonewise: boom\n"},
		{"interrupted", fmt.Errorf("create nodes: %w", context.Canceled), exitInterrupted, "zonewise: interrupted\n"},
		{"invariant", fmt.Errorf("demo: %w", invariant), exitInvariant, "zonewise: demo: broken invariant \"no gang is partly bound\": gang g: 1 bound, minMember 2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			require.Equal(t, tc.code, report(&out, tc.err))
			require.Equal(t, tc.text, out.String())
		})
	}
}

func TestVersion(t *testing.T) {
	code, text, _ := zonewise(t.Context(), "version")
	require.Equal(t, exitOK, code)
	_, flag, _ := zonewise(t.Context(), "--version")
	require.Equal(t, text, flag)
	require.True(t, strings.HasPrefix(text, "zonewise v"), text)

	_, out, _ := zonewise(t.Context(), "version", "-o", "json")
	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &fields))
	require.Equal(t, "zonewise "+fields["gitVersion"]+"\n", text)
}

func TestHelpListsTheCommands(t *testing.T) {
	code, out, _ := zonewise(t.Context())
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "demo")
	_, out, _ = zonewise(t.Context(), "demo", "--help")
	for _, flag := range []string{"--bin-dir", "--keep", "--nodes", "--output", "--port", "--quiet", "--scale", "--seed", "--timeout", "Exit codes"} {
		require.Contains(t, out, flag)
	}
}

func TestOnlyATerminalIsOne(t *testing.T) {
	require.False(t, isTerminal(io.Discard))
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file))
	require.Equal(t, defaultWidth, width(file))
	t.Setenv("NO_COLOR", "")
	require.False(t, noColor())
	t.Setenv("NO_COLOR", "1")
	require.True(t, noColor())
}

func TestGuardCleansUpWhenItsInputEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	require.NoError(t, os.Mkdir(dir, 0o700))
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	empty, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer empty.Close()
	os.Stdin = empty
	require.Equal(t, exitOK, guard(dir))
	require.NoDirExists(t, dir)
}
