package image

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/oci"
)

// schedulerPath is where the scheduler is in the image.
const schedulerPath = "usr/local/bin/kube-scheduler"

func TestImageIsTheBinaryAndNothingElse(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, platform := range platforms {
		arch := strings.TrimPrefix(platform, "linux/")
		t.Run(arch, func(t *testing.T) {
			u := unpack(t, arch)
			require.Equal(t, []string{
				"drwxr-xr-x usr/",
				"drwxr-xr-x usr/local/",
				"drwxr-xr-x usr/local/bin/",
				"-rwxr-xr-x usr/local/bin/kube-scheduler",
			}, u.entries)
			f, err := elf.Open(u.binary())
			require.NoError(t, err)
			defer f.Close()
			require.Equal(t, machines[arch], f.Machine)
			require.Equal(t, elf.ET_EXEC, f.Type)
			libraries, err := f.ImportedLibraries()
			require.NoError(t, err)
			require.Empty(t, libraries)
			require.Nil(t, f.Section(".interp"), "there is no loader in the image")
			require.False(t, slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), "nor does it ask for one")
		})
	}
}

func TestImageConfiguration(t *testing.T) {
	b := image(t)
	l := oci.Read(t, b.layout)
	require.Equal(t, b.reference, "registry.example.com/zonewise-scheduler:dev@"+l.Digest)
	var found []string
	for _, image := range l.Images {
		config := image.Config
		found = append(found, config.OS+"/"+config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User, "a number, or runAsNonRoot cannot be checked")
		require.Equal(t, []string{"/" + schedulerPath}, config.Config.Entrypoint)
		require.Empty(t, config.Config.Cmd)
		require.Equal(t, b.version, config.Config.Labels["org.opencontainers.image.version"])
		require.NotEmpty(t, config.Config.Labels["org.opencontainers.image.revision"])
	}
	require.Equal(t, platforms, found)
}

// TestCommandOfKubeadm: the static pod of kubeadm overrides the entrypoint by the command
// "kube-scheduler", which a container runtime looks up in the image's PATH.
func TestCommandOfKubeadm(t *testing.T) {
	for _, image := range oci.Read(t, image(t).layout).Images {
		root := unpack(t, image.Config.Architecture).root
		var found []string
		for _, env := range image.Config.Config.Env {
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
}
