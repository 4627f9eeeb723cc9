package board

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim"
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
	mostObstacles = 4
	mostNext      = 8
)

// Options say what to show.
type Options struct {
	// Cluster says which cluster it is.
	Cluster string
	// Namespace restricts policies, workloads, gangs and waiting pods; empty shows all.
	Namespace string
	// Command is what the program is called.
	Command string
}

// Build makes the page of a cluster. The scheduler of sim, a copy of the cluster, says why pods wait. Build leaves sim
// unchanged, except for its time.
func Build(ctx context.Context, c *census.Census, s *sim.Sim, opts Options) (*Page, error) {
	report := status.Build(c, opts.Namespace)
	p := &Page{Cluster: opts.Cluster, At: c.Now}
	for _, note := range report.Notes {
		p.note(note)
	}
	if len(c.Nodes) == 0 {
		p.note("the cluster has no nodes")
	}
	p.Zones = zonesOf(c)
	for _, z := range p.Zones.Zones {
		p.Columns = append(p.Columns, z.Name)
	}
	b := &builder{Census: c, sim: s, opts: opts, page: p}
	b.policies(report.Policies)
	b.reservations(report.Reservations)
	if err := b.gangs(ctx, report.Gangs); err != nil {
		return nil, err
	}
	if err := b.waiting(ctx); err != nil {
		return nil, err
	}
	b.workloads()
	p.sum(report)
	return p, nil
}

// builder is what the parts of Build share.
type builder struct {
	*census.Census
	sim  *sim.Sim
	opts Options
	page *Page
}

// note adds a remark.
func (p *Page) note(text string) {
	if len(p.Notes) < mostNotes {
		p.Notes = append(p.Notes, clip(text))
	}
}

// sum adds the tiles with the most important numbers.
func (p *Page) sum(r *status.Report) {
	nodes, ready, pods, bad := 0, 0, 0, 0
	for _, z := range r.Zones {
		nodes += z.Nodes
		ready += z.Ready
		pods += z.Pods
		if z.Ready == 0 {
			bad++
		}
	}
	gangs := len(p.Gangs.Waiting)
	waitingGangs := 0
	for _, g := range r.Gangs {
		if g.State != status.OK {
			waitingGangs++
		}
	}
	gangs = max(gangs, waitingGangs)
	broken := 0
	for _, pol := range r.Policies {
		if tone(pol.State) != Good {
			broken++
		}
	}
	unused, desired, short := int64(0), int64(0), 0
	for _, res := range r.Reservations {
		unused += max(0, res.Held-res.Used)
		desired += res.Desired
		if tone(res.State) != Good {
			short++
		}
	}
	words := []string{
		fmt.Sprintf("%s with %d of %s ready", show.Plural(len(r.Zones), "zone"), ready, show.Plural(nodes, "node")),
		fmt.Sprintf("%s placed", show.Plural(pods, "pod")),
		fmt.Sprintf("%s waiting", show.Plural(r.Waiting, "pod")),
	}
	if gangs > 0 {
		words = append(words, fmt.Sprintf("%s waiting", show.Plural(gangs, "gang")))
	}
	if broken > 0 {
		words = append(words, fmt.Sprintf("%s not satisfied", show.Plural(broken, "policy")))
	}
	if short > 0 {
		words = append(words, fmt.Sprintf("%s not complete", show.Plural(short, "reservation")))
	}
	p.Summary = strings.Join(words, ", ") + "."

	zones := Tile{Label: "Zones", Value: fmt.Sprint(len(r.Zones)), Detail: "all with ready nodes", Tone: Good}
	if bad > 0 {
		zones.Detail, zones.Tone = fmt.Sprintf("%d without a ready node", bad), Bad
	}
	nodeTile := Tile{Label: "Nodes", Value: number(nodes), Detail: "all ready", Tone: Good}
	if ready < nodes {
		nodeTile.Detail, nodeTile.Tone = fmt.Sprintf("%s not ready", number(nodes-ready)), Mild
	}
	podTile := Tile{Label: "Pods", Value: number(pods), Detail: "none waits", Tone: Good}
	if r.Waiting > 0 {
		podTile.Detail, podTile.Tone = fmt.Sprintf("%s waiting", number(r.Waiting)), Mild
	}
	policyTile := Tile{Label: "Policies", Value: number(len(r.Policies)), Detail: "all satisfied", Tone: Good}
	if broken > 0 {
		policyTile.Detail, policyTile.Tone = fmt.Sprintf("%d not satisfied", broken), Mild
	}
	slotTile := Tile{Label: "Slots held, unused", Value: number(int(unused)), Detail: fmt.Sprintf("of %s wanted", number(int(desired))), Tone: Good}
	if short > 0 {
		slotTile.Detail, slotTile.Tone = slotTile.Detail+", not complete", Mild
	}
	gangTile := Tile{Label: "Gangs", Value: number(len(r.Gangs)), Detail: "all whole", Tone: Good}
	if gangs > 0 {
		gangTile.Detail, gangTile.Tone = fmt.Sprintf("%d waiting", gangs), Mild
	}
	for _, t := range []struct {
		tile *Tile
		none bool
		word string
	}{{&policyTile, len(r.Policies) == 0, "none"}, {&slotTile, len(r.Reservations) == 0, "no reservation"}, {&gangTile, len(r.Gangs) == 0, "none"}} {
		if t.none {
			t.tile.Detail, t.tile.Tone = t.word, Plain
		}
	}
	p.Tiles = []Tile{zones, nodeTile, podTile, policyTile, slotTile, gangTile}
}

// tone returns the tone of a state of package status.
func tone(state string) Tone {
	switch state {
	case status.OK:
		return Good
	case status.Violated, status.Infeasible, status.Rejected, status.Degraded, status.Partial:
		return Bad
	}
	return Mild
}

// badge shows a state of package status.
func badge(state string) Badge { return Badge{Text: state, Tone: tone(state)} }

// worst sorts bad states before good ones.
func worst(a, b Badge) int {
	rank := map[Tone]int{Bad: 0, Mild: 1, Good: 2, Plain: 3}
	return cmp.Compare(rank[a.Tone], rank[b.Tone])
}

// keep returns the first rows, and how many are left out.
func keep[T any](rows []T, most int) ([]T, int) {
	if len(rows) <= most {
		return rows, 0
	}
	return slices.Clip(rows[:most]), len(rows) - most
}

// clip shortens text that users or plugins wrote.
func clip(text string) string {
	if runes := []rune(text); len(runes) > mostText {
		return string(runes[:mostText-1]) + "…"
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

// percent returns a share of a whole, 0 to 100.
func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, (part*100+whole/2)/whole))
}

// age writes a duration in its largest units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
