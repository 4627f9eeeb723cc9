package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
)

// Text writes the report as text.
func (r *Report) Text(w io.Writer, style show.Style, now time.Time) error {
	p := show.NewPage(style)
	if r.Pod != nil {
		r.Pod.writeText(p)
	}
	if r.Gang != nil {
		r.Gang.writeText(p, r.Said)
	}
	if r.Now != nil {
		r.Now.writeText(p)
	}
	if len(r.Moves) > 0 {
		p.Title("Rebalance")
		for _, move := range r.Moves {
			p.Item(2, show.Plain, "%s", move)
		}
	}
	r.writeZones(p)
	writeMessages(p, "What the scheduler said", r.Said, now)
	writeMessages(p, "What the autoscaler said", r.Autoscalers, now)
	if len(r.Next) > 0 {
		p.Title("What would help")
		for _, step := range r.Next {
			p.Item(2, show.Plain, "%s", step)
		}
	}
	p.Notes(0, r.Gaps)
	return p.Flush(w)
}

func (d *Pod) writeText(p *show.Page) {
	if name := "Pod " + d.Namespace + "/" + d.Name; name == d.Workload {
		p.Title("%s", name)
	} else {
		p.Title("%s of %s", name, d.Workload)
	}
	switch d.Verdict {
	case Bound:
		p.Para(2, show.Green, "is on node %s in zone %s", d.Node, status.ZoneText(d.Zone))
	default:
		since := ""
		if d.Waits != "" {
			since = " for " + d.Waits
		}
		p.Para(2, show.Yellow, "waits%s", since)
	}
	if d.Nominated != "" {
		p.Para(2, show.Plain, "%s", d.Nominated)
	}
	var requests []string
	for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
		requests = append(requests, name+" "+d.Requests[name])
	}
	if len(requests) == 0 {
		requests = []string{"nothing"}
	}
	p.Para(2, show.Plain, "asks for %s, priority %d, scheduler %s", strings.Join(requests, ", "), d.Priority, d.Scheduler)
	if len(d.Policies) > 0 {
		p.Para(2, show.Plain, "spread by %s", strings.Join(d.Policies, ", "))
	}
	for _, answer := range d.Answers {
		p.Para(2, show.Yellow, "%s", answer)
	}
	if d.DeletionCost != "" {
		p.Para(2, show.Plain, "deletion cost %s: when its ReplicaSet is made smaller, the ready pods with the lowest leave first", d.DeletionCost)
	}
	if d.Reservation != "" {
		p.Para(2, show.Plain, "an owner of ZoneReservation %s", d.Reservation)
	}
}

func (g *GangReport) writeText(p *show.Page, said []SchedulerMessage) {
	p.Title("Gang %s", g.Title())
	p.Para(2, status.StateCell(g.State).Color, "%s: %d of %d members bound, %d exist", g.State, g.Bound, g.MinMember, g.Members)
	if g.Missing > 0 {
		fit, has := "", "have"
		if g.Fit != nil {
			fit = fmt.Sprintf("; %d of those that wait would find a node", *g.Fit)
		}
		if g.Missing == 1 {
			has = "has"
		}
		p.Para(2, show.Plain, "%d more %s to be bound at once%s", g.Missing, has, fit)
	}
	if g.Why != "" && !slices.ContainsFunc(said, SchedulerMessage{Words: g.Why}.saysTheSame) {
		p.Para(2, show.Plain, "%s", g.Why)
	}
}

func (r *Report) writeZones(p *show.Page) {
	show.Section(p, "Zones", []string{"ZONE", "NODES", "FIT", "SPREAD (PODS/DESIRED)", "SLOTS HELD"}, r.Zone, func(z *ZoneFit) []show.Cell {
		fit := show.C("%d", z.Fit).ColorIf(z.Fit == 0, show.Red).ColorIf(z.Fit > 0, show.Green)
		var counts []string
		for _, c := range z.Policies {
			text := fmt.Sprintf("%s %d/%d", c.Policy, c.Pods, c.Desired)
			if state := status.Unavailable(c.State); state != "" {
				text += " (" + state + ")"
			}
			counts = append(counts, text)
		}
		for _, c := range z.Constraints {
			counts = append(counts, fmt.Sprintf("%d, fewest %d, maxSkew %d", c.Pods, c.Fewest, c.MaxSkew))
		}
		var holds []string
		for _, h := range z.Holds {
			text := fmt.Sprintf("%d by %s", h.Unused, h.Reservation)
			if h.Own {
				text += " (its own)"
			}
			holds = append(holds, text)
		}
		return show.Row(status.ZoneText(z.Zone), z.Nodes, fit, strings.Join(counts, "; "), strings.Join(holds, ", "))
	})
	for i := range r.Zone {
		z := &r.Zone[i]
		if len(z.Obstacles) == 0 {
			continue
		}
		p.Para(2, show.Bold, "zone %s", status.ZoneText(z.Zone))
		for _, o := range z.Obstacles {
			p.Item(2, show.Plain, "%s (%s): %s", show.Plural(o.Nodes, "node"), o.Plugin, o.Words)
			for _, lack := range o.Lacks {
				var parts []string
				for _, l := range lack.Resources {
					parts = append(parts, fmt.Sprintf("%s %s (%s free, %s asked for)", l.Lacks, l.Resource, l.Free, l.Asked))
				}
				p.Para(4, show.Plain, "%s lacks %s", lack.Node, strings.Join(parts, ", "))
			}
		}
	}
}

// writeMessages writes conditions and events under a title, with their ages. Without messages it writes nothing.
func writeMessages(p *show.Page, title string, messages []SchedulerMessage, now time.Time) {
	if len(messages) > 0 {
		p.Title("%s", title)
	}
	for _, s := range messages {
		ago := ""
		if !s.At.IsZero() {
			ago = ", " + duration.HumanDuration(now.Sub(s.At)) + " ago"
		}
		if s.Count > 1 {
			ago += fmt.Sprintf(", %d times", s.Count)
		}
		p.Item(2, show.Plain, "%s%s: %s", s.Reason, ago, s.Words)
	}
}
