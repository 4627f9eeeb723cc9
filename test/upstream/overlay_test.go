package upstream

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	integration  = "k8s.io/kubernetes/test/integration/"
	suitesImport = "zonewise.dev/test/upstream/suites/"
	packImport   = "zonewise.dev/test/upstream/withpack"
	scheduler    = "k8s.io/kubernetes/pkg/scheduler"
)

// helpers are the packages that the suites share, below upstream's test/integration.
var helpers = []string{"util", "scheduler/podgroup/stepsframework"}

// replaced are the functions of package scheduler that package withpack has, too.
var replaced = []string{"New", "WithProfiles", "WithFrameworkOutOfTreeRegistry"}

// writeOverlay writes an overlay for the go command, in which the suites and their helpers are packages of this module,
// and returns its path.
func writeOverlay(t *testing.T, kubernetes string) string {
	t.Helper()
	dir := t.TempDir()
	here, err := os.Getwd()
	require.NoError(t, err)
	overlay := map[string]string{}
	for _, name := range append(slices.Clone(helpers), suites...) {
		files, err := filepath.Glob(filepath.Join(kubernetes, "test", "integration", name, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, "%s has no %s", kubernetes, name)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			rewritten, err := rewrite(content)
			require.NoError(t, err, file)
			target := filepath.Join(dir, name, filepath.Base(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
			require.NoError(t, os.WriteFile(target, rewritten, 0o600))
			overlay[filepath.Join(here, "suites", name, filepath.Base(file))] = target
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// rewrite has a file import the suites' helpers from this module, and make its schedulers by package withpack. Its
// lines keep their numbers.
func rewrite(content []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", content, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	edits := map[int]edit{} // by the offset where they begin
	replace := func(node ast.Node, by string) {
		from, to := set.Position(node.Pos()).Offset, set.Position(node.End()).Offset
		edits[from] = edit{to: to, text: by}
	}
	name := ""
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if local, found := strings.CutPrefix(path, integration); found && slices.Contains(helpers, local) {
			replace(spec.Path, strconv.Quote(suitesImport+local))
		}
		if path == scheduler {
			if name = "scheduler"; spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	needed := false
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if from, ok := selector.X.(*ast.Ident); ok && name != "" && from.Name == name && slices.Contains(replaced, selector.Sel.Name) {
			replace(from, "withpack")
			needed = true
		}
		return true
	})
	if needed {
		at := set.Position(file.Name.End()).Offset
		edits[at] = edit{to: at, text: "; import " + strconv.Quote(packImport)}
	}
	return apply(content, edits), nil
}

// edit says what takes the place of a part of a file, and where that part ends.
type edit struct {
	to   int
	text string
}

func apply(content []byte, edits map[int]edit) (result []byte) {
	at := 0
	for _, from := range slices.Sorted(maps.Keys(edits)) {
		result = append(append(result, content[at:from]...), edits[from].text...)
		at = edits[from].to
	}
	return append(result, content[at:]...)
}

func TestRewrite(t *testing.T) {
	got, err := rewrite([]byte(`package x

import (
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/test/integration/framework"
	testutils "k8s.io/kubernetes/test/integration/util"
)

var all = []any{scheduler.New, scheduler.WithProfiles(), scheduler.WithClock, framework.New, testutils.New}
`))
	require.NoError(t, err)
	require.Equal(t, `package x; import "zonewise.dev/test/upstream/withpack"

import (
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/test/integration/framework"
	testutils "zonewise.dev/test/upstream/suites/util"
)

var all = []any{withpack.New, withpack.WithProfiles(), scheduler.WithClock, framework.New, testutils.New}
`, string(got))
}

// goCommand runs the go command in this directory, and returns what it prints.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Stderr = &strings.Builder{}
	output, err := command.Output()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), fmt.Sprint(command.Stderr))
	return strings.TrimSpace(string(output))
}
