package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/component-base/version"

	page "zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
)

// board is the result of the demo. It marshals to JSON.
type board struct {
	Version string `json:"version"`
	// Status is the cluster's at the last moment.
	Status  *status.Report `json:"status"`
	Moments []moment       `json:"moments"`
	Phases  []phase        `json:"phases"`
	// Median and Most are the median and the 99th percentile of the seconds from the scheduling queue to a node.
	Median float64 `json:"medianSeconds"`
	Most   float64 `json:"p99Seconds"`
}

// moment has the checks at one moment.
type moment struct {
	Title  string        `json:"title"`
	Checks []check.Check `json:"checks"`
}

// phase is a part of the demo.
type phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// ErrBroken says that checks on the board have failed.
var ErrBroken = errors.New("checks do not hold")

// brokenError returns an ErrBroken that names the checks that failed, nil if there are none.
func (b *board) brokenError() error {
	var names []string
	for _, c := range check.Broken(b.allChecks()) {
		names = append(names, fmt.Sprintf("%q: %s", c.Name, strings.Join(c.Violations, "; ")))
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrBroken, strings.Join(names, ", "))
}

// allChecks returns all checks, with the moment in their names.
func (b *board) allChecks() []check.Check {
	var out []check.Check
	for _, m := range b.Moments {
		for _, c := range m.Checks {
			c.Name += ", " + m.Title
			out = append(out, c)
		}
	}
	return out
}

// writeBoard writes the board, and the page with its checks.
func (d *demo) writeBoard() error {
	b := &d.board
	b.Version = version.Get().String()
	var err error
	if d.JSON {
		err = show.Object(d.Out, show.JSON, "", b)
	} else {
		d.printLine("")
		err = b.writeText(d.Out, show.StyleOf(d.Out))
	}
	if err != nil {
		return fmt.Errorf("write the board: %w", err)
	}
	if d.Report == "" {
		return nil
	}
	path, err := d.writePage()
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	d.printLine("\nThe board as a page is in %s", path)
	return nil
}

// writePage writes the page of the cluster with the checks, and returns its path.
func (d *demo) writePage() (string, error) {
	path, err := filepath.Abs(d.Report)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	p := d.page.Page()
	p.Report = d.board.pageReport()
	return path, p.WriteFile(path)
}

// pageReport returns the checks and the phases, for the page.
func (b *board) pageReport() *page.CheckReport {
	r := &page.CheckReport{Title: "The demo's closing board"}
	for _, c := range b.allChecks() {
		r.Checks = append(r.Checks, page.Check{Name: c.Name, Scope: c.Evidence, Violations: c.Violations})
	}
	for _, p := range b.Phases {
		r.Facts = append(r.Facts, page.Fact{Name: p.Name, Value: fmt.Sprintf("%.1f s", p.Seconds)})
	}
	r.Facts = append(r.Facts, page.Fact{Name: "from the queue to a node", Value: b.waitTimes()}, page.Fact{Name: "Version", Value: b.Version})
	return r
}

func (b *board) waitTimes() string {
	return fmt.Sprintf("median %.1f s, 99%% within %.1f s", b.Median, b.Most)
}

// writeText writes the board as text: what "zonewise status" says, and the checks at each moment.
func (b *board) writeText(w io.Writer, style show.Style) error {
	p := show.NewPage(style)
	p.Title("THE DEMO'S CLOSING BOARD")
	p.Para(0, show.Plain, "zonewise-scheduler %s; the cluster as \"zonewise status\" shows it:", b.Version)
	p.WriteByte('\n')
	if err := p.Flush(w); err != nil {
		return err
	}
	if err := b.Status.Text(w, style, false); err != nil {
		return err
	}
	p = show.NewPage(style)
	for _, m := range b.Moments {
		p.WriteByte('\n')
		p.Para(0, show.Bold, "Checks %s", m.Title)
		for _, c := range m.Checks {
			mark, color := "ok    ", show.Green
			if !c.OK() {
				mark, color = "BROKEN", show.Red
			}
			p.Marked(2, mark, color, "%s: %s", c.Name, c.Evidence)
			for _, v := range c.Violations {
				p.Item(9, show.Red, "%s", v)
			}
		}
	}
	p.Title("Phases")
	var rows [][]show.Cell
	total := phase{Name: "together"}
	for _, ph := range b.Phases {
		total.Seconds += ph.Seconds
	}
	for _, ph := range append(b.Phases, total) {
		rows = append(rows, []show.Cell{show.C("%s", ph.Name), show.C("%.1fs", ph.Seconds)})
	}
	p.Table([]string{"PHASE", "TIME"}, rows)
	p.Para(2, show.Plain, "from the queue to a node: %s", b.waitTimes())
	return p.Flush(w)
}
