package cli

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"zonewise.dev/test/documents"
	"zonewise.dev/test/internal/apiserver"
)

// walkthrough runs the commands of a section of a document as its readers do, one block after the other.
type walkthrough struct {
	w      *world
	dir    string // where the commands are run, which "cd" changes
	blocks []documents.Block
}

func (w *world) walkthrough(document, section string) *walkthrough {
	w.t.Helper()
	all, err := documents.Read(w.Root)
	require.NoError(w.t, err)
	at := slices.IndexFunc(all, func(d documents.Document) bool { return d.Path == document })
	require.GreaterOrEqual(w.t, at, 0, document)
	blocks, err := all[at].Blocks()
	require.NoError(w.t, err)
	blocks = slices.DeleteFunc(blocks, func(b documents.Block) bool { return b.Section != section || b.Language != "console" })
	require.NotEmpty(w.t, blocks, "%s has no commands under %s", document, section)
	return &walkthrough{w: w, dir: w.Root, blocks: blocks}
}

// next runs the commands of the next block: one whose output the document shows again and again until it prints that,
// but for ages and for what makes a name unique.
func (s *walkthrough) next() {
	t := s.w.t
	t.Helper()
	require.NotEmpty(t, s.blocks, "the document has fewer blocks")
	b := s.blocks[0]
	s.blocks = s.blocks[1:]
	for _, step := range strings.Split("\n"+b.Text, "\n$ ")[1:] {
		command, shown, _ := strings.Cut(step, "\n")
		if dir, isCd := strings.CutPrefix(command, "cd "); isCd {
			s.dir = filepath.Join(s.w.Root, dir)
			continue
		}
		if strings.TrimSpace(shown) == "" {
			s.w.Shell(t, s.dir, command)
			continue
		}
		printed := ""
		_ = wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 2*apiserver.Eventually, true, func(context.Context) (bool, error) {
			printed = lasting(s.w.Shell(t, s.dir, command))
			return printed == lasting(shown), nil
		})
		require.Equal(t, lasting(shown), printed, "%s:%d: %s", b.Path, b.Line, command)
	}
}

// requireEnd requires that all blocks have been run.
func (s *walkthrough) requireEnd() {
	s.w.t.Helper()
	require.Empty(s.w.t, s.blocks, "the document has more blocks")
}

// passing is what differs each time: ages, and the digest at the end of a name.
var passing = regexp.MustCompile(`\b(?:(?:\d+m)?\d+s|\d+m|[0-9a-f]{16})(\s|$)`)

// lasting is what is printed without what differs each time, and without the width of columns.
func lasting(printed string) string {
	var lines []string
	for line := range strings.Lines(passing.ReplaceAllString(printed, "*$1")) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, strings.Join(fields, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// TestGangOfAJob is the example at the beginning of docs/permitgate.md, with the real controller of Jobs.
func TestGangOfAJob(t *testing.T) {
	w := newLivingWorld(t, "job-controller")
	w.StartScheduler(t)
	steps := w.walkthrough("docs/permitgate.md", "PermitGate")
	steps.next()
	steps.requireEnd()
}
