package snapshot_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"zonewise.dev/cluster/snapshot"
)

// TestCopiesKeepWhatIsDecidedBy reads the source of the plugins and of all that looks at copies: an annotation that
// they read has to be among those that a snapshot keeps, or every answer about a copy is about another cluster. All
// labels are kept.
func TestCopiesKeepWhatIsDecidedBy(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	s := source{root: root, constants: map[string]map[string]string{}}
	read := map[string]string{} // where each annotation is read
	for _, folder := range []string{"plugins", "internal", "sim", "survival", "rebalance", "buy", "cluster", "cmd"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return s.annotations(path, read)
		}))
	}
	require.Contains(t, read, "zonewise.dev/required-topology", "the test finds what is read")
	require.Contains(t, read, "deployment.kubernetes.io/desired-replicas", "the test finds what is read")
	require.Contains(t, read, corev1.PodDeletionCost, "the test finds what is read")
	for key, where := range read {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{key: "x"}, Labels: map[string]string{key: "x"},
		}}
		snapshot.Trim(obj)
		require.Contains(
			t, obj.Annotations, key,
			"%s reads an annotation that copies of clusters do not have: add it to keptAnnotations", where,
		)
		require.Contains(t, obj.Labels, key)
	}
}

// elsewhere are the constants of other modules that this one uses as keys.
var elsewhere = map[string]string{
	"MirrorPodAnnotationKey":     corev1.MirrorPodAnnotationKey,
	"BetaStorageClassAnnotation": corev1.BetaStorageClassAnnotation,
	"PodDeletionCost":            corev1.PodDeletionCost, "JobIndexFailureCountAnnotation": batchv1.JobIndexFailureCountAnnotation,
	"AnnSelectedNode": volume.AnnSelectedNode,
}

// source is that of this module.
type source struct {
	root string
	// constants are the string constants of packages, by folder.
	constants map[string]map[string]string
}

// annotations adds the annotations that a file reads by their keys.
func (s *source) annotations(path string, read map[string]string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		return err
	}
	var failed error
	ast.Inspect(file, func(n ast.Node) bool {
		index, ok := n.(*ast.IndexExpr)
		if !ok || !isAnnotations(index.X) {
			return true
		}
		key, err := s.value(path, file, index.Index)
		where := files.Position(index.Pos()).String()
		if err != nil {
			failed = fmt.Errorf("%s: which annotation is read? %w", where, err)
		}
		read[key] = where
		return true
	})
	return failed
}

// isAnnotations: x.Annotations or x.GetAnnotations().
func isAnnotations(x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		x = call.Fun
	}
	selector, ok := x.(*ast.SelectorExpr)
	return ok && (selector.Sel.Name == "Annotations" || selector.Sel.Name == "GetAnnotations")
}

// value is that of a literal, or of a constant of this module.
func (s *source) value(path string, file *ast.File, x ast.Expr) (string, error) {
	folder, name := filepath.Dir(path), ""
	switch x := x.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(x.Value)
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
		if value, known := elsewhere[name]; known {
			return value, nil
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			local, inside := strings.CutPrefix(imported, "zonewise.dev/")
			pkg, ok := x.X.(*ast.Ident)
			if inside && ok &&
				(spec.Name == nil && filepath.Base(local) == pkg.Name || spec.Name != nil && spec.Name.Name == pkg.Name) {
				folder = filepath.Join(s.root, local)
			}
		}
	}
	if s.constants[folder] == nil {
		if err := s.load(folder); err != nil {
			return "", err
		}
	}
	value, known := s.constants[folder][name]
	if !known {
		return "", fmt.Errorf("%q is no string constant of %s", name, folder)
	}
	return value, nil
}

func (s *source) load(folder string) error {
	s.constants[folder] = map[string]string{}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			for i := 0; ok && i < len(spec.Values); i++ {
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					s.constants[folder][spec.Names[i].Name], _ = strconv.Unquote(literal.Value)
				}
			}
			return true
		})
	}
	return nil
}
