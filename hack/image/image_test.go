package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// fakeSource makes a repository whose scheduler does nothing: what is tested is the image around it, and
// test/image runs the real one.
func fakeSource(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module zonewise.dev\n\ngo 1.26.0\n", 0o644)
	write(t, dir, "cmd/scheduler/main.go", "package main\n\nvar version string\n\nfunc main() { println(version) }\n", 0o644)
	write(t, dir, "cmd/other/main.go", "package main\n\nfunc main() {}\n", 0o644)
	write(t, dir, "hack/version.sh", "#!/bin/sh\nif [ $# = 0 ]; then echo v1.2.3+test; else echo -X main.version=v1.2.3+test; fi\n", 0o755)
	return dir
}

func write(t *testing.T, dir, file, content string, mode os.FileMode) {
	t.Helper()
	file = filepath.Join(dir, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), mode))
}

// commit makes dir a git repository with one commit at the given time, and returns the commit.
func commit(t *testing.T, dir string, at time.Time) string {
	t.Helper()
	run := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_DATE="+at.Format(time.RFC3339), "GIT_COMMITTER_DATE="+at.Format(time.RFC3339),
			"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	run("init", "-q")
	run("add", ".")
	run("commit", "-q", "-m", "test")
	return run("rev-parse", "HEAD")
}

// goBuild builds a package of the source for a platform.
func goBuild(t *testing.T, source, pkg, goos, goarch string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), goos+"-"+goarch)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", file, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+goos, "GOARCH="+goarch)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

// image runs the command and returns what it prints on standard output.
func runImage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(&out, t.Output())
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return strings.TrimSpace(out.String()), err
}

func TestOnePlatform(t *testing.T) {
	src, out := fakeSource(t), t.TempDir()
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	head := commit(t, src, at)

	ref, err := runImage(t, "--source", src, "--output", out)
	require.NoError(t, err)

	img := onlyImage(t, filepath.Join(out, layoutName))
	require.NoError(t, validate.Image(img))
	digest, err := img.Digest()
	require.NoError(t, err)
	require.Equal(t, defaultTag+"@"+digest.String(), ref)

	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "linux/amd64", config.Platform().String())
	require.Equal(t, at, config.Created.UTC())
	require.Equal(t, "65532:65532", config.Config.User)
	require.Equal(t, []string{"/usr/local/bin/kube-scheduler"}, config.Config.Entrypoint)
	require.Empty(t, config.Config.Cmd)
	require.Contains(t, strings.Split(strings.TrimPrefix(config.Config.Env[0], "PATH="), ":"), "/usr/local/bin")
	require.Equal(t, head, config.Config.Labels["org.opencontainers.image.revision"])
	require.Equal(t, "v1.2.3+test", config.Config.Labels["org.opencontainers.image.version"])
	require.Equal(t, "2026-08-01T12:00:00Z", config.Config.Labels["org.opencontainers.image.created"])

	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	layer, err := layers[0].Uncompressed()
	require.NoError(t, err)
	require.Equal(t, []string{
		"drwxr-xr-x usr/",
		"drwxr-xr-x usr/local/",
		"drwxr-xr-x usr/local/bin/",
		"-rwxr-xr-x usr/local/bin/kube-scheduler",
	}, files(t, layer, at))
}

func TestArchiveIsTheLayout(t *testing.T) {
	src, out := fakeSource(t), t.TempDir()
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	commit(t, src, at)
	_, err := runImage(t, "--source", src, "--output", out)
	require.NoError(t, err)

	// Unpacked elsewhere, the archive is the same layout.
	f, err := os.Open(filepath.Join(out, layoutName+".tar"))
	require.NoError(t, err)
	defer f.Close()
	unpacked := t.TempDir()
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.Equal(t, at, h.ModTime.UTC())
		if h.Typeflag == tar.TypeReg {
			data, err := io.ReadAll(tr)
			require.NoError(t, err)
			write(t, unpacked, h.Name, string(data), 0o644)
		}
	}
	want, err := onlyImage(t, filepath.Join(out, layoutName)).Digest()
	require.NoError(t, err)
	got := onlyImage(t, unpacked)
	require.NoError(t, validate.Image(got))
	digest, err := got.Digest()
	require.NoError(t, err)
	require.Equal(t, want, digest)
}

// TestSourceDateEpoch: the time of the commit is what the image has (TestOnePlatform), unless the environment has another. That
// two builds are the same is required of the real image, in test/image.
func TestSourceDateEpoch(t *testing.T) {
	src, out := fakeSource(t), t.TempDir()
	commit(t, src, time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC))
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	_, err := runImage(t, "--source", src, "--output", out)
	require.NoError(t, err)
	config, err := onlyImage(t, filepath.Join(out, layoutName)).ConfigFile()
	require.NoError(t, err)
	require.Equal(t, time.Unix(1_700_000_000, 0).UTC(), config.Created.UTC())
	require.Equal(t, "2023-11-14T22:13:20Z", config.Config.Labels["org.opencontainers.image.created"])
}

func TestPlatformsAndPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	src, out := fakeSource(t), t.TempDir()
	tag := strings.TrimPrefix(server.URL, "http://") + "/team/scheduler:v1"
	arm := goBuild(t, src, "./cmd/scheduler", "linux", "arm64")

	// One binary is given, the other built. No git here: the time is 1970.
	ref, err := runImage(t, "--source", src, "--output", out, "--platform", "linux/amd64,linux/arm64", "--binary", arm, "--tag", tag, "--push")
	require.NoError(t, err)

	parsed, err := name.ParseReference(ref)
	require.NoError(t, err)
	index, err := remote.Index(parsed, remote.WithContext(t.Context()))
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := index.Image(m.Digest)
		require.NoError(t, err)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, m.Platform.String(), config.Platform().String())
		require.Equal(t, time.Unix(0, 0).UTC(), config.Created.UTC())
	}
	require.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	wantARM, err := os.ReadFile(arm)
	require.NoError(t, err)
	img, err := index.Image(manifest.Manifests[1].Digest)
	require.NoError(t, err)
	require.True(t, bytes.Equal(wantARM, readFile(t, img, program)), "the given binary is the one in the image")
}

func TestAnotherBuildReplacesTheLayout(t *testing.T) {
	src, out := fakeSource(t), t.TempDir()
	_, err := runImage(t, "--source", src, "--output", out, "--platform", "linux/amd64,linux/arm64")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(out, "zonewise-scheduler-linux-arm64.cdx.json"))
	_, err = runImage(t, "--source", src, "--output", out, "--version", "v9")
	require.NoError(t, err)
	require.NoError(t, validate.Image(onlyImage(t, filepath.Join(out, layoutName))))
	blobs, err := os.ReadDir(filepath.Join(out, layoutName, "blobs", "sha256"))
	require.NoError(t, err)
	require.Len(t, blobs, 3, "manifest, config and layer of one image")
	require.FileExists(t, filepath.Join(out, "zonewise-scheduler-linux-amd64.cdx.json"))
	require.NoFileExists(t, filepath.Join(out, "zonewise-scheduler-linux-arm64.cdx.json"), "it is of no platform of this image")
}

func TestBadInput(t *testing.T) {
	src := fakeSource(t)
	static := goBuild(t, src, "./cmd/scheduler", "linux", "amd64")
	other := goBuild(t, src, "./cmd/other", "linux", "amd64")
	darwin := goBuild(t, src, "./cmd/scheduler", "darwin", "arm64")
	riscv := goBuild(t, src, "./cmd/scheduler", "linux", "riscv64")
	text := filepath.Join(t.TempDir(), "text")
	write(t, filepath.Dir(text), "text", "hello", 0o755)
	taken := t.TempDir()
	write(t, taken, layoutName+"/precious", "data", 0o644)

	for _, tc := range []struct {
		name string
		args []string
		env  string
		want string
	}{
		{name: "no such platform", args: []string{"--platform", "linux/s390x"}, want: `--platform: "linux/s390x" is not one of linux/amd64, linux/arm64`},
		{name: "platform twice", args: []string{"--platform", "linux/amd64,linux/amd64"}, want: "--platform: linux/amd64 is named twice"},
		{name: "no platform", args: []string{"--platform", ""}, want: "--platform: name at least one of linux/amd64, linux/arm64"},
		{name: "tag", args: []string{"--tag", "UPPER"}, want: "--tag: "},
		{name: "no binary there", args: []string{"--binary", "/nowhere"}, want: "--binary: /nowhere"},
		{name: "not a binary", args: []string{"--binary", text}, want: "is no Go binary"},
		{name: "another program", args: []string{"--binary", other}, want: "is zonewise.dev/cmd/other, not zonewise.dev/cmd/scheduler"},
		{name: "another system", args: []string{"--binary", darwin}, want: "is not for Linux: build it with GOOS=linux"},
		{name: "another machine", args: []string{"--binary", riscv}, want: "is for EM_RISCV, which the image has no platform for"},
		{name: "platform not asked for", args: []string{"--binary", static, "--platform", "linux/arm64"}, want: "is for linux/amd64, which --platform does not name"},
		{name: "binary twice", args: []string{"--binary", static, "--binary", static}, want: "are both for linux/amd64"},
		{name: "dynamic", args: []string{"--binary", dynamic(t, src)}, want: "is dynamically linked and the image has no libraries: build it with CGO_ENABLED=0"},
		{name: "epoch", args: []string{"--binary", static}, env: "yesterday", want: `SOURCE_DATE_EPOCH: "yesterday" is not a number of seconds since 1970`},
		{name: "output taken", args: []string{"--binary", static, "--output", taken}, want: "is in the way and is no image layout"},
		{name: "source", args: []string{"--binary", static, "--source", t.TempDir()}, want: "--version is not given, and --source does not tell"},
		{name: "arguments", args: []string{"now"}, want: "unknown command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", tc.env)
			out, err := runImage(t, append([]string{"--source", src, "--output", t.TempDir()}, tc.args...)...)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, out)
		})
	}
	require.FileExists(t, filepath.Join(taken, layoutName, "precious"))
}

// TestHeartbeat: a compile takes minutes, of which nobody is to wonder whether anything happens.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		stop := heartbeat(&out, "building for linux/arm64", 15*time.Second)
		time.Sleep(40 * time.Second)
		stop()
		require.Equal(t, "building for linux/arm64: 15s ...\nbuilding for linux/arm64: 30s ...\n", out.String())
		time.Sleep(time.Minute)
		require.Equal(t, 2, strings.Count(out.String(), "\n"), "it has ended")
	})
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := newCommand(io.Discard, t.Output())
	cmd.SetArgs([]string{"--source", fakeSource(t), "--output", t.TempDir()})
	require.ErrorIs(t, cmd.ExecuteContext(ctx), context.Canceled)
}

// dynamic builds a scheduler that wants a dynamic loader, as every position-independent executable does.
func dynamic(t *testing.T, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dynamic")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-buildmode=pie", "-o", file, "./cmd/scheduler")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

func onlyImage(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, "dev", manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	require.Equal(t, defaultTag, manifest.Manifests[0].Annotations["io.containerd.image.name"])
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return img
}

// files lists the modes and names of a tar, and requires that every entry is root's and of the given time.
func files(t *testing.T, r io.ReadCloser, at time.Time) []string {
	t.Helper()
	defer r.Close()
	var out []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		require.Equal(t, at, h.ModTime.UTC())
		out = append(out, h.FileInfo().Mode().String()+" "+h.Name)
		require.Zero(t, h.Uid)
		require.Zero(t, h.Gid)
	}
}

func readFile(t *testing.T, img v1.Image, file string) []byte {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		require.NoError(t, err)
		if h.Name == file {
			data, err := io.ReadAll(tr)
			require.NoError(t, err)
			return data
		}
	}
}
