package docs

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/internal/program"
)

// TestASchedulerWithOwnPluginsIsTheCommandLine: examples/own-plugins explains what its own plugin refuses, and is the
// controller, too. Without the plugin its configuration is wrong.
func TestASchedulerWithOwnPluginsIsTheCommandLine(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	dir := t.TempDir()
	own, err := program.Example(root, dir, "own-plugins")
	require.NoError(t, err)
	zonewise, err := program.Zonewise(root)
	require.NoError(t, err)
	c := clitest.New()
	c.Node("node-a", "a", "4", "8Gi").Labels["example.com/quarantine"] = "a disk fails"
	c.Pod("web", "", clitest.Plain("1", "1Gi"), nil)
	file := filepath.Join(dir, "cluster.json")
	require.NoError(t, snapshot.Save(file, c.Snapshot))
	arguments := []string{"explain", "web", "-n", clitest.Namespace, "--snapshot", file, "--config", filepath.Join(root, "examples", "own-plugins", "scheduler.yaml")}
	out, err := exec.CommandContext(t.Context(), own, append([]string{"zonewise"}, arguments...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "1 node (Quarantine): node is in quarantine: a disk fails")
	out, err = exec.CommandContext(t.Context(), zonewise, arguments...).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "Quarantine")
	help, err := exec.CommandContext(t.Context(), own, "--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(help), "--leader-elect", "it is a scheduler")
	help, err = exec.CommandContext(t.Context(), own, "controller", "--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(help), "--survival", "it is the controller")
}
