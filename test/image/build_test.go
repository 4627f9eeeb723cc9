package image

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// built is the image that all tests look at.
type built struct {
	reference string // what hack/image prints: name@digest
	layout    string // the directory of the OCI layout
	version   string // what the binary must say that it is; empty when it was given
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

func build(dir string) built {
	root, err := filepath.Abs("../..")
	if err != nil {
		return built{err: err}
	}
	scheduler, err := program.BuildScheduler(root, dir)
	if err != nil {
		return built{err: err}
	}
	out := filepath.Join(dir, "out")
	reference, err := program.Run(filepath.Join(root, "hack/image"), "go", "run", ".", "--binary", scheduler.Path, "--output", out)
	return built{reference: reference, layout: filepath.Join(out, "zonewise-scheduler.oci"), version: scheduler.Version, err: err}
}
