package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/sim/kinds"
)

// maxRows bounds how many workloads the text lists, and maxReasons of how many it says why they wait. JSON and YAML
// have all of it.
const (
	maxRows    = 15
	maxReasons = 5
)

// Report has the results of one or more scenarios.
type Report struct {
	// Survives is true if none of FailOn happened in any scenario.
	Survives bool     `json:"survives"`
	FailOn   []string `json:"failOn"`
	// NotRead has the kinds that could not be read: without failures, the results may be better than what would happen.
	NotRead []string  `json:"notRead,omitempty"`
	Results []*Result `json:"results"`
	// Buy is what would have to be bought; nil if that was not asked.
	Buy *Purchase `json:"buy,omitempty"`
}

// NotRead returns the kinds that could not be read and by which a simulation, with pods of a file or without, may come
// to another result.
func NotRead(s *snapshot.Snapshot, withFile bool) []string {
	survivals, _ := kinds.ResourceOf(&v1alpha1.ZoneSurvival{}) // the scheduler does not look at these
	rebalances, _ := kinds.ResourceOf(&v1alpha1.ZoneRebalance{})
	own := []string{survivals.String(), rebalances.String(), snapshot.LeaseResource}
	var out []string
	for _, m := range s.Missing {
		admits := slices.ContainsFunc(snapshot.AdmissionKinds(), func(k snapshot.Kind) bool { return k.Resource == m.Resource })
		if m.Reason != snapshot.NotInstalled && !slices.Contains(own, m.Resource) && (withFile || !admits) {
			out = append(out, m.Resource)
		}
	}
	return out
}

// NewReport judges results by the failures that count.
func NewReport(results []*Result, failOn []string) *Report {
	r := &Report{Survives: true, FailOn: failOn, Results: results}
	for _, result := range results {
		r.Survives = r.Survives && len(result.Failed(failOn)) == 0
	}
	return r
}

// Text writes the report as text.
func (r *Report) Text(w io.Writer, style show.Style) error {
	p := show.NewPage(style)
	for _, result := range r.Results {
		result.writeText(p, r.FailOn)
	}
	if len(r.Results) > 1 {
		p.Title("All scenarios")
		var rows [][]show.Cell
		for _, result := range r.Results {
			rows = append(rows, show.Row(result.Scenario, verdictCell(result.Failed(r.FailOn)), result.Displaced, result.Pending))
		}
		p.Table([]string{"SCENARIO", "VERDICT", "DISPLACED", "PENDING"}, rows)
	}
	if r.Buy != nil {
		r.Buy.writeText(p)
	}
	return p.Flush(w)
}

func verdictCell(failed []string) show.Cell {
	if len(failed) == 0 {
		return show.Cell{Text: "survives", Color: show.Green}
	}
	return show.Cell{Text: "fails: " + strings.Join(failed, ", "), Color: show.Red}
}

func (r *Result) writeText(p *show.Page, failOn []string) {
	p.Title("%s", r.Scenario)
	var parts []string
	if r.LostNodes > 0 {
		parts = append(parts, show.Plural(r.LostNodes, "node")+" lost", show.Plural(r.Displaced, "pod")+" displaced")
	}
	if r.DrainedNodes > 0 {
		parts = append(parts, show.Plural(r.DrainedNodes, "node")+" drained")
		if r.LostNodes == 0 {
			parts = append(parts, show.Plural(r.Displaced, "pod")+" displaced")
		}
	}
	if r.AddedNodes > 0 {
		parts = append(parts, show.Plural(r.AddedNodes, "node")+" added")
	}
	if r.Added > 0 {
		parts = append(parts, show.Plural(r.Added, "pod")+" added")
	}
	if r.Removed > 0 {
		parts = append(parts, show.Plural(r.Removed, "pod")+" removed")
	}
	if r.ReturnedNodes > 0 {
		parts = append(parts, show.Plural(r.ReturnedNodes, "node")+" back")
	}
	if len(parts) > 0 || r.Rebalance == nil {
		parts = append(parts, fmt.Sprintf("%d find a node", r.Placed), fmt.Sprintf("%d stay Pending", r.Pending))
		p.Para(2, show.Plain, "%s", strings.Join(parts, ", "))
	}
	others := func(pods int, color show.Color, words string) {
		if pods > 0 {
			p.Para(2, color, "%s %s", show.Plural(pods, "pod"), words)
		}
	}
	others(r.Orphans, show.Red, "that no controller replaces")
	for _, lost := range r.NotReplaced[:min(maxReasons, len(r.NotReplaced))] {
		p.Para(4, show.Plain, "%s: %s", show.Plural(lost.Pods, "pod"), lost.Why)
	}
	others(r.PendingElsewhere, show.Yellow, "of other schedulers would stay Pending if kube-scheduler placed them")
	others(r.NodeBound, show.Faint, "of DaemonSets and static pods go with their nodes")
	others(r.Evicted, show.Yellow, "evicted for others of higher priority")
	others(r.WaitedBefore, show.Faint, fmt.Sprintf("waited before, %d still do", r.StillWaiting))
	r.NodesStay.writeText(p)
	r.writeZones(p)
	r.writeWorkloads(p)
	r.writePromises(p)
	for i := range r.Certificates {
		r.Certificates[i].writeText(p)
	}
	if r.Rebalance != nil {
		rebalanceText(p, r.Rebalance)
	}
	p.Notes(2, r.Notes)
	failed := r.Failed(failOn)
	cell := verdictCell(failed)
	if r.LostNodes+r.DrainedNodes+r.AddedNodes+r.Added+r.Removed == 0 && len(failed) == 0 {
		cell.Text = "nothing is broken" // nothing was to be survived
	}
	p.Para(2, cell.Color, "%s", cell.Text)
}

func (s *NodesStay) writeText(p *show.Page) {
	if s == nil {
		return
	}
	color := show.Faint
	if s.Pending+s.Staying > 0 {
		color = show.Red
	}
	text := fmt.Sprintf("while the lost nodes still exist, %d find a node, %d stay Pending", s.Placed, s.Pending)
	if s.Staying > 0 {
		text += fmt.Sprintf(", %d tolerate the taint and stay on dead nodes", s.Staying)
	}
	p.Para(2, color, "%s", text)
	for _, w := range s.Workloads[:min(maxReasons, len(s.Workloads))] {
		if len(w.Why) > 0 {
			p.Item(4, show.Plain, "%s: %s", w.Name, strings.Join(w.Why[:min(2, len(w.Why))], "; "))
		}
	}
}

func (r *Result) writeZones(p *show.Page) {
	var rows [][]show.Cell
	for _, z := range r.Zones {
		pods := show.C("%d -> %d", z.Before.Pods, z.After.Pods)
		if z.Lost {
			pods = show.Cell{Text: fmt.Sprintf("%d -> lost", z.Before.Pods), Color: show.Yellow}
		}
		rows = append(rows, show.Row(status.ZoneText(z.Name), pods, shareCell(z.After.MilliCPU, z.After.MilliCPUAllocatable), shareCell(z.After.Memory, z.After.MemoryAllocatable)))
	}
	p.Table([]string{"ZONE", "PODS", "CPU AFTER", "MEMORY AFTER"}, rows)
}

func shareCell(used, all int64) show.Cell {
	return show.C("%s", show.Percent(used, all)).ColorIf(all > 0 && used*10 >= all*9, show.Yellow)
}

func (r *Result) writeWorkloads(p *show.Page) {
	first := r.Workloads[:min(maxRows, len(r.Workloads))]
	show.Section(p, "Workloads", []string{"WORKLOAD", "PODS", "PENDING", "GO TO"}, first, func(w *Workloads) []show.Cell {
		name := w.Name
		if w.Scheduler != "" {
			name += " (of " + w.Scheduler + ")"
		}
		return show.Row(name, w.Pods, show.C("%d", w.Pending).ColorIf(w.Pending > 0, show.Red), status.ZonesText(w.To))
	})
	if more := len(r.Workloads) - maxRows; more > 0 {
		p.Para(2, show.Faint, "and %d more", more)
	}
	for _, w := range r.Workloads[:min(maxReasons, len(r.Workloads))] {
		if len(w.Why) > 0 {
			p.Item(2, show.Plain, "%s: %s", w.Name, strings.Join(w.Why[:min(2, len(w.Why))], "; "))
		}
	}
}

// writePromises writes what happens to policies, budgets, gangs and reservations.
func (r *Result) writePromises(p *show.Page) {
	show.Section(p, "Promises", []string{"KIND", "NAME", "STATE", "WHAT BECOMES OF IT"}, r.Promises, func(x *Promise) []show.Cell {
		state := show.Cell{Text: "holds", Color: show.Green}
		if x.Broken {
			state = show.Cell{Text: "BROKEN", Color: show.Red}
		}
		return show.Row(x.Kind, x.Name, state, x.Words)
	})
}
