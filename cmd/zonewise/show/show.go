package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// The formats.
const (
	Table = "table"
	Wide  = "wide" // a table with more
	JSON  = "json"
	YAML  = "yaml"
	Name  = "name" // a TYPE/NAME on each line
)

// Formats are those of reports; some have others, too.
var Formats = []string{Table, JSON, YAML}

// apiVersion is that of reports in JSON and YAML.
const apiVersion = "cli.zonewise.dev/v1alpha1"

// Style is how text looks.
type Style struct {
	// Color turns terminal colours on.
	Color bool
	// Width is that of the terminal; 0 means that lines may have any length.
	Width int
}

// Color is a terminal colour.
type Color string

// The colours.
const (
	Plain  Color = ""
	Bold   Color = "1"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
	Faint  Color = "2"
)

// Cell is a piece of text with a colour.
type Cell struct {
	Text  string
	Color Color
}

// C is a cell without colour.
func C(format string, args ...any) Cell { return Cell{Text: fmt.Sprintf(format, args...)} }

// ColorIf returns the cell in another colour if that applies.
func (c Cell) ColorIf(applies bool, color Color) Cell {
	if applies {
		c.Color = color
	}
	return c
}

// Row makes cells of values, which may be cells already.
func Row(values ...any) []Cell {
	row := make([]Cell, len(values))
	for i, value := range values {
		cell, ok := value.(Cell)
		if !ok {
			cell.Text = fmt.Sprint(value)
		}
		row[i] = cell
	}
	return row
}

// Page collects text.
type Page struct {
	strings.Builder
	style Style
}

// NewPage returns an empty page.
func NewPage(style Style) *Page { return &Page{style: style} }

// Paint colours text, if the page has colours.
func (p *Page) Paint(color Color, text string) string {
	if !p.style.Color || color == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(color) + "m" + text + "\x1b[0m"
}

// Title begins a section.
func (p *Page) Title(format string, args ...any) {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
	p.Para(0, Bold, format, args...)
}

// Para writes text, wrapped to the width, with an indentation.
func (p *Page) Para(indent int, color Color, format string, args ...any) {
	p.writeLines(indent, "", 0, color, fmt.Sprintf(format, args...))
}

// Item writes text after a dash, with its further lines indented.
func (p *Page) Item(indent int, color Color, format string, args ...any) {
	p.writeLines(indent, "- ", 2, color, fmt.Sprintf(format, args...))
}

// Marked writes text after a mark in a color of its own, with its further lines indented.
func (p *Page) Marked(indent int, mark string, markColor Color, format string, args ...any) {
	p.writeLines(indent, p.Paint(markColor, mark)+" ", len(mark)+1, Plain, fmt.Sprintf(format, args...))
}

// writeLines writes text, made printable and wrapped to the width. The first line begins with lead, which is so many
// columns wide, the others with as many spaces.
func (p *Page) writeLines(indent int, lead string, leadWidth int, color Color, text string) {
	indentation, width := strings.Repeat(" ", indent), p.style.Width
	if width > 0 {
		width = max(20, width-indent-leadWidth)
	}
	for _, line := range wrapText(Printable(text), width) {
		p.WriteString(indentation + lead + p.Paint(color, line) + "\n")
		lead = strings.Repeat(" ", leadWidth)
	}
}

// Notes writes what a report lacks.
func (p *Page) Notes(indent int, notes []string) {
	for _, note := range notes {
		p.Para(indent, Yellow, "note: %s", note)
	}
}

// wrapText breaks text at spaces. A word that is longer than the width stays whole: it may be copied.
func wrapText(text string, width int) []string {
	if width == 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// Table writes rows below their column names. If the table is wider than the terminal, each row becomes a list of its
// columns. Their text is made printable.
func (p *Page) Table(columns []string, rows [][]Cell) {
	for _, row := range rows {
		for i := range row {
			row[i].Text = Printable(row[i].Text)
		}
	}
	widths := make([]int, len(columns))
	for i, name := range columns {
		widths[i] = utf8.RuneCountInString(name)
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	total := 2 * len(columns) // indentation and gaps
	for _, w := range widths {
		total += w
	}
	if p.style.Width > 0 && total > p.style.Width {
		p.writeList(columns, rows)
		return
	}
	heading := make([]Cell, len(columns))
	for i, name := range columns {
		heading[i] = Cell{name, Faint}
	}
	p.writeRow(heading, widths)
	for _, row := range rows {
		p.writeRow(row, widths)
	}
}

// Section writes a title and a table with a row for each object. Without objects there is neither.
func Section[T any](p *Page, title string, columns []string, objects []T, row func(*T) []Cell) {
	if len(objects) == 0 {
		return
	}
	p.Title("%s", title)
	rows := make([][]Cell, len(objects))
	for i := range objects {
		rows[i] = row(&objects[i])
	}
	p.Table(columns, rows)
}

func (p *Page) writeRow(cells []Cell, widths []int) {
	p.WriteString(" ")
	for i, cell := range cells {
		p.WriteString(" " + p.Paint(cell.Color, cell.Text))
		if i < len(cells)-1 {
			p.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.Text)+1))
		}
	}
	p.WriteByte('\n')
}

// writeList writes each row as a block, its first column as the heading.
func (p *Page) writeList(columns []string, rows [][]Cell) {
	for _, row := range rows {
		p.WriteString("  " + p.Paint(Bold, row[0].Text) + "\n")
		for i, cell := range row[1:] {
			if cell.Text != "" {
				p.Para(4, cell.Color, "%s: %s", strings.ToLower(columns[i+1]), cell.Text)
			}
		}
	}
}

// Flush writes the page. Spaces at the ends of lines are left out.
func (p *Page) Flush(w io.Writer) error {
	var out strings.Builder
	for line := range strings.Lines(p.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Object writes a value, which is a struct with fields, as JSON or YAML. A kind, if given, is put before them with the
// version of reports.
func Object(w io.Writer, format, kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if kind != "" {
		data = append(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, apiVersion, kind), data[1:]...)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return err
	}
	data = indented.Bytes()
	if format == YAML {
		data, err = yaml.JSONToYAML(data)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	_, err = fmt.Fprintln(w, string(data))
	return err
}

// Percent returns used as a share of all, or "-" if all is 0.
func Percent(used, all int64) string {
	if all <= 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", (used*100+all/2)/all)
}

// Plural returns a number with its noun.
func Plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Bar draws done of all, with 20 cells and both numbers.
func Bar(done, all int) string {
	const cells = 20
	filled := cells
	if all > 0 {
		filled = min(cells, done*cells/all)
	}
	return fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", filled), strings.Repeat("-", cells-filled), done, all)
}
