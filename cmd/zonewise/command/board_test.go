package command

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/program"
)

// untilShown ends a command as soon as it has printed something, as Ctrl-C would.
type untilShown struct {
	bytes.Buffer
	shown func(text string)
}

func (w *untilShown) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	w.shown(w.String())
	return n, err
}

// shownBoard runs the command board until it has said where the board is and look has looked at that.
func shownBoard(ctx context.Context, look func(text string), args ...string) (code int, stdout, stderr string) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var errs bytes.Buffer
	looked := make(chan struct{})
	out := &untilShown{shown: func(text string) {
		go func() { // the server is started after this
			defer close(looked)
			look(text)
			end()
		}()
	}}
	root := newRoot(nil)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(&errs)
	code = program.Report(&errs, "zonewise", root.ExecuteContext(ctx), exitCodes)
	if out.Len() > 0 {
		<-looked
	}
	return code, out.String(), errs.String()
}

func TestBoardIsServedUntilItIsInterrupted(t *testing.T) {
	var status int
	code, out, errs := shownBoard(t.Context(), func(text string) {
		url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/[A-Z2-7]{26}/`).FindString(text)
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, nil)
		if err != nil {
			return
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return
		}
		status = response.StatusCode
		_ = response.Body.Close()
	}, "board", "--snapshot", saved(t))
	require.Equal(t, program.OK, code, errs)
	require.Empty(t, errs)
	require.Equal(t, http.StatusOK, status, out)
	require.Contains(t, out, "Ctrl-C ends it.")
}

func TestBoardAsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "board.html")
	require.Equal(t, "The board is in "+file+".\n", ok(t, "board", "--snapshot", saved(t), "--output", file))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(data), "<!doctype html>"))
	require.Contains(t, string(data), "cluster.json.gz")
	require.Contains(t, string(data), "shop/train")
}

func TestBoardSaysWhatIsWrong(t *testing.T) {
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	story := saved(t)
	nowhere := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(nowhere, []byte(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`), 0o600))
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"a port that is taken", []string{"--port", port, "--snapshot", story}, program.Failed, "--port: 127.0.0.1:" + port + ": the port is taken: choose another, or 0 for a free one"},
		{"a port that is none", []string{"--port", "65536"}, program.Misused, "--port: must be between 0 and 65535, got 65536"},
		{"no file", []string{"--output", ""}, program.Misused, "--output: must name a file"},
		{"a file and a port", []string{"--output", "f", "--port", "1"}, program.Misused, "--output writes a file and serves nothing"},
		{"a directory that is not there", []string{"--output", "/no/board.html", "--snapshot", story}, program.Failed, "write /no/board.html: no such file or directory"},
		{"no cluster", []string{"--kubeconfig", nowhere}, program.Failed, "the cluster at 127.0.0.1:1 does not answer"},
		{"no cluster, to a file", []string{"--kubeconfig", nowhere, "--output", "f"}, program.Failed, "the cluster at 127.0.0.1:1 does not answer"},
		{"no snapshot", []string{"--snapshot", "/no/such/file"}, program.Failed, "/no/such/file: no such file or directory"},
		{"an argument", []string{"now"}, program.Misused, `zonewise: board takes no arguments, got "now"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := zonewise(t.Context(), append([]string{"board"}, tc.args...)...)
			require.Equal(t, tc.code, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, "zonewise: ")
			require.Contains(t, errs, tc.want)
			require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		})
	}
}
