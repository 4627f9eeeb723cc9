package status

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/show"
)

// Names writes the objects that the report is about as kubectl's -o name does.
func (r *Report) Names(w io.Writer) error {
	var out strings.Builder
	add := func(resource, name string) { fmt.Fprintf(&out, "%s/%s\n", resource, name) }
	for i := range r.Policies {
		add("zonespreadpolicy."+v1alpha1.GroupName, r.Policies[i].Name)
	}
	for i := range r.Reservations {
		add("zonereservation."+v1alpha1.GroupName, r.Reservations[i].Name)
	}
	for i := range r.Survivals {
		add("zonesurvival."+v1alpha1.GroupName, r.Survivals[i].Name)
	}
	for i := range r.Rebalances {
		add("zonerebalance."+v1alpha1.GroupName, r.Rebalances[i].Name)
	}
	for i := range r.Gangs {
		resource := "podgroup.scheduling.x-k8s.io"
		if r.Gangs[i].Native {
			resource = "podgroup.scheduling.k8s.io"
		}
		add(resource, r.Gangs[i].Name)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Text writes the report as text. With wide, it lists the pods that wait.
func (r *Report) Text(w io.Writer, style show.Style, wide bool) error {
	p := show.NewPage(style)
	p.Title("Zones")
	var rows [][]show.Cell
	for _, z := range r.Zones {
		ready := show.C("%d", z.Ready).ColorIf(z.Ready < z.Nodes, show.Yellow).ColorIf(z.Ready == 0, show.Red)
		rows = append(rows, show.Row(ZoneText(z.Name), z.Nodes, ready, z.Pods, show.Percent(z.MilliCPU, z.MilliCPUAllocatable), show.Percent(z.Memory, z.MemoryAllocatable)))
	}
	p.Table([]string{"ZONE", "NODES", "READY", "PODS", "CPU", "MEMORY"}, rows)

	writeSection(p, "Policies (pods/desired in each zone)", []string{"POLICY", "STATE", "PODS", "SKEW", "ZONES"}, r.Policies, func(x *Policy) ([]show.Cell, []string) {
		var zones []string
		for _, z := range x.Zones {
			zones = append(zones, strings.TrimSuffix(fmt.Sprintf("%s %d/%d %s", z.Name, z.Pods, z.Desired, Unavailable(z.State)), " "))
		}
		skew := show.C("%d of %d", x.Skew, x.MaxSkew).ColorIf(x.Skew > int64(x.MaxSkew), show.Red)
		return show.Row(x.Namespace+"/"+x.Name, StateCell(x.State), fmt.Sprintf("%d of %d", x.Pods, x.Replicas), skew, strings.Join(zones, ", ")), Messages(x.Message, x.Answers)
	})
	writeSection(p, "Reservations (slots used/held/desired in each zone)", []string{"RESERVATION", "STATE", "MODE", "ROOM", "ZONES"}, r.Reservations, func(x *Reservation) ([]show.Cell, []string) {
		var zones []string
		for _, z := range x.Zones {
			zones = append(zones, z.Name+" "+SharesText(z.SlotCounts))
		}
		return show.Row(x.Name, StateCell(x.State), x.Mode, SharesText(x.SlotCounts), strings.Join(zones, ", ")), Messages(x.Message, x.Answers)
	})
	writeSection(p, "Survival (pods that would wait/displaced pods in each loss)", []string{"SURVIVAL", "STATE", "PODS", "COMPUTED", "HELD", "LOSSES"}, r.Survivals, func(x *Survival) ([]show.Cell, []string) {
		var losses []string
		for _, loss := range x.Losses {
			losses = append(losses, fmt.Sprintf("%s %d/%d", loss.What(), loss.Waiting, loss.Displaced))
		}
		return show.Row(x.Name, StateCell(x.State), x.Pods, x.Age(), x.Room(), strings.Join(losses, ", ")), Messages(x.Message, x.Answers)
	})
	writeSection(p, "Rebalances", []string{"REBALANCE", "STATE", "MODE", "TOO MANY", "PLANNED", "UNDER WAY"}, r.Rebalances, func(x *Rebalance) ([]show.Cell, []string) {
		return show.Row(x.Name, StateCell(x.State), x.Mode, x.Excess, x.Planned, x.UnderWay), Messages(x.Message, nil)
	})
	writeSection(p, "Planned moves", []string{"POD", "REBALANCE", "BATCH", "FROM", "TO", "RULE"}, r.plannedMoves(), func(x *plannedMove) ([]show.Cell, []string) {
		return show.Row(x.Pod, x.rebalance, x.Batch, ZoneText(x.From), strings.Join(x.To, " or "), x.Rules), nil
	})
	writeSection(p, "Gangs", []string{"GANG", "STATE", "BOUND", "NEEDED", "PODS", "ZONES"}, r.Gangs, func(x *Gang) ([]show.Cell, []string) {
		return show.Row(x.Title(), StateCell(x.State), x.Bound, x.MinMember, x.Members, ZonesText(x.Zones)), Messages(x.Message, nil)
	})
	switch {
	case wide && r.Waiting > 0:
		show.Section(p, fmt.Sprintf("Pods that wait: %d", r.Waiting), []string{"POD", "WORKLOAD", "WAITS", "SCHEDULER", "SAYS"}, r.Pods, func(x *WaitingPod) []show.Cell {
			return show.Row(x.Namespace+"/"+x.Name, x.Workload, duration.HumanDuration(time.Duration(x.WaitsSeconds)*time.Second), x.Scheduler, x.Message)
		})
	case r.Waiting > 0:
		p.Title("Pods that wait: %d (-o wide lists them)", r.Waiting)
	default:
		p.Title("Pods that wait: 0")
	}
	p.Notes(0, r.Notes)
	return p.Flush(w)
}

// Age is how old the answer is, in kubectl's words if there is none.
func (s *Survival) Age() string {
	if !s.answered {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Duration(s.AgeSeconds) * time.Second)
}

// Room says what is held for a survival: "12 cpu, 48Gi memory, 3 pods missing".
func (s *Survival) Room() string {
	if !s.Holds {
		return "-"
	}
	missing := int64(0)
	for i := range s.Missing {
		missing += s.Missing[i].Pods
	}
	parts := Quantities(s.Held)
	if missing > 0 {
		parts = append(parts, show.Plural(int(missing), "pod")+" missing")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Quantities lists resources, without places for pods.
func Quantities(of corev1.ResourceList) []string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if quantity := of[name]; name != corev1.ResourcePods {
			parts = append(parts, quantity.String()+" "+string(name))
		}
	}
	return parts
}

// writeSection writes a table with a row for each object, and then their messages. Without objects there is none.
func writeSection[T any](
	p *show.Page, title string, columns []string, objects []T, row func(*T) (cells []show.Cell, messages []string),
) {
	var messages []string
	show.Section(p, title, columns, objects, func(object *T) []show.Cell {
		cells, own := row(object)
		for _, message := range own {
			messages = append(messages, cells[0].Text+": "+message)
		}
		return cells
	})
	for _, message := range messages {
		p.Para(2, show.Faint, "%s", message)
	}
}

// Unavailable returns the state of a policy's zone, empty if it is available.
func Unavailable(state v1alpha1.ZoneState) string {
	if state == v1alpha1.ZoneAvailable {
		return ""
	}
	return string(state)
}

// StateCell colours a state.
func StateCell(state string) show.Cell {
	color := show.Yellow
	switch state {
	case OK:
		color = show.Green
	case Violated, Infeasible, Rejected, Partial, Breaks, Stopped:
		color = show.Red
	}
	return show.Cell{Text: state, Color: color}
}

// ZoneText returns a zone's name, or the text for nodes without a zone.
func ZoneText(zone string) string {
	if zone == "" {
		return "(no zone)"
	}
	return zone
}

// ZonesText lists numbers by zone.
func ZonesText(of map[string]int) string {
	var out []string
	for _, zone := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%s %d", ZoneText(zone), of[zone]))
	}
	return strings.Join(out, ", ")
}
