package command

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

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/internal/program"
)

// zonewise runs the command line and returns what a shell would see.
func zonewise(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	root := newRoot(nil)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = program.Report(&errs, "zonewise", root.ExecuteContext(ctx), exitCodes)
	return code, out.String(), errs.String()
}

// ok runs the command line, which has to succeed, and returns what it prints.
func ok(t testing.TB, args ...string) string {
	t.Helper()
	code, out, errs := zonewise(t.Context(), args...)
	require.Equal(t, program.OK, code, errs)
	return out
}

func TestBadInputIsOneLineAndExitCode2(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"demos"}, `unknown command "demos" for "zonewise"`},
		{[]string{"statsu"}, `unknown command "statsu" for "zonewise", did you mean status?`},
		{[]string{"version", "-o", "xml"}, `--output: must be text, json or yaml, got "xml"`},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := zonewise(t.Context(), tc.args...)
			require.Equal(t, program.Misused, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, "zonewise: "+tc.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"fine", nil, program.OK, ""},
		{"failure", errors.New("boom"), program.Failed, "zonewise: boom\n"},
		{"interrupted", fmt.Errorf("create nodes: %w", context.Canceled), program.Interrupted, "zonewise: interrupted\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			require.Equal(t, tc.code, program.Report(&out, "zonewise", tc.err, exitCodes))
			require.Equal(t, tc.text, out.String())
		})
	}
}

func TestVersion(t *testing.T) {
	text := ok(t, "version")
	require.Equal(t, text, ok(t, "--version"))
	require.True(t, strings.HasPrefix(text, "zonewise v"), text)

	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(ok(t, "version", "-o", "json")), &fields))
	require.Equal(t, "zonewise "+fields["gitVersion"]+"\n", text)
}

func TestHelpListsTheCommands(t *testing.T) {
	out := ok(t)
	for _, command := range []string{"status", "explain", "simulate", "board", "snapshot", "version"} {
		require.Contains(t, out, "\n  "+command+" ")
	}
}

func TestOnlyATerminalIsOne(t *testing.T) {
	require.False(t, show.IsTerminal(io.Discard))
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, show.IsTerminal(file))
	require.Equal(t, show.DefaultWidth, show.Width(file))
	t.Setenv("NO_COLOR", "")
	require.False(t, show.NoColor())
	t.Setenv("NO_COLOR", "1")
	require.True(t, show.NoColor())
}
