package image

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImageIsTheBinaryAndNothingElse(t *testing.T) {
	l := readLayout(t, image(t).layout)
	_, entries := l.unpack(t)
	require.Equal(t, []string{
		"drwxr-xr-x usr/",
		"drwxr-xr-x usr/local/",
		"drwxr-xr-x usr/local/bin/",
		"-rwxr-xr-x usr/local/bin/kube-scheduler",
	}, entries)
}

func TestImageConfiguration(t *testing.T) {
	b := image(t)
	l := readLayout(t, b.layout)
	require.Equal(t, b.reference, "registry.example.com/zonewise-scheduler:dev@"+l.digest)
	require.Equal(t, "linux", l.config.OS)
	require.Equal(t, runtime.GOARCH, l.config.Architecture)
	require.Equal(t, "65532:65532", l.config.Config.User, "a number, or runAsNonRoot cannot be checked")
	require.Equal(t, []string{"/usr/local/bin/kube-scheduler"}, l.config.Config.Entrypoint)
	require.Empty(t, l.config.Config.Cmd)
	require.NotEmpty(t, l.config.Config.Labels["org.opencontainers.image.version"])
	require.NotEmpty(t, l.config.Config.Labels["org.opencontainers.image.revision"])
}

// TestCommandOfKubeadm: the static pod of kubeadm overrides the entrypoint by the command
// "kube-scheduler", which a container runtime looks up in the image's PATH.
func TestCommandOfKubeadm(t *testing.T) {
	l := readLayout(t, image(t).layout)
	root, _ := l.unpack(t)
	var found []string
	for _, env := range l.config.Config.Env {
		list, ok := strings.CutPrefix(env, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if info, err := os.Stat(filepath.Join(root, dir, "kube-scheduler")); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				found = append(found, dir)
			}
		}
	}
	require.Equal(t, []string{"/usr/local/bin"}, found)
}
