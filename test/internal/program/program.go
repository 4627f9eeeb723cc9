// Package program builds the scheduler's program for the tests that run it as a process of its own.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Env names a static scheduler to use instead of building one.
const Env = "ZONEWISE_SCHEDULER"

// Scheduler is a static binary of cmd/scheduler.
type Scheduler struct {
	Path string
	// Version is what the binary must say that it is, as in v1.37.1+zonewise.0.1.0. It is empty when
	// the binary was given.
	Version string
}

// BuildScheduler builds the scheduler into dir, with the settings of "make build" so that the packages
// that it has compiled are used again, or returns the one that the environment names. root is the root of
// the repository.
func BuildScheduler(root, dir string) (Scheduler, error) {
	if path := os.Getenv(Env); path != "" {
		path, err := filepath.Abs(path)
		return Scheduler{Path: path}, err
	}
	ldflags, err := Run(root, "hack/version.sh", "ldflags")
	if err != nil {
		return Scheduler{}, err
	}
	version := regexp.MustCompile(`version\.gitVersion=(\S+)`).FindStringSubmatch(ldflags)
	if version == nil {
		return Scheduler{}, fmt.Errorf("hack/version.sh ldflags sets no version: %s", ldflags)
	}
	s := Scheduler{Path: filepath.Join(dir, "zonewise-scheduler"), Version: version[1]}
	_, err = Run(root, "go", "build", "-mod=readonly", "-ldflags", "-s -w "+ldflags, "-o", s.Path, "./cmd/scheduler")
	return s, err
}

// BuildStock builds upstream's kube-scheduler into dir, of the version that ours is made from, and returns
// its path.
func BuildStock(root, dir string) (string, error) {
	ldflags, err := Run(root, "hack/version.sh", "ldflags")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kube-scheduler")
	_, err = Run(root, "go", "build", "-mod=readonly", "-ldflags", "-s -w "+ldflags, "-o", path, "k8s.io/kubernetes/cmd/kube-scheduler")
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
