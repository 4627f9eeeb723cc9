package main

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels: of a character of the font, of a line, and of the margin.
const (
	charWidth  = 7.83
	lineHeight = 17
	margin     = 18
)

// style is that of all pictures, dark on purpose: a terminal. The classes are the colours that the commands use.
const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#d6dde6}` +
	`.prompt,.bold{fill:#8cc8ff;font-weight:600}.faint{fill:#8b98a8}.red{fill:#ff8a80}.green{fill:#7ee2a8}.yellow{fill:#ffd479}`

// classes are the graphic renditions that the commands use, by their number.
var classes = map[string]string{"1": "bold", "2": "faint", "31": "red", "32": "green", "33": "yellow"}

// span is a piece of a line in one rendition, plain when its class is empty.
type span struct {
	class, text string
}

// parse reads what a terminal was sent. A line that was written anew is the last one that was written.
func parse(sent string) ([][]span, error) {
	var lines [][]span
	for line := range strings.SplitSeq(strings.ReplaceAll(sent, "\r\n", "\n"), "\n") {
		if i := strings.LastIndex(line, "\r"); i >= 0 {
			line = line[i+1:]
		}
		spans, err := parseLine(line)
		if err != nil {
			return nil, err
		}
		lines = append(lines, spans)
	}
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines, nil
}

func parseLine(line string) ([]span, error) {
	var spans []span
	class := ""
	for line != "" {
		text, rest, escaped := strings.Cut(line, "\x1b[")
		if text != "" {
			spans = append(spans, span{class, text})
		}
		if !escaped {
			break
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return nil, fmt.Errorf("a sequence without an end: %q", rest)
		}
		code, kind := rest[:end], rest[end]
		line = rest[end+1:]
		known := true
		switch {
		case kind == 'K':
			spans = nil // the line is deleted
		case kind == 'm' && (code == "" || code == "0"):
			class = ""
		case kind == 'm':
			class, known = classes[code]
		default:
			known = false
		}
		if !known {
			return nil, fmt.Errorf("a sequence that no picture shows: %q", code+string(kind))
		}
	}
	return spans, nil
}

// svg draws what a command has sent to a terminal, below the command. label says to a screen reader what there is to see.
func svg(label, command, sent string) (string, error) {
	lines, err := parse(sent)
	if err != nil {
		return "", err
	}
	if command != "" {
		lines = append([][]span{{{"prompt", "$ " + command}}}, lines...)
	}
	columns := 0
	for _, spans := range lines {
		n := 0
		for _, s := range spans {
			n += utf8.RuneCountInString(s.text)
		}
		columns = max(columns, n)
	}
	width, height := int(float64(columns)*charWidth)+2*margin, len(lines)*lineHeight+2*margin-5
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", width, height, width, height, html.EscapeString(label))
	fmt.Fprintf(&b, "<style>%s</style>\n<rect width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#10161d\"/>\n", style, width, height)
	for i, spans := range lines {
		if len(spans) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">`, margin, margin+12+i*lineHeight)
		for _, s := range spans {
			if s.class == "" {
				b.WriteString(html.EscapeString(s.text))
			} else {
				fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, s.class, html.EscapeString(s.text))
			}
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}
