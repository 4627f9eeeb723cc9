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

	"zonewise.dev/test/documents"
)

// TestGuides runs every shell block of the guides, in order, against one API server that knows nothing of Zonewise at
// first. The blocks marked "console" are for a control-plane node, a registry, or a cluster with kubelets: test/docs
// knows the test of each, and here it is tested that the files of manifests/ that they name exist.
func TestGuides(t *testing.T) {
	t.Parallel()
	c := startChart(t)
	for _, path := range documents.Guides {
		done := t.Run(path, func(t *testing.T) {
			switch path {
			case "docs/install.md":
				c.testInstallGuide(t)
			case "docs/operations.md":
				c.runGuide(t, path, c.prepareOperations)
			case "docs/zonespread.md":
				c.testSpreadGuide(t)
			default:
				c.runGuide(t, path, nil)
			}
		})
		require.True(t, done, path)
	}
}

// runGuide runs the shell blocks of a document, and returns what they have printed. Where there is a hook, it is called
// before each.
func (c *chart) runGuide(t *testing.T, path string, before func(*testing.T, documents.Block)) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), path))
	require.NoError(t, err)
	blocks, err := documents.Document{Path: path, Text: string(text)}.Blocks()
	require.NoError(t, err)

	root := filepath.Dir(c.dir) // it has manifests/, as the repository does
	home := t.TempDir()
	var printed strings.Builder
	for _, b := range blocks {
		if b.Language == "console" {
			for _, file := range regexp.MustCompile(`(?m)(?:^|\s)(manifests/\S+)`).FindAllStringSubmatch(b.Text, -1) {
				found, err := filepath.Glob(filepath.Join(root, file[1]))
				require.NoError(t, err)
				require.NotEmpty(t, found, "%s:%d: there is no %s", b.Path, b.Line, file[1])
			}
		}
		if b.Language != "sh" {
			continue
		}
		if before != nil {
			before(t, b)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.Text)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+c.kubeconfig, "PATH="+filepath.Dir(c.kubectl)+":"+filepath.Dir(c.helm)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s:%d:\n%s\n%s", b.Path, b.Line, b.Text, out)
		printed.Write(out)
	}
	return printed.String()
}

// testInstallGuide installs in each way, and goes each way back.
func (c *chart) testInstallGuide(t *testing.T) {
	ran, installed := 0, false
	c.runGuide(t, "docs/install.md", func(t *testing.T, b documents.Block) {
		if installed { // by the block before this one
			d, err := c.client.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "zonewise-scheduler", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, "registry.example.com/team/zonewise-scheduler:v1", d.Spec.Template.Spec.Containers[0].Image, b.Section)
		}
		installed = strings.Contains(b.Text, "kubectl apply --server-side -k deploy/") || strings.Contains(b.Text, "helm install") || strings.Contains(b.Text, "helm rollback")
		ran++
	})
	require.GreaterOrEqual(t, ran, 15)

	// Every way back has been gone: nothing is left but the APIs.
	c.testNothingIsLeft(t)
	require.NotContains(t, c.mustRun(t, "get", "--all-namespaces", "-o", "name", "leases"), "zonewise")
}

// prepareOperations makes what the page names.
func (c *chart) prepareOperations(t *testing.T, b documents.Block) {
	t.Helper()
	if !strings.Contains(b.Text, "describe") {
		return
	}
	_, err := c.exec(t, strings.NewReader(`
{apiVersion: v1, kind: Namespace, metadata: {name: ml}}
---
{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {namespace: ml, name: train}, spec: {minMember: 2}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: zonewise.dev/v1alpha1
kind: ZoneSpreadPolicy
metadata: {namespace: shop, name: web}
spec: {podSelector: {matchLabels: {app: web}}}
---
apiVersion: zonewise.dev/v1alpha1
kind: ZoneReservation
metadata: {name: shop-failover}
spec:
  owners: [{namespace: shop, podSelector: {matchLabels: {app: web}}}]
  slot: {requests: {cpu: "1"}}
  slots: 1
`), c.kubectl, "--kubeconfig", c.kubeconfig, "apply", "-f", "-")
	require.NoError(t, err)
}

// testSpreadGuide: the command finds the constraints whose meaning changes, and no others.
func (c *chart) testSpreadGuide(t *testing.T) {
	for name, selector := range map[string]string{"empty": "labelSelector: {}", "labels": "labelSelector: {matchLabels: {app: a}}", "none": "minDomains: 1"} {
		_, err := c.exec(t, strings.NewReader(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: default, name: `+name+`}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: c, image: registry.example.com/none}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, `+selector+`}
`), c.kubectl, "--kubeconfig", c.kubeconfig, "apply", "-f", "-")
		require.NoError(t, err)
	}
	require.Equal(t, "Deployment default/empty\n", c.runGuide(t, "docs/zonespread.md", nil))
}
