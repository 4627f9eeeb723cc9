// Command image builds the scheduler's OCI image without a container engine: one layer with one static
// binary, for a user that is not root. Run it in its own directory:
//
//	go run .
//	go run . --platform linux/amd64,linux/arm64 --tag registry.example.com/team/zonewise-scheduler:v1 --push
//
// It writes an image layout (zonewise-scheduler.oci/) and an archive of it (zonewise-scheduler.oci.tar), for
// "podman load", "docker load", "ctr images import" and "skopeo copy oci-archive:...", and an
// SBOM for each platform (zonewise-scheduler-OS-ARCH.cdx.json), which --push attaches to the platform's image.
// On standard output it prints only the image's name with its digest.
//
// The image is reproducible: builds of one commit with one version of Go have the same digest on any machine.
// The time in it is the commit's.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// defaultTag is the name in the manifests, so that they find an image that was imported on a node.
const defaultTag = "registry.example.com/zonewise-scheduler:dev"

// options are the command line. The source is the repository's root, except in tests.
type options struct {
	platforms, output, tag, source string
	push                           bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := options{source: "../.."}
	flag.StringVar(&o.platforms, "platform", "linux/amd64", "platforms of the image, separated by commas")
	flag.StringVar(&o.output, "output", "../../dist", "directory to write to; the files of an earlier build are replaced")
	flag.StringVar(&o.tag, "tag", defaultTag, "name and tag of the image, in the archive and for --push")
	flag.BoolVar(&o.push, "push", false, "push to the registry of --tag too, with the credentials of docker login or podman login")
	flag.Parse()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

// run builds, writes and perhaps pushes the image. It prints the image's name to out and all else to progress.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	tag, err := name.NewTag(o.tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	platforms, err := parsePlatforms(o.platforms)
	if err != nil {
		return fmt.Errorf("--platform: %w", err)
	}
	src, err := describe(ctx, o.source)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "zonewise-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	parts := make([]part, len(platforms))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range platforms {
		group.Go(func() (err error) {
			binary := filepath.Join(tmp, p.Architecture)
			fmt.Fprintf(progress, "building for %s: minutes the first time, seconds from then on\n", p)
			if err := src.compile(groupCtx, p, binary, progress); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
			parts[i], err = newPart(p, binary, src)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	index := newIndex(parts)
	if err := write(o.output, index, parts, tag, src.created); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	fmt.Fprintf(progress, "wrote %s and its archive: version %s, %s\n", filepath.Join(o.output, layoutName), src.version, src.created.Format(time.RFC3339))
	if o.push {
		if err := push(ctx, tag, index, parts, src.created); err != nil {
			return fmt.Errorf("--push: %w", err)
		}
		fmt.Fprintln(progress, "pushed", tag)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s@%s\n", tag, digest)
	return nil
}

// parsePlatforms reads OS/ARCH pairs, without duplicates.
func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	seen := map[string]bool{}
	for s := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(s)
		if err != nil {
			return nil, err
		}
		if p.OS != "linux" || p.Architecture == "" || p.Variant != "" || seen[s] {
			return nil, fmt.Errorf("%q: want linux/ARCH, each once, as in linux/amd64,linux/arm64", list)
		}
		seen[s] = true
		platforms = append(platforms, *p)
	}
	return platforms, nil
}

// source is the repository that the image is built from.
type source struct {
	dir, ldflags, version, revision string
	created                         time.Time
}

// describe takes the image's data about the source from the flags that stamp the program. A source without git
// history, such as an unpacked archive, has an unknown revision and the year 1970.
func describe(ctx context.Context, dir string) (source, error) {
	cmd := exec.CommandContext(ctx, "hack/version.sh", "ldflags")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if os.Getenv("VERSION") == "" {
		cmd.Env = append(os.Environ(), "VERSION=git") // an image says which commit it is made from
	}
	out, err := cmd.Output()
	if err != nil {
		return source{}, fmt.Errorf("hack/version.sh: %w", err)
	}
	stamps := map[string]string{}
	for _, stamp := range regexp.MustCompile(`-X k8s\.io/component-base/version\.(\w+)=(\S*)`).FindAllStringSubmatch(string(out), -1) {
		stamps[stamp[1]] = stamp[2]
	}
	created, err := time.Parse(time.RFC3339, stamps["buildDate"])
	if err != nil {
		return source{}, fmt.Errorf("hack/version.sh: %w", err)
	}
	return source{dir: dir, ldflags: strings.TrimSpace(string(out)), version: stamps["gitVersion"], revision: stamps["gitCommit"], created: created.UTC()}, nil
}

// compile builds the scheduler for a platform into file, and names each package that it compiles to progress.
func (s source) compile(ctx context.Context, p v1.Platform, file string, progress io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append(buildArgs(s.ldflags), "-v", "-o", file, "./cmd/scheduler")...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stdout, cmd.Stderr = progress, progress
	return cmd.Run()
}

// buildArgs keep this machine's paths, the state of the checkout and debug data out of the binary, so that the
// digest is the same on any machine.
func buildArgs(ldflags string) []string {
	return []string{"build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= " + ldflags}
}
