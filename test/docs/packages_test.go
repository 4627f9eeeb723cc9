package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

// TestUnitTestsLinkNoScheduler: the tests that "make unit" runs link nothing of k8s.io/kubernetes, which takes longer
// than most of them.
func TestUnitTestsLinkNoScheduler(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "hack", "test.sh"))
	require.NoError(t, err)
	pattern := regexp.MustCompile(`(?s)step_unit\(\) \{.*?packages -v '([^']+)'`).FindStringSubmatch(string(script))
	require.NotNil(t, pattern, "hack/test.sh leaves packages out of the step unit")
	leftOut := regexp.MustCompile(pattern[1])
	listed, err := program.Run(root, "go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	require.NoError(t, err)
	binaries := 0
	for line := range strings.Lines(listed) {
		words := strings.Fields(line)
		name, isBinary := strings.CutSuffix(strings.TrimPrefix(words[0], "zonewise.dev/"), ".test")
		if !isBinary || leftOut.MatchString(name) {
			continue
		}
		i := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "k8s.io/kubernetes/") })
		require.Negative(t, i, "the tests of %s link %s", name, words[max(i, 0)])
		binaries++
	}
	require.Greater(t, binaries, 20)
}
