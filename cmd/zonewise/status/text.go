package status

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/cmd/zonewise/show"
)

// Text writes the report as text.
func (r *Report) Text(w io.Writer, style show.Style) error {
	p := show.NewPage(style)
	p.Title("Zones")
	var rows [][]show.Cell
	for _, z := range r.Zones {
		ready := show.C("%d", z.Ready)
		if z.Ready < z.Nodes {
			ready.Color = show.Yellow
		}
		if z.Ready == 0 {
			ready.Color = show.Red
		}
		rows = append(rows, []show.Cell{
			show.C("%s", Name(z.Name)), show.C("%d", z.Nodes), ready, show.C("%d", z.Pods),
			show.C("%s", show.Percent(z.MilliCPU, z.MilliCPUAllocatable)), show.C("%s", show.Percent(z.Memory, z.MemoryAllocatable)),
		})
	}
	p.Table([]string{"ZONE", "NODES", "READY", "PODS", "CPU", "MEMORY"}, rows)

	if len(r.Policies) > 0 {
		p.Title("Policies (pods/desired in each zone)")
		rows = nil
		for _, pol := range r.Policies {
			var zones []string
			for _, z := range pol.Zones {
				text := fmt.Sprintf("%s %d/%d", z.Name, z.Pods, z.Desired)
				if z.State != "" && z.State != "Available" {
					text += " " + z.State
				}
				zones = append(zones, text)
			}
			skew := show.C("%d of %d", pol.Skew, pol.MaxSkew)
			if pol.Skew > int64(pol.MaxSkew) {
				skew.Color = show.Red
			}
			rows = append(rows, []show.Cell{
				show.C("%s/%s", pol.Namespace, pol.Name), State(pol.State), show.C("%d of %d", pol.Pods, pol.Replicas), skew, show.C("%s", strings.Join(zones, ", ")),
			})
		}
		p.Table([]string{"POLICY", "STATE", "PODS", "SKEW", "ZONES"}, rows)
		for _, pol := range r.Policies {
			remark(p, pol.Namespace+"/"+pol.Name, pol.Message)
		}
	}
	if len(r.Reservations) > 0 {
		what := "slots"
		if slices.ContainsFunc(r.Reservations, func(res Reservation) bool { return len(res.Amounts) > 0 }) {
			what = "slots or amounts"
		}
		p.Title("Reservations (%s used/held/desired in each zone)", what)
		rows = nil
		for _, res := range r.Reservations {
			var zones []string
			for _, z := range res.Zones {
				zones = append(zones, z.Name+" "+z.Amounts.Shares(z.Used, z.Held, z.Desired))
			}
			rows = append(rows, []show.Cell{
				show.C("%s", res.Name), State(res.State), show.C("%s", res.Mode), show.C("%s", res.Amounts.Shares(res.Used, res.Held, res.Desired)), show.C("%s", strings.Join(zones, ", ")),
			})
		}
		p.Table([]string{"RESERVATION", "STATE", "MODE", "SLOTS", "ZONES"}, rows)
		for _, res := range r.Reservations {
			remark(p, res.Name, res.Message)
		}
	}
	if len(r.Survivals) > 0 {
		p.Title("Survival (pods that would wait/displaced pods in each loss)")
		rows = nil
		for _, s := range r.Survivals {
			var losses []string
			for _, loss := range s.Losses {
				losses = append(losses, fmt.Sprintf("%s %d/%d", loss.Zone, loss.Waiting, loss.Displaced))
			}
			age := duration.HumanDuration(time.Duration(s.AgeSeconds) * time.Second)
			rows = append(rows, []show.Cell{
				show.C("%s", s.Name), State(s.State), show.C("%d", s.Pods), show.C("%s", age), show.C("%s", s.room()), show.C("%s", strings.Join(losses, ", ")),
			})
		}
		p.Table([]string{"SURVIVAL", "STATE", "PODS", "COMPUTED", "HELD", "LOSSES"}, rows)
		for _, s := range r.Survivals {
			remark(p, s.Name, s.Message)
		}
	}
	if len(r.Gangs) > 0 {
		p.Title("Gangs")
		rows = nil
		for _, g := range r.Gangs {
			var zones []string
			for _, zone := range slices.Sorted(maps.Keys(g.Zones)) {
				zones = append(zones, fmt.Sprintf("%s %d", Name(zone), g.Zones[zone]))
			}
			rows = append(rows, []show.Cell{
				show.C("%s/%s", g.Namespace, g.Name), State(g.State), show.C("%d", g.Bound), show.C("%d", g.MinMember), show.C("%d", g.Members), show.C("%s", strings.Join(zones, ", ")),
			})
		}
		p.Table([]string{"GANG", "STATE", "BOUND", "NEEDED", "PODS", "ZONES"}, rows)
		for _, g := range r.Gangs {
			remark(p, g.Namespace+"/"+g.Name, g.Message)
		}
	}
	p.Title("Pods that wait: %d", r.Waiting)
	for _, note := range r.Notes {
		p.Para(0, show.Yellow, "note: %s", note)
	}
	return p.Flush(w)
}

// room says what is held for a survival: "12 cpu, 48Gi memory, 3 pods missing".
func (s *Survival) room() string {
	if !s.Holds {
		return "-"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Held)) {
		if quantity := s.Held[name]; name != "pods" {
			words = append(words, quantity.String()+" "+string(name))
		}
	}
	if s.Missing > 0 {
		words = append(words, show.Plural(int(s.Missing), "pod")+" missing")
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func remark(p *show.Page, name, message string) {
	if message != "" {
		p.Para(2, show.Faint, "%s: %s", name, message)
	}
}

// State colours a state.
func State(state string) show.Cell {
	color := show.Yellow
	switch state {
	case OK:
		color = show.Green
	case Violated, Infeasible, Rejected, Degraded, Partial, Breaks:
		color = show.Red
	}
	return show.Cell{Text: state, Color: color}
}

// Name returns a zone's name, or the text for nodes without a zone.
func Name(zone string) string {
	if zone == "" {
		return "(no zone)"
	}
	return zone
}
