package image

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/oci"
	"zonewise.dev/test/internal/program"
)

// platforms are those of the image, in the order of its index: this machine's, or what the environment names. "make
// verify" names all that the image is published for.
var platforms = strings.Split(cmp.Or(os.Getenv("PLATFORMS"), "linux/"+runtime.GOARCH), ",")

// built is an image that "make image" has made in a checkout of its own.
type built struct {
	checkout  string // what it was built from
	reference string // what the command prints: name@digest
	dir       string // the directory that it was written to
	layout    string // the OCI layout below it
	version   string // of the checkout
	err       error
}

// firstOnce is the image that all tests look at, and secondOnce the same again: from a checkout of the first one's
// checkout, at another path and into another directory. What was compiled for the first is not compiled again.
var (
	firstOnce = sync.OnceValue(func() built {
		root, err := filepath.Abs("../..")
		if err != nil {
			return built{err: err}
		}
		return build(root, "first")
	})
	secondOnce = sync.OnceValue(func() built {
		first := firstOnce()
		if first.err != nil {
			return first
		}
		return build(first.checkout, filepath.Join("elsewhere", "second"))
	})
)

// workDir is where all of this is. It ends with the process.
var workDir string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	if workDir, err = os.MkdirTemp("", "zonewise-image-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(workDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// image returns the image, which the first caller builds.
func image(t *testing.T) built {
	t.Helper()
	b := firstOnce()
	require.NoError(t, b.err)
	return b
}

// build builds the image of a checkout's checkout, which it makes under that name.
func build(from, name string) (b built) {
	b.checkout = filepath.Join(workDir, name, "source")
	b.dir = filepath.Join(workDir, name, "out")
	b.layout = filepath.Join(b.dir, "zonewise-scheduler.oci")
	if b.err = checkOut(from, b.checkout); b.err != nil {
		return b
	}
	if b.version, b.err = program.Run(b.checkout, "env", "VERSION=git", "hack/version.sh"); b.err != nil {
		return b
	}
	// Where "make test" has started this, make would print more than the name.
	b.reference, b.err = program.Run(b.checkout, "env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "image", "IMAGE_FLAGS=--platform "+strings.Join(platforms, ",")+" --output "+b.dir)
	return b
}

// checkOut makes a checkout of another one, at the same commit and with the same changes, as somebody else has it.
func checkOut(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	// Where git does not know the source, the copy must not know more.
	if _, err := program.Run(from, "git", "rev-parse", "--verify", "HEAD"); err == nil {
		_, cloned := program.Run(from, "git", "clone", "--quiet", "--no-checkout", from, to)
		if err := errors.Join(cloned, ignoreOutput(program.Run(to, "git", "read-tree", "HEAD"))); err != nil {
			return err
		}
	}
	return ignoreOutput(program.Run(from, "bash", "-c", `. hack/lib.sh && copy_tree "$1"`, "copy_tree", to))
}

func ignoreOutput(_ string, err error) error { return err }

// unpacked is the root of the file system that the image of a platform has.
type unpacked struct {
	image   oci.Image
	root    string
	entries []string // of its layers, in order, as "mode name"
}

var (
	unpackedMu sync.Mutex // guards unpackedBy
	unpackedBy = map[string]unpacked{}
)

// unpack returns the unpacked image of an architecture. All tests share it: its files must not be changed.
func unpack(t *testing.T, arch string) unpacked {
	t.Helper()
	unpackedMu.Lock()
	defer unpackedMu.Unlock()
	u, ok := unpackedBy[arch]
	if !ok {
		u.image = oci.Read(t, image(t).layout).For(t, arch)
		u.root = filepath.Join(workDir, "root-"+arch)
		require.NoError(t, os.Mkdir(u.root, 0o755))
		u.entries = u.image.Unpack(t, u.root)
		unpackedBy[arch] = u
	}
	return u
}

// binary is the path of the scheduler in it.
func (u unpacked) binary() string { return filepath.Join(u.root, schedulerPath) }
