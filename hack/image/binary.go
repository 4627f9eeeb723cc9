package main

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// mainPackage is the command that the image is for.
const mainPackage = "zonewise.dev/cmd/scheduler"

// machines are the platforms that the image may have, by what an ELF header calls them.
var machines = map[elf.Machine]string{
	elf.EM_X86_64:  "amd64",
	elf.EM_AARCH64: "arm64",
}

// binary is a scheduler for one platform.
type binary struct {
	path     string
	platform v1.Platform
}

// parsePlatforms reads os/arch pairs, without duplicates.
func parsePlatforms(list []string) ([]v1.Platform, error) {
	var known []string
	for _, arch := range machines {
		known = append(known, "linux/"+arch)
	}
	slices.Sort(known)
	var out []v1.Platform
	for _, s := range list {
		if !slices.Contains(known, s) {
			return nil, fmt.Errorf("%q is not one of %s", s, strings.Join(known, ", "))
		}
		p := v1.Platform{OS: "linux", Architecture: strings.TrimPrefix(s, "linux/")}
		if slices.ContainsFunc(out, p.Equals) {
			return nil, fmt.Errorf("%s is named twice", s)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("name at least one of %s", strings.Join(known, ", "))
	}
	return out, nil
}

// inspectAll returns the binaries by their platform, which must be one of the platforms.
func inspectAll(paths []string, platforms []v1.Platform) (map[string]binary, error) {
	found := map[string]binary{}
	for _, path := range paths {
		b, err := inspect(path)
		if err != nil {
			return nil, err
		}
		key := b.platform.String()
		if other, ok := found[key]; ok {
			return nil, fmt.Errorf("%s and %s are both for %s", other.path, path, key)
		}
		if !slices.ContainsFunc(platforms, b.platform.Equals) {
			return nil, fmt.Errorf("%s is for %s, which --platform does not name", path, key)
		}
		found[key] = b
	}
	return found, nil
}

// inspect makes sure that the file would run in an image that has nothing else in it.
func inspect(path string) (binary, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return binary{}, fmt.Errorf("%s is no Go binary: %w", path, err)
	}
	if info.Path != mainPackage {
		return binary{}, fmt.Errorf("%s is %s, not %s", path, info.Path, mainPackage)
	}
	f, err := elf.Open(path)
	if err != nil {
		return binary{}, fmt.Errorf("%s is not for Linux: build it with GOOS=linux: %w", path, err)
	}
	defer f.Close()
	arch, ok := machines[f.Machine]
	if !ok {
		return binary{}, fmt.Errorf("%s is for %s, which the image has no platform for", path, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return binary{}, fmt.Errorf("%s is dynamically linked and the image has no libraries: build it with CGO_ENABLED=0", path)
		}
	}
	return binary{path: path, platform: v1.Platform{OS: "linux", Architecture: arch}}, nil
}

// compile builds the scheduler of the source for a platform into dir.
func compile(ctx context.Context, source, dir string, p v1.Platform, progress io.Writer) (binary, error) {
	ldflags, err := output(ctx, source, "hack/version.sh", "ldflags")
	if err != nil {
		return binary{}, err
	}
	file := filepath.Join(dir, "scheduler-"+p.Architecture)
	args := append([]string{"build"}, buildFlags(ldflags)...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", file, "./cmd/scheduler")...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = progress, progress
	stop := heartbeat(progress, "building for "+p.String(), heartbeatInterval)
	err = cmd.Run()
	stop()
	if err != nil {
		return binary{}, fmt.Errorf("go build for %s: %w", p, err)
	}
	return inspect(file)
}

// heartbeatInterval is the pause between two lines that say that a compile goes on.
const heartbeatInterval = 15 * time.Second

// heartbeat writes every interval that something goes on, and for how long it has, until stop has returned.
func heartbeat(w io.Writer, what string, interval time.Duration) (stop func()) {
	start := time.Now()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-ticker.C:
				fmt.Fprintf(w, "%s: %s ...\n", what, now.Sub(start).Round(time.Second))
			}
		}
	}()
	return func() { close(ended); <-stopped }
}

// buildFlags keep the paths of this machine, the state of its checkout, and what only a debugger wants
// out of the binary, so that the digest is the same on any machine.
func buildFlags(ldflags string) []string {
	return []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= " + ldflags}
}
