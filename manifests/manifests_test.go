package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
