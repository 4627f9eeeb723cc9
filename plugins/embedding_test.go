package plugins_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// frameworkPaths are those of the scheduler's framework, whose objects plugins hand to each other by way of the
// framework.
var frameworkPaths = []string{"k8s.io/kube-scheduler/framework", "k8s.io/kubernetes/pkg/scheduler"}

// readsRequests are the methods of a PodInfo beside GetPod. The framework calls them, and so does the package that
// makes copies of nodes.
var readsRequests = []string{
	"CalculateResource", "GetRequiredAffinityTerms", "GetRequiredAntiAffinityTerms", "GetPreferredAffinityTerms", "GetPreferredAntiAffinityTerms",
}

// copiesNodes is the package that hands PodInfos of its own to other plugins.
const copiesNodes = "permitgate/preempt"

// TestNoStandInIsIncomplete: a type that embeds an interface of the framework compiles without its methods, and the
// first plugin that calls one of them ends the scheduler.
func TestNoStandInIsIncomplete(t *testing.T) {
	for _, folder := range []string{".", "../internal"} {
		for path, file := range parseFolder(t, folder) {
			require.Empty(t, embeddedTypes(file), "%s: implement every method, or keep the object in a field with a name", path)
		}
	}
}

// TestPluginsReadPodsAlone of a PodInfo, since it may be one that another plugin has made up for a search.
func TestPluginsReadPodsAlone(t *testing.T) {
	for path, file := range parseFolder(t, ".") {
		if filepath.ToSlash(filepath.Dir(path)) != copiesNodes {
			require.Empty(t, calls(file, readsRequests), "%s: take it from GetPod()", path)
		}
	}
}

// TestBreachesAreFound: what the two tests above look for.
func TestBreachesAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "breach.go", `package breach

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"other/fwk2"
)

type amounts struct{ fwk.Resource }

type nominee struct {
	*framework.PodInfo
	resource fwk.Resource
}

type handle interface{ fwk.Handle }

type other struct{ fwk2.Resource }

func requests(pod fwk.PodInfo) { pod.CalculateResource() }
`, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"fwk.Resource", "framework.PodInfo"}, embeddedTypes(file))
	require.Equal(t, []string{"CalculateResource"}, calls(file, readsRequests))
	require.NotEmpty(t, parseFolder(t, "."))
}

// parseFolder parses the files of a folder and below it that are no tests.
func parseFolder(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, path), nil, parser.SkipObjectResolution)
		files[filepath.Join(folder, path)] = file
		return err
	}))
	return files
}

// embeddedTypes returns the types of the framework that structs of the file embed.
func embeddedTypes(file *ast.File) (names []string) {
	imported := frameworkImports(file)
	ast.Inspect(file, func(n ast.Node) bool {
		structure, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range structure.Fields.List {
			kind := field.Type
			if pointer, ok := kind.(*ast.StarExpr); ok {
				kind = pointer.X
			}
			selector, ok := kind.(*ast.SelectorExpr)
			if !ok || len(field.Names) > 0 {
				continue
			}
			if pkg, ok := selector.X.(*ast.Ident); ok && slices.Contains(imported, pkg.Name) {
				names = append(names, fmt.Sprintf("%s.%s", pkg.Name, selector.Sel.Name))
			}
		}
		return true
	})
	return names
}

// frameworkImports returns the names by which a file calls the framework's packages.
func frameworkImports(file *ast.File) (names []string) {
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !slices.ContainsFunc(frameworkPaths, func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }) {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names = append(names, name)
	}
	return names
}

// calls returns which of the methods the file calls.
func calls(file *ast.File, methods []string) (called []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && slices.Contains(methods, selector.Sel.Name) {
			called = append(called, selector.Sel.Name)
		}
		return true
	})
	return called
}
