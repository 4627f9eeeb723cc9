package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/documents"
)

// root is that of the repository.
var root = filepath.Join("..", "..")

// TestGuidesHaveTheShellBlocks: blocks of the language "sh" are run as they stand, by TestGuides (test/manifests),
// which knows its documents.
func TestGuidesHaveTheShellBlocks(t *testing.T) {
	commands, err := documents.All(root)
	require.NoError(t, err)
	for _, c := range commands["sh"] {
		require.Contains(t, documents.Guides, c.Path, "%s:%d: TestGuides does not run the blocks of this document: %s", c.Path, c.Line, c.Text)
	}
	require.Greater(t, len(commands["sh"]), 25)
}

// TestCommandsNameFilesThatExist: the files and folders of the repository in blocks of the language "console", and what
// their commands are called. Those of the program zonewise are run by TestDocumentedCommands (cmd/zonewise/command).
func TestCommandsNameFilesThatExist(t *testing.T) {
	commands, err := documents.All(root)
	require.NoError(t, err)
	programs := []string{
		"bin/kubectl", "bin/zonewise-scheduler", "cd", "export", "go", "helm", "kubectl", "make", "source", "sudo", "zonewise",
		"hack/line.sh", "hack/upgrade-k8s.sh", "openssl", "sha256sum",
	}
	inRepository := regexp.MustCompile(`^(?:\./)?(?:(?:cmd|config|demo|docs|examples|hack|manifests|test)/[\w./*-]+)$`)
	found := 0
	for _, c := range commands["console"] {
		words := strings.Fields(c.Text)
		require.Contains(t, programs, words[0], "%s:%d: %s", c.Path, c.Line, c.Text)
		for _, word := range words {
			if !inRepository.MatchString(word) {
				continue
			}
			files, err := filepath.Glob(filepath.Join(root, word))
			require.NoError(t, err)
			require.NotEmpty(t, files, "%s:%d: %s: there is no %s", c.Path, c.Line, c.Text, word)
			found++
		}
	}
	require.Greater(t, found, 8)
}

// functions returns the names of the tests and benchmarks of a package.
func functions(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	require.NoError(t, err)
	var out []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			out = append(out, found[1])
		}
	}
	return out
}

// TestMakeTakesTheCommands asks make what it would do: the targets exist, and what they run.
func TestMakeTakesTheCommands(t *testing.T) {
	commands, err := documents.All(root)
	require.NoError(t, err)
	script := regexp.MustCompile(`\bhack/[\w/.-]+\.sh\b`)
	asked := 0
	for _, c := range commands["console"] {
		line, isMake := strings.CutPrefix(c.Text, "make ")
		if !isMake {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "make --dry-run --always-make "+line)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s:%d: %s\n%s", c.Path, c.Line, c.Text, out)
		for _, file := range script.FindAllString(string(out), -1) {
			require.FileExists(t, filepath.Join(root, file), c.Text)
		}
		asked++
	}
	require.Greater(t, asked, 10)
}

// TestBenchmarksExist: the groups of "make bench" that the documents name, the benchmarks of each group, and those that
// documents name by themselves (go test ... -bench NAME PACKAGE).
func TestBenchmarksExist(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "hack", "bench.sh"))
	require.NoError(t, err)
	groups := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^group_(\w+)\(\)`).FindAllStringSubmatch(string(source), -1) {
		groups[found[1]] = true
	}
	require.Greater(t, len(groups), 5)
	measured := 0
	for _, found := range regexp.MustCompile(`(?m)(?:^\t|\{ )measure (\S+) '?([^' ]+)'? \d`).FindAllStringSubmatch(string(source), -1) {
		dir := strings.ReplaceAll(found[1], "$PERFORMANCE", "./test/performance")
		requireBenchmark(t, dir, found[2], "hack/bench.sh")
		measured++
	}
	require.GreaterOrEqual(t, measured, len(groups))

	all, err := documents.Read(root)
	require.NoError(t, err)
	named := 0
	for _, d := range all {
		for _, found := range regexp.MustCompile(`BENCH_GROUPS='([^']*)'`).FindAllStringSubmatch(d.Text, -1) {
			for group := range strings.FieldsSeq(found[1]) {
				require.True(t, groups[group], "%s: hack/bench.sh has no group %q", d.Path, group)
				named++
			}
		}
		for _, found := range regexp.MustCompile("go test ([^`\n]*)").FindAllStringSubmatch(d.Text, -1) {
			var dir, pattern, run string
			words := strings.Fields(found[1])
			for i, word := range words {
				switch {
				case strings.HasPrefix(word, "./"):
					dir = word
				case i > 0 && words[i-1] == "-bench":
					pattern = strings.Trim(word, "'")
				case i > 0 && words[i-1] == "-run":
					run = strings.Trim(word, "'")
				}
			}
			require.DirExists(t, filepath.Join(root, dir), "%s: go test %s", d.Path, found[1])
			if pattern != "" {
				requireBenchmark(t, dir, pattern, d.Path)
				require.NotContains(t, functions(t, dir), run, "%s: -run is to keep the tests out", d.Path)
				named++
			}
		}
	}
	require.Greater(t, named, 5)
}

func requireBenchmark(t *testing.T, dir, pattern, where string) {
	t.Helper()
	top, _, _ := strings.Cut(pattern, "/") // the rest chooses among its sub-benchmarks
	matches := regexp.MustCompile(top).MatchString
	require.True(t, slices.ContainsFunc(functions(t, dir), func(name string) bool {
		bare, isBenchmark := strings.CutPrefix(name, "Benchmark")
		return isBenchmark && (matches(bare) || matches(name))
	}), "%s: %s has no benchmark %s", where, dir, pattern)
}

// TestNoCommandHides: what looks like a command stands in a block of a language for commands.
func TestNoCommandHides(t *testing.T) {
	all, err := documents.Read(root)
	require.NoError(t, err)
	command := regexp.MustCompile(`^(\$ |(sudo |bin/)?(kubectl|zonewise|make|helm|go|git|docker|kubeadm|curl) )`)
	for _, d := range all {
		blocks, err := d.Blocks()
		require.NoError(t, err)
		for _, b := range blocks {
			require.Contains(t, []string{"", "sh", "console", "yaml"}, b.Language, "%s:%d", b.Path, b.Line)
			if b.Shell() {
				continue
			}
			for line := range strings.Lines(b.Text) {
				if strings.HasSuffix(strings.TrimSpace(line), "[flags]") {
					continue // how it is used
				}
				require.False(t, command.MatchString(line), "%s:%d: a command in a block of the language %q: %s", b.Path, b.Line, b.Language, line)
			}
		}
		for line := range strings.Lines(d.Text) {
			bare := strings.TrimLeft(line, " ")
			if len(line)-len(bare) >= 4 {
				require.NotRegexp(t, `^(kubectl|zonewise|make|helm|go test|sudo) `, bare, "%s: an indented block", d.Path)
			}
		}
	}
}
