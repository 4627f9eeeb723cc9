package show

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func render(t *testing.T, style Style, fill func(*Page)) string {
	t.Helper()
	p := NewPage(style)
	fill(p)
	var out bytes.Buffer
	require.NoError(t, p.Flush(&out))
	return out.String()
}

func TestTableTurnsIntoAList(t *testing.T) {
	fill := func(p *Page) {
		p.Table([]string{"NAME", "ZONES"}, [][]Cell{{C("web"), C("a 1, b 2")}, {C("über"), {}}})
	}
	require.Equal(t, "  NAME  ZONES\n  web   a 1, b 2\n  über\n", render(t, Style{}, fill))
	require.Equal(t, "  NAME  ZONES\n  web   a 1, b 2\n  über\n", render(t, Style{Width: 16}, fill))
	require.Equal(t, "  web\n    zones: a 1, b 2\n  über\n", render(t, Style{Width: 15}, fill))
}

func TestColourIsAskedFor(t *testing.T) {
	fill := func(p *Page) { p.Para(2, Red, "broken") }
	require.Equal(t, "  broken\n", render(t, Style{}, fill))
	require.Equal(t, "  \x1b[31mbroken\x1b[0m\n", render(t, Style{Color: true}, fill))
}

// TestEscapesDoNotReachTheTerminal: whoever may write an event does not write to the terminal of who reads it.
func TestEscapesDoNotReachTheTerminal(t *testing.T) {
	const hostile = "a\x1b]0;owned\x07\x1b[2J\x9b\u009b1mb\r\nc\td\u202ee"
	for name, fill := range map[string]func(*Page){
		"a title":         func(p *Page) { p.Title("%s", hostile) },
		"a paragraph":     func(p *Page) { p.Para(2, Plain, "%s", hostile) },
		"an item":         func(p *Page) { p.Item(2, Red, "%s", hostile) },
		"a note":          func(p *Page) { p.Notes(2, []string{hostile}) },
		"a cell":          func(p *Page) { p.Table([]string{"NAME"}, [][]Cell{{{Text: hostile}}}) },
		"a cell of a row": func(p *Page) { p.Table([]string{"NAME"}, [][]Cell{Row(hostile)}) },
		"a section": func(p *Page) {
			Section(p, "T", []string{"N"}, []string{hostile}, func(s *string) []Cell { return Row(*s) })
		},
		"a list in place of one": func(p *Page) { p.Table([]string{"NAME", "WHAT"}, [][]Cell{Row("x", hostile), Row(hostile, "y")}) },
	} {
		for _, style := range []Style{{}, {Width: 20}} {
			text := render(t, style, fill)
			require.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unprintable(r) }), "%s: %q", name, text)
			require.Contains(t, text, "^[]0;owned^G^[[2J", name)
		}
	}
	require.Equal(t, `a^[[2J^?\u009b b \u202e é 日`, Printable("a\x1b[2J\x7f\u009b\tb\n\u202e é 日"))
}

func TestTitlesAreWrapped(t *testing.T) {
	got := render(t, Style{Width: 24, Color: true}, func(p *Page) { p.Title("Reservations (slots used/held/desired)") })
	require.Equal(t, "\x1b[1mReservations (slots\x1b[0m\n\x1b[1mused/held/desired)\x1b[0m\n", got)
}

func TestItemsAreIndented(t *testing.T) {
	got := render(t, Style{Width: 24}, func(p *Page) { p.Item(2, Plain, "one two three four five six") })
	require.Equal(t, "  - one two three four\n    five six\n", got)
}

func TestWrapLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zü]{1,12}`), 1, 20).Draw(t, "words")
		width := rapid.IntRange(12, 30).Draw(t, "width")
		text := ""
		for i, w := range words {
			if i > 0 {
				text += " "
			}
			text += w
		}
		joined := ""
		for i, line := range wrapText(text, width) {
			if utf8.RuneCountInString(line) > width {
				t.Fatalf("%q is wider than %d", line, width)
			}
			if i > 0 {
				joined += " "
			}
			joined += line
		}
		if joined != text {
			t.Fatalf("%q became %q", text, joined)
		}
	})
}

func TestFigures(t *testing.T) {
	require.Equal(t, "-", Percent(1, 0))
	require.Equal(t, "33%", Percent(1, 3))
	require.Equal(t, "67%", Percent(2, 3))
	require.Equal(t, "1 node", Plural(1, "node"))
	require.Equal(t, "0 nodes", Plural(0, "node"))
	require.Equal(t, "2 policies", Plural(2, "policy"))
}

func TestObjects(t *testing.T) {
	v := map[string]any{"b": 1, "a": []string{"x"}}
	var out bytes.Buffer
	require.NoError(t, Object(&out, JSON, "", v))
	require.JSONEq(t, `{"a": ["x"], "b": 1}`, out.String())
	out.Reset()
	require.NoError(t, Object(&out, YAML, "Thing", v))
	require.Equal(t, "a:\n- x\napiVersion: cli.zonewise.dev/v1alpha1\nb: 1\nkind: Thing\n", out.String())
}

func TestBar(t *testing.T) {
	require.Equal(t, "[##########----------] 5/10", Bar(5, 10))
	require.Equal(t, "[####################] 10/10", Bar(10, 10))
	require.Equal(t, "[####################] 12/10", Bar(12, 10))
	require.Equal(t, "[####################] 0/0", Bar(0, 0))
}
