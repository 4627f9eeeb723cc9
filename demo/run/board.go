package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"

	page "zonewise.dev/cmd/zonewise/board"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/demo/check"
	"zonewise.dev/sim"
)

// board is the result of the demo. It marshals to JSON.
type board struct {
	Version string         `json:"version"`
	Status  *status.Report `json:"status"`
	Moments []moment       `json:"moments"`
	Phases  []phase        `json:"phases"`
	// Median and Most are the median and the 99th percentile of the seconds from created to bound.
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
	// Bound is how many pods were bound in it.
	Bound int `json:"bound"`
}

// broken returns the checks that failed, with the moment in their names.
func (b *board) broken() []check.Check {
	var out []check.Check
	for _, m := range b.Moments {
		for _, c := range check.Broken(m.Checks) {
			c.Name += ", " + m.Title
			out = append(out, c)
		}
	}
	return out
}

// close writes the board, and the report.
func (d *demo) close(ctx context.Context) error {
	c, err := snapshot.NewClient(d.cluster.Config)
	if err != nil {
		return err
	}
	s, err := snapshot.Read(ctx, c, nil)
	if err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	counted := census.Take(s)
	b := &d.board
	b.Version, b.Status = version.Get().String(), status.Build(counted, "")
	median, most := d.seen.waits()
	b.Median, b.Most = median.Seconds(), most.Seconds()
	if d.opts.Format == JSON {
		encoder := json.NewEncoder(d.opts.Out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(b)
	} else {
		d.progress.say("")
		err = b.text(d.opts.Out, show.Style{Color: d.opts.ColorOut, Width: d.opts.OutWidth})
	}
	if err != nil {
		return fmt.Errorf("write the board: %w", err)
	}
	if d.opts.Report == "" {
		return nil
	}
	path, err := d.save(ctx, counted)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	d.progress.say("\nThe board as a page is in %s", path)
	return nil
}

// save writes the page of the cluster with the checks, and returns its path.
func (d *demo) save(ctx context.Context, counted *census.Census) (string, error) {
	path, err := filepath.Abs(d.opts.Report)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	s, err := sim.New(ctx, counted.Snapshot.Objects(), sim.Options{Now: counted.Now, NotInstalled: counted.Snapshot.NotInstalled()})
	if err != nil {
		return "", err
	}
	defer s.Close()
	p, err := page.Build(ctx, counted, s, page.Options{Cluster: clusterName, Command: "zonewise"})
	if err != nil {
		return "", err
	}
	p.Report = d.board.report()
	return path, p.WriteFile(path)
}

// report returns the checks and the phases, for the page.
func (b *board) report() *page.Report {
	r := &page.Report{Title: "The demo's closing board"}
	for _, m := range b.Moments {
		for _, c := range m.Checks {
			r.Checks = append(r.Checks, page.Check{Name: c.Name + ", " + m.Title, Scope: c.Evidence, Violations: c.Violations})
		}
	}
	for _, p := range b.Phases {
		r.Facts = append(r.Facts, page.Fact{Name: p.Name, Value: p.words()})
	}
	r.Facts = append(r.Facts, page.Fact{Name: "from created to bound", Value: b.waits()}, page.Fact{Name: "Version", Value: b.Version})
	return r
}

func (p phase) words() string {
	text := fmt.Sprintf("%.1f s", p.Seconds)
	if p.Bound > 0 {
		text += fmt.Sprintf(", %d pods bound", p.Bound)
	}
	return text
}

func (b *board) waits() string {
	return fmt.Sprintf("median %.1f s, 99%% within %.1f s", b.Median, b.Most)
}

// text writes the board as text: what "zonewise status" says, and the checks at each moment.
func (b *board) text(w io.Writer, style show.Style) error {
	p := show.NewPage(style)
	p.Title("THE DEMO'S CLOSING BOARD")
	p.Para(0, show.Plain, "zonewise-scheduler %s; the cluster as \"zonewise status\" shows it:", b.Version)
	if err := p.Flush(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := b.Status.Text(w, style); err != nil {
		return err
	}
	p = show.NewPage(style)
	for _, m := range b.Moments {
		p.WriteByte('\n')
		p.Para(0, show.Bold, "Checks %s", m.Title)
		for _, c := range m.Checks {
			mark, text := p.Paint(show.Green, "ok    "), c.Name+": "+c.Evidence
			if !c.OK() {
				mark = p.Paint(show.Red, "BROKEN")
			}
			p.WriteString("  " + mark + " " + text + "\n")
			for _, v := range c.Violations {
				p.Item(9, show.Red, "%s", v)
			}
		}
	}
	p.Title("Phases")
	var rows [][]show.Cell
	total := phase{Name: "together"}
	for _, ph := range b.Phases {
		rows = append(rows, []show.Cell{show.C("%s", ph.Name), show.C("%.1fs", ph.Seconds), show.C("%d", ph.Bound)})
		total.Seconds += ph.Seconds
		total.Bound += ph.Bound
	}
	rows = append(rows, []show.Cell{show.C("%s", total.Name), show.C("%.1fs", total.Seconds), show.C("%d", total.Bound)})
	p.Table([]string{"PHASE", "TIME", "PODS BOUND"}, rows)
	p.Para(2, show.Plain, "from created to bound: %s", b.waits())
	return p.Flush(w)
}

// displaced returns the pods of a service that were created after the zone was lost.
func displaced(lives map[types.UID]life, app, role string, refused map[types.UID][]string) []check.Displaced {
	var out []check.Displaced
	for uid, l := range lives {
		if l.app != app || l.role != role {
			continue
		}
		one := check.Displaced{Name: l.name, Refused: refused[uid], Bound: !l.bound.IsZero(), Took: l.bound.Sub(l.created)}
		if l.refused != "" {
			one.Refused = append(one.Refused, l.refused)
		}
		if !one.Bound {
			one.Took = time.Since(l.created)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b check.Displaced) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
