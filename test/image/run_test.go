package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
)

// nowhere is an address where nothing listens: writing a configuration needs an address of the API
// server, and makes no request.
const nowhere = "--master=http://127.0.0.1:1"

func TestRunsInItsLayers(t *testing.T) {
	c := newContainer(t, "")
	stdout, stderr, status := c.run(t, "--version")
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	require.Equal(t, "Kubernetes "+image(t).version+"\n", stdout)
}

func TestLoadsTheProfiles(t *testing.T) {
	for _, file := range []string{"zonewise.yaml", "second-scheduler.yaml"} {
		t.Run(file, func(t *testing.T) {
			profile, err := config.FS.ReadFile(file)
			require.NoError(t, err)
			c := newContainer(t, string(profile))
			_, stderr, status := c.run(t, "--config="+c.path("/etc/zonewise/config.yaml"), nowhere, "--write-config-to="+c.path("/out/config.yaml"))
			require.Zero(t, status, stderr)

			data, err := os.ReadFile(filepath.Join(c.root, "out/config.yaml"))
			require.NoError(t, err)
			var given, written schedulerv1.KubeSchedulerConfiguration
			require.NoError(t, yaml.UnmarshalStrict(data, &written))
			require.NoError(t, yaml.Unmarshal(profile, &given))
			require.Len(t, written.Profiles, 1)
			require.Equal(t, given.Profiles[0].SchedulerName, written.Profiles[0].SchedulerName)
			require.Equal(t, given.LeaderElection.ResourceName, written.LeaderElection.ResourceName)

			// The plugins were constructed: the scheduler writes the file after that.
			enabled := map[string]bool{}
			for _, p := range written.Profiles[0].Plugins.MultiPoint.Enabled {
				enabled[p.Name] = true
			}
			require.True(t, enabled["ZoneSpread"])
			require.True(t, enabled["ReserveCache"])
			require.True(t, enabled["PermitGate"])
			require.False(t, enabled["PodTopologySpread"])
		})
	}
}

func TestWrongProfileIsRefused(t *testing.T) {
	profile, err := config.FS.ReadFile("zonewise.yaml")
	require.NoError(t, err)
	for _, tc := range []struct{ name, old, new, want string }{
		{"unknown argument", "scheduleTimeout: 60s", "scheduleTimeOut: 60s", `scheduleTimeOut`},
		{"negative duration", "scheduleTimeout: 60s", "scheduleTimeout: -60s", `scheduleTimeout`},
		{"unknown plugin", "- name: ReserveCache", "- name: ReservedCache", `ReservedCache`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Contains(t, string(profile), tc.old)
			c := newContainer(t, strings.Replace(string(profile), tc.old, tc.new, 1))
			_, stderr, status := c.run(t, "--config="+c.path("/etc/zonewise/config.yaml"), nowhere, "--write-config-to="+c.path("/out/config.yaml"))
			require.NotZero(t, status)
			require.Contains(t, stderr, tc.want)
			require.NoFileExists(t, filepath.Join(c.root, "out/config.yaml"))
		})
	}
}

// TestNeedsNoWritableRoot: the manifests mount the root read-only.
func TestNeedsNoWritableRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		// The user of the test owns what it unpacked; take its permission to write away instead.
		t.Log("not root: the directories are made read-only for their owner")
	}
	profile, err := config.FS.ReadFile("zonewise.yaml")
	require.NoError(t, err)
	c := newContainer(t, string(profile))
	require.NoError(t, filepath.WalkDir(c.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == filepath.Join(c.root, "out") {
			return err
		}
		t.Cleanup(func() { require.NoError(t, os.Chmod(path, 0o755)) })
		return os.Chmod(path, 0o555)
	}))
	_, stderr, status := c.run(t, "--config="+c.path("/etc/zonewise/config.yaml"), nowhere, "--write-config-to="+c.path("/out/config.yaml"))
	require.Zero(t, status, stderr)
	require.FileExists(t, filepath.Join(c.root, "out/config.yaml"))

	_, stderr, status = c.run(t, "--config="+c.path("/etc/zonewise/config.yaml"), nowhere, "--write-config-to="+c.path("/etc/zonewise/other.yaml"))
	require.NotZero(t, status, "the test's own root is not read-only")
	require.Contains(t, stderr, "permission denied")
}
