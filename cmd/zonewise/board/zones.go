package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
)

// States of nodes and zones.
const (
	serving  = "serving"
	cordoned = "cordoned"
	notReady = "not ready"
	mixed    = "partly"
)

// zonesOf makes the columns.
func zonesOf(c *census.Census) ZonesView {
	byZone := map[string][]*census.Node{}
	for _, n := range c.Nodes {
		byZone[n.Zone] = append(byZone[n.Zone], n)
	}
	v := ZonesView{PerCell: 1}
	rooms, hidden := keep(c.Rooms(), mostColumns)
	v.Hidden = hidden
	v.Cards = len(c.Nodes) <= mostCards
	nodes := 0
	for i := range rooms {
		nodes += rooms[i].Nodes
	}
	// Each zone rounds up, by less than a cell.
	for nodes > (mostCells-len(rooms))*v.PerCell {
		v.PerCell++
	}
	held := map[string]int{}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
		for _, zone := range r.Status.Zones {
			held[zone.Name] += int(max(0, zone.Held-zone.Used))
		}
	}
	for i := range rooms {
		room := &rooms[i]
		z := Zone{Name: status.Name(room.Zone), Nodes: room.Nodes, State: zoneState(byZone[room.Zone])}
		ready := "all ready"
		if room.Ready < room.Nodes {
			ready = fmt.Sprintf("%s ready", number(room.Ready))
		}
		z.Facts = []string{nodeCount(room.Nodes) + ", " + ready, countOf(room.Pods, "pod")}
		if n := held[room.Zone]; n > 0 {
			z.Facts = append(z.Facts, countOf(n, "slot")+" held and unused")
		}
		z.Bars = barsOf(room)
		for chunk := range slices.Chunk(byZone[room.Zone], v.PerCell) {
			cell := cellOf(chunk)
			if v.Cards {
				cell.Pods, cell.More = topPods(c, chunk[0])
			}
			z.Cells = append(z.Cells, cell)
		}
		v.Zones = append(v.Zones, z)
	}
	return v
}

func nodeCount(n int) string { return countOf(n, "node") }

// countOf is show.Plural with separated thousands.
func countOf(n int, noun string) string {
	return strings.Replace(show.Plural(n, noun), fmt.Sprint(n), number(n), 1)
}

func stateOf(n *census.Node) string {
	if !census.Ready(n.Node) {
		return notReady
	}
	if n.Spec.Unschedulable {
		return cordoned
	}
	return serving
}

var stateTones = map[string]Tone{serving: Good, cordoned: Mild, mixed: Mild, notReady: Bad}

func zoneState(nodes []*census.Node) Badge {
	state := together(nodes)
	return Badge{Text: state, Tone: stateTones[state]}
}

// together returns the state of several nodes.
func together(nodes []*census.Node) string {
	state := ""
	for _, n := range nodes {
		switch s := stateOf(n); {
		case state == "":
			state = s
		case state != s:
			return mixed
		}
	}
	return state
}

// resources that have a bar, with their display names.
func resourcesOf(amounts census.Amounts) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	devices := slices.DeleteFunc(slices.Sorted(maps.Keys(amounts)), func(name corev1.ResourceName) bool {
		return !strings.Contains(string(name), "/")
	})
	return append(names, devices[:min(len(devices), 2)]...)
}

func labelOf(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourceCPU:
		return "CPU"
	case corev1.ResourceMemory:
		return "Memory"
	}
	return string(name)
}

func barsOf(room *census.Room) []Bar {
	var out []Bar
	for _, name := range resourcesOf(room.Allocatable) {
		all, used := room.Allocatable[name], room.Requested[name]
		if all <= 0 {
			continue
		}
		b := Bar{Label: labelOf(name), Percent: percent(used, all), Tone: Good, Text: show.Percent(used, all)}
		if b.Percent >= 90 {
			b.Tone = Mild
		}
		out = append(out, b)
	}
	return out
}

// cellOf makes the cell of one node or of several.
func cellOf(nodes []*census.Node) Cell {
	first, last := nodes[0], nodes[len(nodes)-1]
	state := together(nodes)
	c := Cell{Key: first.Name, Name: first.Name, Nodes: len(nodes), State: Badge{Text: state, Tone: stateTones[state]}}
	var pods int64
	shares := map[corev1.ResourceName][2]int64{}
	for _, n := range nodes {
		pods += n.Requested[corev1.ResourcePods]
		for _, name := range append(resourcesOf(n.Allocatable), corev1.ResourcePods) {
			s := shares[name]
			shares[name] = [2]int64{s[0] + n.Requested[name], s[1] + n.Allocatable[name]}
		}
	}
	fullest, most := corev1.ResourceCPU, int64(-1)
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if p := percent(shares[name][0], shares[name][1]); p > most && shares[name][1] > 0 {
			fullest, most = name, p
		}
	}
	most = max(most, 0)
	c.Level = int((most + 9) / 10)
	c.Share = fmt.Sprintf("%d%% of %s", most, labelOf(fullest))
	if fullest == corev1.ResourcePods {
		c.Share = fmt.Sprintf("%d%% of its pods", most)
	}
	if len(nodes) > 1 {
		c.Name = fmt.Sprintf("%d nodes, %s to %s", len(nodes), first.Name, last.Name)
		if state == mixed {
			c.State.Text = mixed + " serving"
		}
	}
	c.Label = fmt.Sprintf("%s: %s, %s, %s", c.Name, c.State.Text, countOf(int(pods), "pod"), c.Share)
	return c
}

// shortName removes the kind.
func shortName(workload string) string {
	_, name, _ := strings.Cut(workload, " ")
	return name
}

// topPods counts the pods of each workload on a node.
func topPods(c *census.Census, n *census.Node) ([]PodsOf, int) {
	counts := map[string]int{}
	for _, p := range n.Pods {
		name := shortName(c.Workload(p.Pod))
		if gang := census.GangOf(p.Pod); gang != "" {
			name = "gang " + gang
		}
		counts[name]++
	}
	out := make([]PodsOf, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, PodsOf{name, counts[name]})
	}
	slices.SortStableFunc(out, func(a, b PodsOf) int { return cmp.Compare(b.Count, a.Count) })
	return keep(out, mostPodsOf)
}
