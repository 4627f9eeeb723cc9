package command

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/documents"
)

// documented returns the command lines of this program in the documentation and in the commands' own examples.
func documented(t *testing.T) []string {
	t.Helper()
	commands, err := documents.All(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	var lines []string
	for _, c := range commands["console"] {
		lines = append(lines, c.Text)
	}
	for _, cmd := range newRoot(nil).Commands() {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
			lines = append(lines, line)
		}
	}
	var out []string
	for _, line := range lines {
		args := strings.Fields(line)
		if len(args) < 2 || args[0] != "zonewise" {
			continue
		}
		out = append(out, strings.Join(args[1:], " "))
	}
	return out
}

// TestDocumentedCommands runs them on a snapshot that has what they name. What needs a live cluster, the command
// snapshot, is run under test/cli.
func TestDocumentedCommands(t *testing.T) {
	lines := documented(t)
	require.Greater(t, len(lines), 15)
	c := clitest.Story()
	c.Node("worker-7", "eu-1a", "4", "8Gi")
	c.Pod("web-7d4b9c-x2x5v", "", clitest.Plain("1", "1Gi"), nil)
	c.Pod("web-7d4b9c-x2x5v", "", clitest.Plain("1", "1Gi"), nil).Namespace = "default"
	c.Add(&schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml"}})
	t.Chdir(t.TempDir())
	require.NoError(t, snapshot.Save("cluster.json.gz", c.Snapshot))
	require.NoError(t, os.WriteFile("workload.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"), 0o600))

	for _, line := range lines {
		args := strings.Fields(line)
		if args[0] == "snapshot" {
			continue
		}
		if !strings.Contains(line, "--snapshot") {
			args = append(args, "--snapshot", "cluster.json.gz")
		}
		run := zonewise
		if args[0] == "board" && !strings.Contains(line, "--output") {
			run = func(ctx context.Context, args ...string) (int, string, string) {
				return shownBoard(ctx, func(string) {}, args...)
			}
		}
		code, out, errs := run(t.Context(), args...)
		require.Contains(t, []int{program.OK, exitCodes[errNotSurvived]}, code, "%s\n%s", line, errs)
		require.NotEmpty(t, out, line)
	}
}
