package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/internal/program"
)

// TestUnitTestsLinkNoScheduler: the tests that "make unit" runs link nothing of k8s.io/kubernetes, which takes longer
// than most of them.
func TestUnitTestsLinkNoScheduler(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "hack", "test.sh"))
	require.NoError(t, err)
	pattern := regexp.MustCompile(`(?s)step_unit\(\) \{.*?packages -v '([^']+)'`).FindStringSubmatch(string(script))
	require.NotNil(t, pattern, "hack/test.sh leaves packages out of the step unit")
	leftOut := regexp.MustCompile(pattern[1])
	listed, err := program.Run(root, "go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	require.NoError(t, err)
	binaries := 0
	for line := range strings.Lines(listed) {
		words := strings.Fields(line)
		name, isBinary := strings.CutSuffix(strings.TrimPrefix(words[0], "zonewise.dev/"), ".test")
		if !isBinary || leftOut.MatchString(name) {
			continue
		}
		i := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "k8s.io/kubernetes/") })
		require.Negative(t, i, "the tests of %s link %s", name, words[max(i, 0)])
		binaries++
	}
	require.Greater(t, binaries, 20)
}
