// Command image builds the scheduler's OCI image without a container engine: one layer with one static
// binary, for a user that is not root.
//
// The image is reproducible. Its digest depends on the binaries, the labels and the time of the source,
// and on nothing else: not on the clock, the host's files, or who runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
)

// The defaults keep the name of the manifests: an image that is imported on a node is found by them.
const (
	defaultTag      = "registry.example.com/zonewise-scheduler:dev"
	defaultPlatform = "linux/amd64"
	// layoutName is the directory that is made under --output; the archive adds ".tar" to it.
	layoutName = "zonewise-scheduler.oci"
)

// options are the command line.
type options struct {
	binaries  []string
	platforms []string
	output    string
	tag       string
	source    string
	version   string
	push      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

// newCommand returns the command. The digest goes to out, everything else to progress.
func newCommand(out, progress io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build the scheduler's OCI image without a container engine",
		Long: `Builds an OCI image with one static scheduler for each platform, and writes it below the output
directory as an image layout (` + layoutName + `/) and as an archive of that layout
(` + layoutName + `.tar), which "podman load", "docker load", "ctr images import" and "skopeo copy
oci-archive:..." take. Beside them is an SBOM of each platform, zonewise-scheduler-OS-ARCH.cdx.json: a
CycloneDX list of the modules in the binary, which --push attaches to the image as a referrer. Prints the
image's name with its digest, and nothing else, on standard output.

A platform without a --binary is built from the source. The time in the image is SOURCE_DATE_EPOCH if it
is set, else the time of the source's last commit: two builds of one commit by one version of Go have one
digest, on any machine.`,
		Example: `  cd hack/image
  go run .
  go run . --platform linux/amd64,linux/arm64 --tag registry.example.com/team/zonewise-scheduler:v1 --push
  go run . --binary ../../bin/zonewise-scheduler --output /tmp/image`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, out, progress)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.binaries, "binary", nil, "a static binary of ./cmd/scheduler to use instead of building one; its platform is read from it")
	f.StringSliceVar(&o.platforms, "platform", []string{defaultPlatform}, "the platforms that the image must have, no more and no less")
	f.StringVar(&o.output, "output", "../../dist", "the directory to write to; it is created, and what an earlier build left is replaced")
	f.StringVar(&o.tag, "tag", defaultTag, "the image's name and tag, in the archive and for --push")
	f.StringVar(&o.source, "source", "../..", "the root of the repository")
	f.StringVar(&o.version, "version", "", "the version label (default: what hack/version.sh says)")
	f.BoolVar(&o.push, "push", false, "push to the registry of --tag too, with the credentials of docker login or podman login")
	return cmd
}

// run builds, writes and perhaps pushes the image.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	tag, err := name.NewTag(o.tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	platforms, err := parsePlatforms(o.platforms)
	if err != nil {
		return fmt.Errorf("--platform: %w", err)
	}
	given, err := inspectAll(o.binaries, platforms)
	if err != nil {
		return fmt.Errorf("--binary: %w", err)
	}
	src, err := describeSource(ctx, o.source, o.version)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "zonewise-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var binaries []binary
	for _, p := range platforms {
		b, ok := given[p.String()]
		if !ok {
			fmt.Fprintf(progress, "building for %s: minutes the first time, seconds from then on\n", p)
			if b, err = compile(ctx, o.source, tmp, p, progress); err != nil {
				return err
			}
		}
		binaries = append(binaries, b)
	}

	img, err := build(binaries, src)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.output, layoutName)
	if err := img.write(dir, tag); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := archive(dir, dir+".tar", src.created); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := img.writeSBOMs(o.output); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	fmt.Fprintf(progress, "wrote %s and %s.tar: version %s, %s\n", dir, dir, src.version, src.created.Format(time.RFC3339))

	digest, err := img.digest()
	if err != nil {
		return err
	}
	if o.push {
		if err := img.push(ctx, tag, src.created); err != nil {
			return fmt.Errorf("--push: %w", err)
		}
		fmt.Fprintln(progress, "pushed", tag)
	}
	fmt.Fprintf(out, "%s@%s\n", tag, digest)
	return nil
}
