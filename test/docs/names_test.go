package docs

import (
	"cmp"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/documents"
)

// TestNamedTestsExist: a claim that names its test names one that is there.
func TestNamedTestsExist(t *testing.T) {
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "dist" || path != root && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range function.FindAllStringSubmatch(string(source), -1) {
			declared[found[1]] = true
		}
		return nil
	}))
	require.Greater(t, len(declared), 300)
	all, err := documents.Read(root)
	require.NoError(t, err)
	named := 0
	for _, d := range all {
		for _, name := range regexp.MustCompile(`\b(?:Test|Benchmark)[A-Z]\w+`).FindAllString(d.Text, -1) {
			if name == "TestName" {
				continue // stands for any
			}
			require.True(t, declared[name], "%s: there is no test %s", d.Path, name)
			named++
		}
	}
	require.Greater(t, named, 20)
}

// TestComparisonSaysWhereTestsAre: a test that docs/comparison.md names is in test/framework, or in the package that is
// named behind it.
func TestComparisonSaysWhereTestsAre(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "comparison.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`(Test\\w+)`(?: \\(`([\\w/]+)`\\))?").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 60)
	there := map[string][]string{}
	for _, name := range named {
		dir := cmp.Or(name[2], "test/framework")
		if there[dir] == nil {
			there[dir] = functions(t, dir)
		}
		require.Contains(t, there[dir], name[1], dir)
	}
}

// TestPromisesAreShown: the table of docs/reliability.md has each judge of "make chaos" and each invariant of "make
// worlds" once, and no other.
func TestPromisesAreShown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var judges, invariants []string
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		require.Len(t, cells, 3, row)
		for i, names := range []*[]string{&judges, &invariants} {
			for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[i+1], -1) {
				*names = append(*names, name[1])
			}
		}
	}
	declared := func(pattern string, file ...string) (out []string) {
		source, err := os.ReadFile(filepath.Join(append([]string{root, "test"}, file...)...))
		require.NoError(t, err)
		for _, name := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
			out = append(out, name[1])
		}
		require.NotEmpty(t, out)
		return out
	}
	require.ElementsMatch(t, declared(`(?m)^\t\{"([A-Z]\w+)", \w+\},$`, "chaos", "judge", "judge.go"), judges)
	require.ElementsMatch(t, declared(`(?m)^\t[A-Z]\w+ += "([A-Z]\w+)"`, "worlds", "invariants.go"), invariants)
}

// TestOneDocumentNamesTests: for readers a name of a test is noise. Only docs/comparison.md, which is about what is
// tested, and documents for contributors name any, and commands that run one.
func TestOneDocumentNamesTests(t *testing.T) {
	all, err := documents.Read(root)
	require.NoError(t, err)
	for _, d := range all {
		if d.Path == "docs/comparison.md" || d.Path == "CONTRIBUTING.md" || d.Path == "RELEASE.md" {
			continue
		}
		for line := range strings.Lines(d.Text) {
			if !strings.Contains(line, "go test ") && !strings.Contains(line, "make ") {
				require.NotRegexp(t, `\bTest[A-Z]\w+`, line, d.Path)
			}
		}
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// code is inline, such as a regular expression that looks like a link.
	code    = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// unwanted is what GitHub leaves out of an anchor.
	unwanted = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns those of a document's headings.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		title := link.ReplaceAllString(strings.ToLower(strings.TrimSpace(found[1])), "]")
		out[strings.ReplaceAll(unwanted.ReplaceAllString(title, ""), " ", "-")] = true
	}
	return out
}

// TestLinksLeadSomewhere looks at the links within the repository, with their anchors. Of others it requires https.
func TestLinksLeadSomewhere(t *testing.T) {
	all, err := documents.Read(root)
	require.NoError(t, err)
	followed := 0
	for _, d := range all {
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(d.Text, ""), -1) {
			target, err := url.Parse(found[1])
			require.NoError(t, err, "%s: %s", d.Path, found[1])
			if target.IsAbs() {
				require.Equal(t, "https", target.Scheme, "%s: %s", d.Path, found[1])
				continue
			}
			to := d.Path
			if target.Path != "" {
				to = path.Join(path.Dir(d.Path), target.Path)
			}
			file := filepath.Join(root, filepath.FromSlash(to))
			_, err = os.Stat(file)
			require.NoError(t, err, "%s: %s", d.Path, found[1])
			if target.Fragment != "" {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Contains(t, anchors(string(text)), target.Fragment, "%s: %s", d.Path, found[1])
			}
			followed++
		}
	}
	require.Greater(t, followed, 60)
}
