// Package program builds the scheduler's program for the tests that run it as a process of its own.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Env names a static scheduler to use instead of building one.
const Env = "ZONEWISE_SCHEDULER"

// BuildScheduler builds the scheduler into dir, static and with the settings of "make build" so that the packages
// that it has compiled are used again, and returns its path, or that of the one that the environment names. root is
// the root of the repository.
func BuildScheduler(root, dir string) (string, error) {
	if path := os.Getenv(Env); path != "" {
		return filepath.Abs(path)
	}
	return build(root, filepath.Join(dir, "zonewise-scheduler"), "./cmd/scheduler")
}

// BuildStock builds upstream's kube-scheduler into dir, of the version that ours is made from, and returns
// its path.
func BuildStock(root, dir string) (string, error) {
	return build(root, filepath.Join(dir, "kube-scheduler"), "k8s.io/kubernetes/cmd/kube-scheduler")
}

func build(root, path, pkg string) (string, error) {
	ldflags, err := Run(root, "hack/version.sh", "ldflags")
	if err != nil {
		return "", err
	}
	_, err = Run(root, "go", "build", "-mod=readonly", "-ldflags", "-s -w "+ldflags, "-o", path, pkg)
	return path, err
}

// Helm builds the helm that hack/tools pins, unless it is there, and returns its path.
func Helm(root string) (string, error) {
	_, err := Run(root, "hack/tools/build.sh", "helm")
	return filepath.Join(root, "bin", "helm"), err
}

// Run runs a command in dir and returns what it prints on standard output, without the line's end. What a
// go command builds is static, even when the test that calls has the race detector, which is not.
func Run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
