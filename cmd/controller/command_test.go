package controller

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// TestBadFlags: an error names the flag.
func TestBadFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(
		file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofile: []\n"),
		0o600,
	))
	for args, want := range map[string]string{
		"--cpu-fraction=0":          "--cpu-fraction: must be above 0 and at most 64, got 0",
		"--cpu-fraction=65":         "--cpu-fraction: must be above 0 and at most 64, got 65",
		"--feature-gates=None=true": "--feature-gates: unrecognized feature gate: None",
		"--replays=-1":              "--replays: must be from 0 to 100, got -1",
		"--settle-time=-1s":         "--settle-time: must not be below 0, got -1s",
		"--refresh-interval=0s":     "--refresh-interval: must be above 0, got 0s",
		"--config=/none":            "--config: open /none: no such file or directory",
		"--config=" + file:          "--config: " + file + ": ",
		"--kubeconfig=/none":        "--kubeconfig: ",
		"--kubeconfig=":             "not in a pod: name a kubeconfig with --kubeconfig",
		"--replays=many":            `invalid argument "many" for "--replays" flag`,
		"--address=256.0.0.1:1 --kubeconfig=KUBECONFIG": "--address: ",
		"--survival=false": "nothing is turned on: see --survival, --buy, --rebalance, --gang-budgets and --deletion-costs",
		"now":              `unknown command "now" for "` + filepath.Base(os.Args[0]) + ` controller"`,
	} {
		t.Run(args, func(t *testing.T) {
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			require.NoError(
				t,
				os.WriteFile(
					kubeconfig,
					[]byte("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"),
					0o600,
				),
			)
			cmd := NewCommand(nil)
			cmd.SetArgs(append(
				[]string{"--survival"}, strings.Fields(strings.ReplaceAll(args, "KUBECONFIG", kubeconfig))...,
			))
			require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
		})
	}
}

// TestDocumentedFlags: docs/operations.md lists the flags, but for the log's.
func TestDocumentedFlags(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	var documented, flags []string
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\|").FindAllStringSubmatch(string(document), -1) {
		documented = append(documented, row[1])
	}
	NewCommand(nil).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "v" {
			flags = append(flags, f.Name)
		}
	})
	require.ElementsMatch(t, flags, documented)
}

// TestOwnPlugins: copies have the plugins of the caller's own.
func TestOwnPlugins(t *testing.T) {
	f := flags{registry: frameworkruntime.Registry{"Own": nil}}
	scheduler, err := f.scheduler()
	require.NoError(t, err)
	require.Contains(t, scheduler.Registry, "Own")
}
