package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// block is a fenced block of a document.
type block struct {
	language string
	section  string // the heading above it
	text     string
}

// blocks returns the fenced blocks of a document in Markdown.
func blocks(t *testing.T, document string) []block {
	t.Helper()
	var out []block
	var open *block
	section := ""
	for line := range strings.Lines(document) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{language: strings.TrimSpace(fence), section: section}
		case isFence:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	require.Nil(t, open, "a block is not closed")
	return out
}

// TestInstallGuide runs every shell block of docs/install.md, in order, against an API server that knows
// nothing of Zonewise. The blocks marked "console" are for a control-plane node, a registry, or a cluster
// with kubelets: of those it is tested that the files that they name exist.
func TestInstallGuide(t *testing.T) {
	c := startChart(t)
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	require.NoError(t, err)

	root := filepath.Dir(c.dir) // it has manifests/, as the repository does
	home := t.TempDir()
	ran := 0
	for _, b := range blocks(t, string(document)) {
		switch b.language {
		case "sh":
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.text)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+c.kubeconfig, "PATH="+filepath.Dir(c.kubectl)+":"+filepath.Dir(c.helm)+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s:\n%s\n%s", b.section, b.text, out)
			ran++
		case "console":
			for _, file := range regexp.MustCompile(`(?m)(?:^|\s)(manifests/\S+)`).FindAllStringSubmatch(b.text, -1) {
				found, err := filepath.Glob(filepath.Join(root, file[1]))
				require.NoError(t, err)
				require.NotEmpty(t, found, "%s: there is no %s", b.section, file[1])
			}
		}
		if strings.Contains(b.text, "kubectl apply --server-side -k deploy/") || strings.Contains(b.text, "helm install") || strings.Contains(b.text, "helm rollback") {
			d, err := c.client.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "registry.example.com/team/zonewise-scheduler:v1", d.Spec.Template.Spec.Containers[0].Image, b.section)
		}
	}
	require.GreaterOrEqual(t, ran, 15)

	// Every way back has been gone: nothing is left but the APIs.
	c.testNothingIsLeft(t)
	require.NotContains(t, c.mustRun(t, "get", "--all-namespaces", "-o", "name", "leases"), "zonewise")
}
