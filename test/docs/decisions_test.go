package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecisions: the index has each file of docs/adr once, in the order of their numbers, with its title and status,
// and what names a decision, anywhere in the repository, names one that exists. A number that is missing is of a
// decision that another one has replaced.
func TestDecisions(t *testing.T) {
	dir := filepath.Join(root, "docs", "adr")
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	require.NoError(t, err)
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| \[(\d{4})\]\(([^)]+)\) \| (.+?) \| (.+?) \|`).FindAllStringSubmatch(string(index), -1)
	require.Len(t, rows, len(files)-1, "one line for each decision")
	head := regexp.MustCompile(`^# (\d{4}): (.+)\n\nStatus: (accepted|superseded by \d{4})\b`)
	numbers := map[string]bool{}
	last := ""
	for _, row := range rows {
		number := row[1]
		require.Greater(t, number, last, "in the order of their numbers")
		last = number
		text, err := os.ReadFile(filepath.Join(dir, row[2]))
		require.NoError(t, err)
		found := head.FindStringSubmatch(string(text))
		require.NotNil(t, found, "%s begins with its number, title and status", row[2])
		require.Equal(t, []string{number, row[3], row[4]}, found[1:], row[2])
		require.True(t, strings.HasPrefix(row[2], number+"-"), row[2])
		for _, target := range link.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(target[1], "https://") {
				require.FileExists(t, filepath.Join(dir, target[1]), row[2])
			}
		}
		numbers[number] = true
	}

	mention := regexp.MustCompile(`\bADRs? (\d+)|\badr/(\d+)`)
	mentions := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "dist", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || entry.Name() == ".git" || slices.Contains([]string{".png", ".sum"}, filepath.Ext(path)) || strings.HasPrefix(path, filepath.Join(root, "test", "docs")):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range mention.FindAllStringSubmatch(string(text), -1) {
			require.True(t, numbers[found[1]+found[2]], "%s names %q, which is no decision", path, found[0])
			mentions++
		}
		return err
	}))
	require.Greater(t, mentions, 5)
}
