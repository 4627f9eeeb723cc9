package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// source is what the image says about where it comes from.
type source struct {
	created  time.Time // in UTC, to the second
	version  string
	revision string
}

// labels are the annotations of the OCI image specification that hold for this image.
func (s source) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "zonewise-scheduler",
		"org.opencontainers.image.description": "kube-scheduler with the plugins ZoneSpread, ReserveCache and PermitGate",
		"org.opencontainers.image.url":         "https://zonewise.dev",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.created":     s.created.Format(time.RFC3339),
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.revision":    s.revision,
	}
}

// describeSource describes the repository in dir. As hack/version.sh does, it takes a source without a
// git repository, such as an unpacked archive, to be unknown and of 1970. SOURCE_DATE_EPOCH overrides the
// time (https://reproducible-builds.org/docs/source-date-epoch), and version, unless empty, the version.
func describeSource(ctx context.Context, dir, version string) (source, error) {
	s := source{version: version, revision: "unknown"}
	var err error
	if s.version == "" {
		if s.version, err = output(ctx, dir, "hack/version.sh"); err != nil {
			return s, fmt.Errorf("--version is not given, and --source does not tell: %w", err)
		}
	}
	epoch := "0"
	if head, err := output(ctx, dir, "git", "log", "-1", "--format=%H %ct"); err == nil {
		s.revision, epoch, _ = strings.Cut(head, " ")
	}
	if env := os.Getenv("SOURCE_DATE_EPOCH"); env != "" {
		epoch = env
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	// A tar header of the plain format has room for 33 bits.
	if err != nil || seconds < 0 || seconds >= 1<<33 {
		return s, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds since 1970", epoch)
	}
	s.created = time.Unix(seconds, 0).UTC()
	return s, nil
}

// output runs a command in dir and returns what it prints, without the line's end.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir // a name with a slash is found from there
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
