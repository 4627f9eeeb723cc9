package board

import (
	"fmt"
	"slices"
	"strings"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
)

// The most that a page shows. Together these limit its size.
const (
	mostColumns   = 16
	mostCards     = 90
	mostCells     = 2000
	mostPodsOf    = 12
	mostRows      = 60
	mostWaiting   = 20
	mostNotes     = 50 // more than there are kinds
	mostText      = 600
	mostNext      = 8
	mostSurvivals = 10
	mostResources = 6
)

// Options say what to show.
type Options struct {
	// Cluster says which cluster it is.
	Cluster string
	// Namespace restricts policies, workloads, gangs and waiting pods; empty shows all.
	Namespace string
	// Command is how the reader runs the command line on this cluster, such as "zonewise --context=prod".
	Command string
}

// Build makes the page of a cluster.
func Build(c *census.Census, opts Options) *Page {
	report := status.Build(c, opts.Namespace)
	p := &Page{Cluster: opts.Cluster, At: c.Now}
	for _, note := range report.Notes {
		p.addNote(note)
	}
	if len(c.Nodes) == 0 {
		p.addNote("the cluster has no nodes")
	}
	p.Zones = zonesViewOf(c, report.Reservations)
	for _, z := range p.Zones.Zones {
		p.Columns = append(p.Columns, z.Name)
	}
	b := &builder{Census: c, opts: opts, page: p}
	b.addSurvivals(report.Survivals)
	b.addPolicies(report.Policies)
	b.addReservations(report.Reservations)
	b.addWorkloads()
	b.rebalances(report.Rebalances)
	p.addSummary(report)
	b.addGangs(report.Gangs)
	b.addWaiting()
	return p
}

// builder is what the parts of Build share.
type builder struct {
	*census.Census
	opts Options
	page *Page
}

// addNote adds a remark.
func (p *Page) addNote(text string) {
	if len(p.Notes) < mostNotes {
		p.Notes = append(p.Notes, clipText(text))
	}
}

// addSummary adds the tiles with the most important numbers, and says the same in a sentence.
func (p *Page) addSummary(r *status.Report) {
	nodes, ready, pods, dead := 0, 0, 0, 0
	for _, z := range r.Zones {
		nodes += z.Nodes
		ready += z.Ready
		pods += z.Pods
		if z.Ready == 0 {
			dead++
		}
	}
	unused, desired := 0, 0
	for i := range r.Reservations {
		unused += int(max(0, r.Reservations[i].Held-r.Reservations[i].Used))
		desired += int(r.Reservations[i].Desired)
	}
	unsatisfied := countNotOK(r.Policies, func(x *status.Policy) string { return x.State })
	incomplete := countNotOK(r.Reservations, func(x *status.Reservation) string { return x.State })
	uncertain := countNotOK(r.Survivals, func(x *status.Survival) string { return x.State })
	partial := countNotOK(r.Gangs, func(x *status.Gang) string { return x.State })
	slots := "of " + number(desired) + " wanted"
	var summary []string
	for _, t := range []struct {
		label, noun string
		n           int
		good, wrong string
		wrongs      int
		tone        Tone
		none        bool
	}{
		{"Zones", "zone", len(r.Zones), "all with ready nodes", "%d without a ready node", dead, Bad, false},
		{"Nodes", "node", nodes, "all ready", "%d not ready", nodes - ready, Mild, false},
		{"Pods", "pod", pods, "none waits", "%d waiting", r.Waiting, Mild, false},
		{"Policies", "policy", len(r.Policies), "all satisfied", "%d not satisfied", unsatisfied, Mild, len(r.Policies) == 0},
		{"Slots held, unused", "unused slot", unused, slots, slots + ", %d not complete", incomplete, Mild, len(r.Reservations) == 0},
		{"ZoneSurvivals", "ZoneSurvival", len(r.Survivals), "all survive", "%d False or Unknown", uncertain, Mild, len(r.Survivals) == 0},
		{"Gangs", "gang", len(r.Gangs), "all whole", "%d waiting", partial, Mild, len(r.Gangs) == 0},
	} {
		tile := Tile{Label: t.label, Value: number(t.n), Detail: t.good, Tone: Good}
		switch {
		case t.none:
			tile.Detail, tile.Tone = "none", Plain
		case t.wrongs > 0:
			tile.Detail, tile.Tone = fmt.Sprintf(t.wrong, t.wrongs), t.tone
		}
		p.Tiles = append(p.Tiles, tile)
		summary = append(summary, fmt.Sprintf("%s (%s)", show.Plural(t.n, t.noun), tile.Detail))
	}
	p.Summary = strings.Join(summary, ", ") + "."
}

// countNotOK counts the objects whose state is not OK.
func countNotOK[T any](all []T, state func(*T) string) (n int) {
	for i := range all {
		if state(&all[i]) != status.OK {
			n++
		}
	}
	return n
}

// stateBadge shows a state of package status.
func stateBadge(state string) Badge {
	b := Badge{Text: state, Tone: Mild}
	switch status.StateCell(state).Color {
	case show.Green:
		b.Tone = Good
	case show.Red:
		b.Tone = Bad
	}
	return b
}

// compareTones sorts bad states before good ones.
func compareTones(a, b Badge) int {
	order := []Tone{Bad, Mild, Good}
	return slices.Index(order, a.Tone) - slices.Index(order, b.Tone)
}

// firstRows returns the first rows, and how many are left out.
func firstRows[T any](rows []T, most int) ([]T, int) {
	if len(rows) <= most {
		return rows, 0
	}
	return slices.Clip(rows[:most]), len(rows) - most
}

// clipText shortens text that users or plugins wrote.
func clipText(text string) string {
	n, last := 0, 0
	for at := range text {
		switch n++; n {
		case mostText:
			last = at
		case mostText + 1:
			return text[:last] + "…"
		}
	}
	return text
}

// number writes a number with its thousands separated.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:] // a narrow space that does not break
	}
	return text
}

// countOf is show.Plural with separated thousands.
func countOf(n int, noun string) string {
	return strings.Replace(show.Plural(n, noun), fmt.Sprint(n), number(n), 1)
}

// percent returns a share of a whole, 0 to 100.
func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, (part*100+whole/2)/whole))
}
