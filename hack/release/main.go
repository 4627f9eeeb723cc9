// Command release makes what a release page needs, from one checkout, and pushes the images. Run it in its own
// directory, or with "make release VERSION=v0.1.0":
//
//	go run . build -version v0.1.0 -repository registry.example.com/zonewise -key cosign.key
//	go run . push -from ../../dist/v0.1.0 -repository registry.example.com/zonewise
//
// build writes, to dist/VERSION:
//
//   - oci/zonewise-scheduler, an image layout: the image for two platforms, with an SBOM for each and the SLSA provenance as
//     referrers;
//   - oci/charts/zonewise and oci/charts/zonewise-crds, layouts of the Helm charts, and both as .tgz;
//   - install-*.yaml, the objects of each way of installing;
//   - the command line for five platforms, and zonewise.krew.yaml;
//   - RELEASE_NOTES.md, cut from CHANGELOG.md;
//   - SHA256SUMS of all files above; with -key its signature, and cosign.pub.
//
// With -key everything is signed as cosign does, so that "cosign verify --key" and "cosign verify-blob --key" check it.
// The key is one of "cosign generate-key-pair", with its password in COSIGN_PASSWORD, or PKCS #8 in PEM. There is no
// transparency log: who has no network has no log, and who trusts the key needs none.
//
// All but the signatures is reproducible: two clones of one commit give the same files with one version of Go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

// run runs one of the two commands.
func run(ctx context.Context, args []string, progress io.Writer) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	flags := flag.NewFlagSet("release "+command, flag.ContinueOnError)
	flags.SetOutput(progress)
	repository := flags.String("repository", "registry.example.com/zonewise", "where the images and charts are published: registry and folder")
	switch command {
	case "build":
		b := build{progress: progress}
		flags.StringVar(&b.version, "version", "", "version of the release, as in v0.1.0")
		flags.StringVar(&b.source, "source", "../..", "root of the checkout")
		flags.StringVar(&b.output, "output", "", "directory to write to; dist/VERSION of the checkout when empty")
		flags.StringVar(&b.key, "key", "", "file of the private key to sign with; nothing is signed without")
		flags.StringVar(&b.platforms, "platforms", "linux/amd64,linux/arm64", "platforms of the image")
		cli := flags.String("cli", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "platforms of the command line")
		flags.StringVar(&b.downloads, "downloads", "https://zonewise.dev/releases", "where the files are published, for krew")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		b.repository, b.cli = *repository, strings.Split(*cli, ",")
		return b.run(ctx)
	case "push":
		from := flags.String("from", "", "directory that build wrote")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return push(ctx, *from, *repository, progress)
	default:
		return fmt.Errorf("unknown command %q, want build or push", command)
	}
}
