// Package program builds the programs that tests run as processes.
package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Scheduler builds bin/zonewise-scheduler as "make build" does, unless it is current, and returns its path. root is the
// root of the repository.
func Scheduler(root string) (string, error) {
	return build(root, filepath.Join(root, "bin", "zonewise-scheduler"), "./cmd/scheduler")
}

// Zonewise builds bin/zonewise, as Scheduler does.
func Zonewise(root string) (string, error) {
	return build(root, filepath.Join(root, "bin", "zonewise"), "./cmd/zonewise")
}

// Demo builds bin/zonewise-demo, as Scheduler does.
func Demo(root string) (string, error) {
	return build(root, filepath.Join(root, "bin", "zonewise-demo"), "./demo")
}

// StockScheduler builds upstream's kube-scheduler into dir, of the version that ours is made from, and returns its
// path.
func StockScheduler(root, dir string) (string, error) {
	return build(root, filepath.Join(dir, "kube-scheduler"), "k8s.io/kubernetes/cmd/kube-scheduler")
}

// Example builds a program of examples/ into dir, and returns its path.
func Example(root, dir, name string) (string, error) {
	return build(root, filepath.Join(dir, name), "./examples/"+name)
}

// Checkout writes the tree of a commit to dir, from which Scheduler then builds that commit's program.
func Checkout(root, dir, commit string) error {
	if err := Uncached(root); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := Run(root, "bash", "-c", `set -o pipefail; git archive "$1" | tar -x -C "$2"`, "checkout", commit, dir)
	if err != nil {
		return fmt.Errorf("commit %s, which a shallow clone does not have: %w", commit, err)
	}
	return nil
}

// Helm returns the path of the helm that hack/tools pins.
func Helm(root string) (string, error) {
	return Run(root, "bash", "-c", ". hack/lib.sh && need_tool helm >&2 && tool helm")
}

// Descheduler returns the path of the descheduler that hack/tools pins.
func Descheduler(root string) (string, error) {
	return Run(root, "bash", "-c", ". hack/lib.sh && need_tool descheduler >&2 && tool descheduler")
}

// built has what this process has built, by path.
var built sync.Map

// build builds a package with the flags of hack/build.sh, once in a process: to find that nothing is to be linked costs
// the go command more than many a test. One test at a time builds, since another one may run what is written.
func build(root, path, pkg string) (string, error) {
	if err := Uncached(root); err != nil {
		return "", err
	}
	once, _ := built.LoadOrStore(path, sync.OnceValue(func() error { return link(root, path, pkg) }))
	return path, once.(func() error)()
}

// Uncached keeps the results of the calling tests out of Go's cache, since they depend on a program that the go command
// does not know of. The go command keeps no result of a test that has opened a file of its module which is younger than
// two seconds; the one opened here was changed in the future.
func Uncached(root string) error {
	path := filepath.Join(root, "bin", ".uncached")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	future := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	return errors.Join(file.Close(), os.Chtimes(path, future, future))
}

func link(root, path, pkg string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(os.TempDir(), "zonewise-build.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	ldflags, err := Run(root, "hack/version.sh", "ldflags")
	if err != nil {
		return err
	}
	_, err = Run(root, "go", "build", "-mod=readonly", "-ldflags", "-s -w "+ldflags, "-o", path, pkg)
	return err
}

// Run runs a command in dir and returns what it prints on standard output, without the line's end. What a go command
// builds is static and has the settings of hack/lib.sh, even when the test that calls has the race detector.
func Run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
