package image

import (
	"bytes"
	"debug/buildinfo"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/oci"
	"zonewise.dev/test/internal/program"
)

// TestTwoCheckoutsMakeOneImage builds the image a second time, from another checkout into another directory, and
// requires one digest for the index, one for the manifest of each platform, and the same bytes in every file that is
// written.
func TestTwoCheckoutsMakeOneImage(t *testing.T) {
	first, second := image(t), secondOnce()
	require.NoError(t, second.err)
	require.NotEqual(t, first.checkout, second.checkout)
	require.Equal(t, first.version, second.version)
	one, other := oci.Read(t, first.layout), oci.Read(t, second.layout)
	require.Len(t, one.Images, len(platforms))
	require.Len(t, other.Images, len(platforms))
	for i, image := range one.Images {
		require.Equal(t, image.Config, other.Images[i].Config, "the configurations, the layers' digests among them")
		require.Equal(t, image.Digest, other.Images[i].Digest, image.Config.Architecture)
	}
	require.Equal(t, one.Digest, other.Digest)
	require.Equal(t, first.reference, second.reference)
	require.Equal(t, digests(t, first.dir), digests(t, second.dir), "layout, archive and lists of parts")
}

// digests returns the digest of every file below dir.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		found[name] = oci.SHA256(data)
		return err
	}))
	require.Contains(t, found, "zonewise-scheduler.oci.tar")
	return found
}

// TestNothingOfThisMachineIsInTheBinaries: the two builds above share what was compiled, and with it a path that the
// compiler might leave. No binary names a directory of the build.
func TestNothingOfThisMachineIsInTheBinaries(t *testing.T) {
	b := image(t)
	dirs, err := program.Run(b.checkout, "go", "env", "GOMODCACHE", "GOCACHE")
	require.NoError(t, err)
	for _, platform := range platforms {
		binary := unpack(t, strings.TrimPrefix(platform, "linux/")).binary()
		data, err := os.ReadFile(binary)
		require.NoError(t, err)
		require.True(t, bytes.Contains(data, []byte("zonewise.dev/plugins/")), "the names of our files are there")
		for dir := range strings.SplitSeq(workDir+"\n"+dirs, "\n") {
			require.NotEmpty(t, dir)
			require.False(t, bytes.Contains(data, []byte(dir)), "%s names %s", platform, dir)
		}
		info, err := buildinfo.ReadFile(binary)
		require.NoError(t, err)
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		require.Equal(t, "true", settings["-trimpath"])
		require.NotContains(t, settings, "vcs.revision", "the state of the checkout is in the version alone")
	}
}
