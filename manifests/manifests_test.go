package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/manifests"
)

// TestProfilesAreCopies requires that what is deployed is what config has.
func TestProfilesAreCopies(t *testing.T) {
	for file, source := range map[string]string{
		"overlays/replace-kube-scheduler/config.yaml": "zonewise.yaml",
		"overlays/second-scheduler/config.yaml":       "second-scheduler.yaml",
		"kubeadm/zonewise.yaml":                       "zonewise.yaml",
	} {
		t.Run(file, func(t *testing.T) {
			original, err := config.FS.ReadFile(source)
			require.NoError(t, err)
			want := string(original)
			if strings.HasPrefix(file, "kubeadm/") {
				// The two lines that the comment in the profile tells an administrator to turn on.
				old := "# clientConnection:\n#   kubeconfig: /etc/kubernetes/scheduler.conf\n"
				require.Equal(t, 1, strings.Count(want, old))
				want = strings.Replace(want, old, "clientConnection:\n  kubeconfig: /etc/kubernetes/scheduler.conf\n", 1)
			}
			copied, err := manifests.FS.ReadFile(file)
			require.NoError(t, err)
			note, rest, ok := strings.Cut(string(copied), "\n\n")
			require.True(t, ok)
			require.Contains(t, note, "config/"+source)
			require.Equal(t, want, rest, "run: go generate ./manifests")
		})
	}
}

// TestEverythingIsEmbedded requires that FS has every file that kubectl would read from the directory.
func TestEverythingIsEmbedded(t *testing.T) {
	var embedded, present []string
	list := func(root fs.FS, into *[]string) {
		require.NoError(t, fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".yaml" {
				*into = append(*into, path)
			}
			return err
		}))
	}
	list(manifests.FS, &embedded)
	list(os.DirFS("."), &present)
	require.NotEmpty(t, present)
	require.Equal(t, present, embedded)
}

// TestPodsAreConfined: every Deployment runs without root, privileges, capabilities and a writable root, with the runtime's
// seccomp profile. TestChart requires the same of the chart, by comparing its objects with these.
func TestPodsAreConfined(t *testing.T) {
	found := 0
	require.NoError(t, fs.WalkDir(manifests.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() != "deployment.yaml" || strings.Contains(path, "/templates/") || strings.HasPrefix(path, "overlays/") {
			return err // an overlay's is a patch
		}
		data, err := manifests.FS.ReadFile(path)
		require.NoError(t, err)
		var deployment appsv1.Deployment
		require.NoError(t, yaml.UnmarshalStrict(data, &deployment), path)
		pod := deployment.Spec.Template.Spec
		require.Equal(t, &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.SecurityContext, path)
		require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, path)
		require.Empty(t, pod.InitContainers, path)
		for _, container := range pod.Containers {
			require.Equal(t, &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}, container.SecurityContext, path)
		}
		for _, volume := range pod.Volumes {
			require.NotNil(t, volume.ConfigMap, "%s: %s", path, volume.Name)
		}
		found++
		return nil
	}))
	require.Equal(t, 2, found)
}
