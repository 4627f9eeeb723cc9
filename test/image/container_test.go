package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/oci"
)

// container is an unpacked image.
type container struct {
	image oci.Image
	root  string
}

// newContainer takes the unpacked image and adds what a pod would mount: /etc/zonewise with the profile, and
// /out, the only place where the container's user may write.
func newContainer(t *testing.T, profile string) *container {
	t.Helper()
	u := unpack(t, runtime.GOARCH)
	root := filepath.Join(t.TempDir(), "rootfs")
	c := &container{image: u.image, root: root}
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, schedulerPath)), 0o755))
	// A link, since the program is large and nobody writes to it.
	require.NoError(t, os.Link(u.binary(), filepath.Join(root, schedulerPath)))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/zonewise"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/zonewise/config.yaml"), []byte(profile), 0o644))
	out := filepath.Join(root, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	if os.Geteuid() == 0 {
		uid, gid := c.user(t)
		require.NoError(t, os.Chown(out, int(uid), int(gid)))
	}
	require.NoError(t, os.Chmod(root, 0o755))
	return c
}

// user returns the image's user.
func (c *container) user(t *testing.T) (uid, gid uint32) {
	t.Helper()
	u, g, ok := strings.Cut(c.image.Config.Config.User, ":")
	require.True(t, ok)
	return number(t, u), number(t, g)
}

// path returns what a path of the container is for its processes.
func (c *container) path(name string) string {
	if os.Geteuid() == 0 {
		return name
	}
	return filepath.Join(c.root, name)
}

// run runs the image's entrypoint with the given arguments, the image's environment and nothing else, and
// returns what it printed and its exit status. As root it runs the way a container runtime would: with
// the unpacked layers as the root of the file system, as the image's user. Anybody else may not do that,
// and runs the binary where it was unpacked.
func (c *container) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	entrypoint := c.image.Config.Config.Entrypoint
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.root, entrypoint[0]))
	cmd.Args = append(append([]string{}, entrypoint...), args...)
	cmd.Env = c.image.Config.Config.Env
	cmd.Dir = c.path(c.image.Config.Config.WorkingDir)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if os.Geteuid() == 0 {
		cmd.Path = entrypoint[0]
		uid, gid := c.user(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func number(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	require.NoError(t, err)
	return uint32(n)
}
