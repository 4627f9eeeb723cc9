package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// build is one run of the command of that name.
type build struct {
	version, repository, source, output, key, downloads, platforms string
	// cli are the platforms of the command line.
	cli      []string
	progress io.Writer

	// What prepare finds out.
	commit string
	when   time.Time // of the commit
	// ldflags stamp the programs.
	ldflags string
	signer  *signer // nil without a key
}

var versionForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// sums is the name of the file with the checksums.
const sums = "SHA256SUMS"

func (b *build) run(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	notes, err := releaseNotes(filepath.Join(b.source, "CHANGELOG.md"), b.version)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(b.output); err != nil {
		return err
	}
	if err := os.MkdirAll(b.output, 0o755); err != nil {
		return err
	}
	if err := b.write("RELEASE_NOTES.md", []byte(notes)); err != nil {
		return err
	}
	image, err := b.image(ctx)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := b.charts(image.digest); err != nil {
		return fmt.Errorf("charts: %w", err)
	}
	if err := b.installs(image.digest); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	if err := b.commandLine(ctx); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if err := b.checksums(); err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "wrote %s: %s/zonewise-scheduler:%s@%s\n", b.output, b.repository, b.version, image.digest)
	return nil
}

// prepare checks the options, and refuses a checkout that is not a commit: nobody could make the same again.
func (b *build) prepare(ctx context.Context) error {
	if !versionForm.MatchString(b.version) {
		return fmt.Errorf("-version: %q, want one as in v0.1.0", b.version)
	}
	var err error
	if b.source, err = filepath.Abs(b.source); err != nil {
		return err
	}
	if b.output == "" {
		b.output = filepath.Join(b.source, "dist", b.version)
	}
	if b.key != "" {
		if b.signer, err = loadSigner(b.key); err != nil {
			return fmt.Errorf("-key: %w", err)
		}
	}
	changed, err := b.commandOutput(ctx, "git", "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the checkout has changes, which no tag would have:\n%s", changed)
	}
	if b.commit, err = b.commandOutput(ctx, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	stamp, err := b.commandOutput(ctx, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscan(stamp, &seconds); err != nil {
		return err
	}
	b.when = time.Unix(seconds, 0).UTC()
	b.ldflags, err = b.commandOutput(ctx, "hack/version.sh", "ldflags")
	return err
}

// environment makes hack/version.sh stamp the release.
func (b *build) environment(more ...string) []string {
	return append(append(os.Environ(), "VERSION="+b.version, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="), more...)
}

// run1 returns what a command prints, run in the checkout.
func (b *build) commandOutput(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = b.source, b.environment(), b.progress
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// number is the version without its v, as Helm and tags of charts have it.
func (b *build) number() string { return strings.TrimPrefix(b.version, "v") }

func (b *build) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(b.output, name), data, 0o644)
}

// checksums writes the sums of the files, and with a key the signature of the list and the public key. Neither is in
// the list, which is the same without a key.
func (b *build) checksums() error {
	entries, err := os.ReadDir(b.output)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.output, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	if err := b.write(sums, []byte(list.String())); err != nil {
		return err
	}
	if b.signer == nil {
		return nil
	}
	signature, err := b.signer.sign([]byte(list.String()))
	if err != nil {
		return err
	}
	public, err := b.signer.publicKey()
	if err != nil {
		return err
	}
	return errors.Join(b.write(sums+".sig", []byte(signature)), b.write("cosign.pub", public))
}

// filesOf returns the regular files below a directory, by their names from there, sorted.
func filesOf(dir string) ([]string, error) {
	var out []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			out = append(out, path)
		}
		return err
	})
	slices.Sort(out)
	if err == nil && len(out) == 0 {
		err = errors.New("no files in " + dir)
	}
	return out, err
}
