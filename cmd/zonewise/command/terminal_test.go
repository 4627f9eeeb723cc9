package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// asCommand has the test binary be the command, so that a terminal of its own can be given to it.
const asCommand = "ZONEWISE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(Main(os.Args[1:], nil))
	}
	os.Exit(m.Run())
}

// escapes are what a terminal takes for itself: colours, and the deletion of a line.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// onTerminal runs the command with a terminal of so many columns and settings of the environment, and returns what the
// terminal was sent.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) string {
	t.Helper()
	for _, setting := range append([]string{"TERM=xterm", "NO_COLOR="}, env...) {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	return sentTo(t, columns, func(end *os.File) int {
		root := newRoot(nil)
		root.SetArgs(args)
		root.SetOut(end)
		root.SetErr(end)
		return program.Report(end, "zonewise", root.ExecuteContext(t.Context()), exitCodes)
	})
}

// processOnTerminal is onTerminal with the command in a process of its own.
func processOnTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	return sentTo(t, columns, func(end *os.File) int {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1", "TERM=xterm", "NO_COLOR=")
		cmd.Stdout, cmd.Stderr = end, end
		_ = cmd.Run() // its exit code tells
		return cmd.ProcessState.ExitCode()
	})
}

// sentTo makes a terminal, and returns what a run that succeeds sends to it.
func sentTo(t *testing.T, columns uint16, run func(end *os.File) (code int)) string {
	t.Helper()
	terminal, end, err := pty.Open()
	require.NoError(t, err)
	defer terminal.Close()
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: columns}))
	code := make(chan int, 1)
	go func() {
		code <- run(end)
		_ = end.Close() // which ends the reading
	}()
	var sent bytes.Buffer
	// Reading a terminal of which the other end is closed is an error of its own.
	if _, err := io.Copy(&sent, terminal); !errors.Is(err, syscall.EIO) {
		require.NoError(t, err)
	}
	require.Contains(t, []int{program.OK, exitCodes[errNotSurvived]}, <-code, sent.String())
	return sent.String()
}

func TestColourOnATerminalOnly(t *testing.T) {
	file := saved(t)
	for _, args := range [][]string{
		{"status", "--snapshot", file},
		{"explain", "web-1-7", "-n", "shop", "--snapshot", file, "--quiet"},
		{"simulate", "--lose-zone", "a", "--snapshot", file, "--quiet"},
	} {
		t.Run(args[0], func(t *testing.T) {
			_, piped, _ := zonewise(t.Context(), args...)
			require.NotContains(t, piped, "\x1b")

			colored := onTerminal(t, 500, nil, args...)
			require.Contains(t, colored, "\x1b[1m")
			require.Equal(t, piped, strings.ReplaceAll(escapes.ReplaceAllString(colored, ""), "\r\n", "\n"), "colours apart it is the same")

			for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
				require.NotContains(t, onTerminal(t, 500, []string{env}, args...), "\x1b", env)
			}
		})
	}
}

func TestAProcessOnATerminal(t *testing.T) {
	args := []string{"status", "--snapshot", saved(t)}
	require.Equal(t, onTerminal(t, 500, nil, args...), processOnTerminal(t, 500, args...))
}

// TestANarrowTerminal: at 40 columns only what cannot be broken, a name, may be wider.
func TestANarrowTerminal(t *testing.T) {
	file := saved(t)
	for _, args := range [][]string{
		{"status", "--snapshot", file},
		{"explain", "web-1-7", "-n", "shop", "--snapshot", file},
		{"explain", "pg/train", "-n", "shop", "--snapshot", file},
		{"simulate", "--lose-zone", "a", "--snapshot", file},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			_, piped, _ := zonewise(t.Context(), args...)
			narrow := escapes.ReplaceAllString(onTerminal(t, 40, nil, append(args, "--quiet")...), "")
			for line := range strings.SplitSeq(strings.ReplaceAll(narrow, "\r\n", "\n"), "\n") {
				if utf8.RuneCountInString(line) > 40 {
					require.LessOrEqual(t, len(strings.Fields(line)), 2, "%q could be broken", line)
				}
			}
			for word := range strings.FieldsSeq(piped) {
				if word == strings.ToUpper(word) {
					continue // the name of a column
				}
				require.Contains(t, narrow, word, "nothing is lost")
			}
		})
	}
}

func TestProgressOnATerminalOnly(t *testing.T) {
	file := savedAs(t, clitest.Large(30, 450))
	args := []string{"simulate", "--lose-zone", "a", "--snapshot", file, "-o", "json"}
	_, _, errs := zonewise(t.Context(), args...)
	require.Empty(t, errs)
	bar := regexp.MustCompile(`\[[#-]+\] \d+/\d+`) // a fast machine is done before the second bar
	sent := onTerminal(t, 80, nil, args...)
	require.Regexp(t, bar, sent)
	require.Regexp(t, `\r\x1b\[Klose zone a: \d+ pods tried in \S+, \d+ a second, \d+ MB\r\n\{`, sent, "the bar is gone when the answer comes")
	require.NotRegexp(t, bar, onTerminal(t, 80, nil, append(args, "--quiet")...))
	require.NotRegexp(t, bar, onTerminal(t, 80, []string{"TERM=dumb"}, args...))
}
