package site

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

var (
	reference = regexp.MustCompile(`(?:href|src|srcset)="([^"]*)"`)
	anchor    = regexp.MustCompile(`\bid="([^"]*)"`)
)

// TestSite builds the site, and follows every link in it: each leads to a page of the site, to an anchor that the page
// has, or out of it by https. Every document is a page.
func TestSite(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.NoError(t, program.Uncached(root))
	out := t.TempDir()
	_, err = program.Run(root, "hack/site.sh", out)
	require.NoError(t, err)

	pages := map[string]string{} // by path
	require.NoError(t, fs.WalkDir(os.DirFS(out), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(out, file))
		pages["/"+file] = string(data)
		return err
	}))
	followed := 0
	for page, text := range pages {
		if path.Base(page) != "index.html" {
			continue
		}
		for _, found := range reference.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(strings.ReplaceAll(found[1], "&amp;", "&"))
			require.NoError(t, err, "%s: %s", page, found[1])
			if target.IsAbs() {
				require.Equal(t, "https", target.Scheme, "%s: %s", page, found[1])
				continue
			}
			file := page
			if target.Path != "" {
				file = path.Join(path.Dir(page), target.Path)
				if strings.HasPrefix(target.Path, "/") {
					file = path.Clean(target.Path)
				}
				if path.Ext(file) == "" {
					file = path.Join(file, "index.html")
				}
			}
			require.Contains(t, pages, file, "%s: %s", page, found[1])
			if target.Fragment != "" {
				ids := map[string]bool{}
				for _, id := range anchor.FindAllStringSubmatch(pages[file], -1) {
					ids[id[1]] = true
				}
				require.True(t, ids[target.Fragment], "%s: %s has no such anchor", page, found[1])
			}
			followed++
		}
	}
	require.Greater(t, followed, 500)

	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, documents)
	for _, document := range documents {
		name := strings.TrimSuffix(filepath.Base(document), ".md")
		require.Contains(t, pages, "/docs/"+name+"/index.html")
		nav, _, _ := strings.Cut(pages["/index.html"], "</nav>")
		require.Contains(t, nav, `href="/docs/`+name+`/"`)
	}
	require.Contains(t, pages["/docs/operations/index.html"], `id="zonewisezoneclosed"`, "where the alerts' runbook_url leads")
}
