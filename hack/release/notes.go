package main

import (
	"fmt"
	"os"
	"strings"
)

// releaseNotes returns the section of a version, without its heading. A changelog that has none was not prepared for
// the release.
func releaseNotes(file, version string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(data), "\n## "+strings.TrimPrefix(version, "v"))
	heading, body, _ := strings.Cut(rest, "\n")
	if !found || heading != "" && !strings.HasPrefix(heading, " ") {
		return "", fmt.Errorf("%s has no section %q: rename \"Unreleased\", as RELEASE.md says", file, "## "+strings.TrimPrefix(version, "v"))
	}
	body, _, _ = strings.Cut(body, "\n## ")
	body = strings.TrimSpace(body)
	if body == "" {
		return "", fmt.Errorf("%s says nothing about %s", file, version)
	}
	return "# Zonewise " + version + "\n\n" + body + "\n", nil
}
