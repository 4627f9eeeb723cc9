package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/program"
)

// TestPrintedCommandsAreAboutThisCluster: what the tools tell to run is about the cluster that they show, under the name they have.
func TestPrintedCommandsAreAboutThisCluster(t *testing.T) {
	self := os.Args[0]
	defer func() { os.Args[0] = self }()
	file := saved(t)
	page := filepath.Join(t.TempDir(), "board.html")
	code, _, errs := zonewise(t.Context(), "board", "--snapshot", file, "--output", page)
	require.Equal(t, program.OK, code, errs)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "zonewise --snapshot="+file+" explain podgroup/train -n shop")

	os.Args[0] = "/usr/local/bin/kubectl-zonewise"
	code, out, errs := zonewise(t.Context(), "explain", "train-0", "-n", "shop", "--snapshot", file)
	require.Equal(t, program.OK, code, errs)
	require.Contains(t, out, "kubectl zonewise --snapshot="+file+" explain podgroup/train -n shop says whether they fit")

	var flags clusterFlags
	cmd := newRoot(nil)
	flags.register(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--context", "it's prod", "--as-group", "a", "--as-group", "b", "--token", "secret", "--insecure-skip-tls-verify"}))
	require.Equal(t, `kubectl zonewise --as-group=a --as-group=b --context='it'\''s prod' --insecure-skip-tls-verify=true`, flags.invocation())
}
