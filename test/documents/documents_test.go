package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// document has "~~~" where Markdown has a fence, which a Go string can not.
const document = `# One

~~~sh
kubectl get pods \
  --all-namespaces

cat > file <<'EOF'
resources: [a]   # "b
EOF
echo 'one
two'             # three
# a comment
make it          # so
~~~

## Two

- in a list:

  ~~~console
  $ kubectl get nodes   # all of them
  NAME  STATUS
  $ date
  ~~~

~~~
just text
~~~
`

func blocks(t *testing.T, text string) []Block {
	t.Helper()
	out, err := Document{Path: "a.md", Text: strings.ReplaceAll(text, "~~~", fence)}.Blocks()
	require.NoError(t, err)
	return out
}

func texts(t *testing.T, b Block) []string {
	t.Helper()
	commands, err := b.Commands()
	require.NoError(t, err)
	var out []string
	for _, c := range commands {
		out = append(out, c.Text)
	}
	return out
}

func TestBlocksAndCommands(t *testing.T) {
	blocks := blocks(t, document)
	require.Len(t, blocks, 3)
	require.Equal(
		t, []string{"sh", "console", ""}, []string{blocks[0].Language, blocks[1].Language, blocks[2].Language},
	)
	require.Equal(t, []string{"One", "Two", "Two"}, []string{blocks[0].Section, blocks[1].Section, blocks[2].Section})
	require.Equal(t, "just text\n", blocks[2].Text)
	require.False(t, blocks[2].Shell())

	require.Equal(t, []string{
		"kubectl get pods \\\n  --all-namespaces", "cat > file <<'EOF'\nresources: [a]   # \"b\nEOF",
		"echo 'one\ntwo'             # three", "make it",
	}, texts(t, blocks[0]))
	require.Equal(t, []string{"kubectl get nodes", "date"}, texts(t, blocks[1]), "what they print is left out")

	commands, err := blocks[0].Commands()
	require.NoError(t, err)
	require.Equal(t, Command{Path: "a.md", Line: 13, Text: "make it"}, commands[3])
}

func TestBlocksThatAreWrong(t *testing.T) {
	for want, text := range map[string]string{
		"a.md:2: a block is not closed":           "x\n~~~sh\nmake\n",
		"a.md:3: a block opens inside of another": "~~~sh\nmake\n~~~sh\n~~~\n",
	} {
		_, err := Document{Path: "a.md", Text: strings.ReplaceAll(text, "~~~", fence)}.Blocks()
		require.EqualError(t, err, want)
	}
	_, err := blocks(t, "~~~sh\necho 'a\n~~~\n")[0].Commands()
	require.ErrorContains(t, err, "a.md:2: the command does not end in its block")
}

func TestAllDocumentsAreRead(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{
		"README.md", "docs/b.md", "docs/adr/0001.md", "manifests/charts/c/README.md", "docs/images/x.svg",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		text := strings.ReplaceAll("~~~sh\nmake "+path+"\n~~~\n~~~console\n$ date\n~~~\n", "~~~", fence)
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	commands, err := All(root)
	require.NoError(t, err)
	var out []string
	for _, c := range commands["sh"] {
		out = append(out, c.Text)
	}
	require.Equal(t, []string{"make README.md", "make docs/b.md", "make manifests/charts/c/README.md"}, out)
	require.Len(t, commands["console"], 3)
}
