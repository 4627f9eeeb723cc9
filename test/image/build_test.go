package image

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// platforms are those that the image is built for here: that of this machine, of which the tests have a scheduler
// already.
var platforms = []string{"linux/" + runtime.GOARCH}

// built is the image that all tests look at.
type built struct {
	reference string // what hack/image prints: name@digest
	dir       string // the directory that it was written to
	layout    string // the OCI layout below it
	version   string // of this checkout
	binary    string // what the binary must say that it is; empty when it was given
	err       error
}

// buildOnce keeps the build out of every test but the first. Its directory is that of the process.
var buildOnce = sync.OnceValue(func() built {
	dir, err := os.MkdirTemp("", "zonewise-image-test-")
	if err != nil {
		return built{err: err}
	}
	workDir = dir
	return build(dir)
})

// workDir is removed when all tests have run.
var workDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if workDir != "" {
		if err := os.RemoveAll(workDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// image returns the image, which the first caller builds.
func image(t *testing.T) built {
	t.Helper()
	b := buildOnce()
	require.NoError(t, b.err)
	return b
}

// build builds the image with the scheduler that all tests run.
func build(dir string) built {
	root, err := filepath.Abs("../..")
	if err != nil {
		return built{err: err}
	}
	scheduler, err := program.BuildScheduler(root, dir)
	if err != nil {
		return built{err: err}
	}
	b := built{dir: filepath.Join(dir, "out"), binary: scheduler.Version}
	b.layout = filepath.Join(b.dir, "zonewise-scheduler.oci")
	if b.version, err = program.Run(root, "hack/version.sh"); err != nil {
		return built{err: err}
	}
	b.reference, b.err = program.Run(filepath.Join(root, "hack/image"), "go", "run", ".", "--binary", scheduler.Path, "--platform", strings.Join(platforms, ","), "--output", b.dir)
	return b
}
