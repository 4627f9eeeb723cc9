package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Guides are the documents whose blocks in the language "sh" a test under test/manifests runs, in order, against an API
// server.
var Guides = []string{"docs/install.md", "docs/operations.md", "docs/zonespread.md"}

// patterns match the documents, from the root of the repository. Decisions (docs/adr) are history, and so are their
// commands.
var patterns = []string{"*.md", "docs/*.md", "manifests/charts/*/*.md"}

// Document is a file of documentation.
type Document struct {
	// Path is that of the file, from the root of the repository, with slashes.
	Path string
	Text string
}

// Block is a fenced block of a document.
type Block struct {
	// Path is the document's, Line the number of the line after the opening fence.
	Path string
	Line int
	// Language is the word after the opening fence, or empty.
	Language string
	// Section is the heading above it.
	Section string
	// Text is the block's, without the indentation of its fence.
	Text string
}

// Command is a command of a block, of one line or several.
type Command struct {
	Path string
	Line int
	// Text is as written, without the prompt, a trailing comment, and the end of the line.
	Text string
}

// Read returns all documents of the repository at root, sorted by path.
func Read(root string) ([]Document, error) {
	var out []Document
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			path, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			out = append(out, Document{Path: filepath.ToSlash(path), Text: string(text)})
		}
	}
	slices.SortFunc(out, func(a, b Document) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

const fence = "```"

// Blocks returns the fenced blocks of a document in order.
func (d Document) Blocks() ([]Block, error) {
	var (
		out     []Block
		open    *Block
		indent  string
		section string
		number  int
	)
	for line := range strings.Lines(d.Text) {
		number++
		bare := strings.TrimLeft(line, " ")
		language, isFence := strings.CutPrefix(bare, fence)
		switch {
		case isFence && open == nil:
			indent = line[:len(line)-len(bare)]
			open = &Block{Path: d.Path, Line: number + 1, Language: strings.TrimSpace(language), Section: section}
		case isFence && strings.TrimSpace(language) == "":
			out = append(out, *open)
			open = nil
		case isFence:
			return nil, fmt.Errorf("%s:%d: a block opens inside of another", d.Path, number)
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: a block is not closed", d.Path, open.Line-1)
	}
	return out, nil
}

// Shell reports whether the block is of commands for a shell.
func (b Block) Shell() bool { return b.Language == "sh" || b.Language == "console" }

// Commands returns the commands of a block for a shell. If a line of the block begins with the prompt "$ ", lines without it are
// output.
func (b Block) Commands() ([]Command, error) {
	var out []Command
	prompts := false
	for line := range strings.Lines(b.Text) {
		prompts = prompts || strings.HasPrefix(line, "$ ")
	}
	lines := strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line, prompted := strings.CutPrefix(lines[i], "$ ")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || prompts && !prompted {
			continue
		}
		command := Command{Path: b.Path, Line: b.Line + i, Text: line}
		for !complete(command.Text) {
			i++
			if i == len(lines) {
				return nil, fmt.Errorf("%s:%d: the command does not end in its block: %s", b.Path, command.Line, command.Text)
			}
			command.Text += "\n" + lines[i]
		}
		if !strings.Contains(command.Text, "\n") {
			command.Text = withoutComment(command.Text)
		}
		out = append(out, command)
	}
	return out, nil
}

// complete reports whether a shell would run the text, or wait for more: for the next line after a backslash, the other
// quote, or the end of a here-document.
func complete(text string) bool {
	if strings.HasSuffix(text, `\`) {
		return false
	}
	first, rest, _ := strings.Cut(text, "\n")
	if _, mark, found := strings.Cut(first, "<<'"); found {
		mark, _, _ = strings.Cut(mark, "'")
		return strings.HasSuffix("\n"+rest, "\n"+mark)
	}
	var quote rune
	for _, r := range text {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == 0 && r == '#':
			return true // what follows is a comment
		}
	}
	return quote == 0
}

// withoutComment cuts off a comment, which follows at least two spaces.
func withoutComment(line string) string {
	if before, _, found := strings.Cut(line, "  #"); found {
		line = before
	}
	return strings.TrimRight(line, " ")
}

// All returns the commands of all blocks for a shell in the documents of the repository at root, by language.
func All(root string) (map[string][]Command, error) {
	documents, err := Read(root)
	if err != nil {
		return nil, err
	}
	out := map[string][]Command{}
	for _, d := range documents {
		blocks, err := d.Blocks()
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			if !b.Shell() {
				continue
			}
			commands, err := b.Commands()
			if err != nil {
				return nil, err
			}
			out[b.Language] = append(out[b.Language], commands...)
		}
	}
	return out, nil
}
