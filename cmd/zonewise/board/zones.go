package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
)

// The states of nodes and zones.
var (
	serving  = Badge{"serving", Good}
	cordoned = Badge{"cordoned", Mild}
	notReady = Badge{"not ready", Bad}
	mixed    = Badge{"partly", Mild}
)

// zonesViewOf makes the columns.
func zonesViewOf(c *census.Census, reservations []status.Reservation) ZonesView {
	v := ZonesView{PerCell: 1, Cards: len(c.Nodes) <= mostCards}
	rooms, hidden := firstRows(c.ZoneRooms(), mostColumns)
	v.Hidden = hidden
	nodes := 0
	for i := range rooms {
		nodes += len(rooms[i].Nodes)
	}
	// Each zone rounds up, by less than a cell.
	for nodes > (mostCells-len(rooms))*v.PerCell {
		v.PerCell++
	}
	held := map[string]int{}
	for i := range reservations {
		for _, zone := range reservations[i].Zones {
			held[zone.Name] += int(max(0, zone.Held-zone.Used))
		}
	}
	for i := range rooms {
		room := &rooms[i]
		ready := "all ready"
		if room.Ready < len(room.Nodes) {
			ready = number(room.Ready) + " ready"
		}
		z := ZoneColumn{
			Name: status.ZoneText(room.Zone), State: stateOf(room.Nodes), Bars: barsOf(room),
			Facts: []string{countOf(len(room.Nodes), "node") + ", " + ready, countOf(room.Pods, "pod")},
		}
		if n := held[room.Zone]; n > 0 {
			z.Facts = append(z.Facts, countOf(n, "slot")+" held and unused")
		}
		for chunk := range slices.Chunk(room.Nodes, v.PerCell) {
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

// stateOf returns the state that nodes have in common.
func stateOf(nodes []*census.Node) Badge {
	var common Badge
	for i, n := range nodes {
		state := serving
		switch {
		case !nodeutil.IsNodeReady(n.Node):
			state = notReady
		case n.Spec.Unschedulable:
			state = cordoned
		}
		if i > 0 && state != common {
			return mixed
		}
		common = state
	}
	return common
}

// resourcesOf returns the resources that have a bar.
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
	case corev1.ResourcePods:
		return "its pods"
	}
	return string(name)
}

func barsOf(room *census.Room) []Share {
	var out []Share
	for _, name := range resourcesOf(room.Allocatable) {
		all, used := room.Allocatable[name], room.Requested[name]
		if all <= 0 {
			continue
		}
		b := Share{Label: labelOf(name), Percent: percent(used, all), Tone: Good, Text: show.Percent(used, all)}
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
	c := Cell{Key: first.Name, Name: first.Name, Nodes: len(nodes), State: stateOf(nodes)}
	if len(nodes) > 1 {
		c.Name = fmt.Sprintf("%d nodes, %s to %s", len(nodes), first.Name, last.Name)
		if c.State == mixed {
			c.State.Text += " serving"
		}
	}
	used, all := census.Amounts{}, census.Amounts{}
	for _, n := range nodes {
		used.Add(n.Requested)
		all.Add(n.Allocatable)
	}
	fullest, most := corev1.ResourceCPU, int64(0)
	for _, name := range append(resourcesOf(all), corev1.ResourcePods) {
		if p := percent(used[name], all[name]); p > most {
			fullest, most = name, p
		}
	}
	c.Level = int((most + 9) / 10)
	c.Share = fmt.Sprintf("%d%% of %s", most, labelOf(fullest))
	c.Label = fmt.Sprintf("%s: %s, %s, %s", c.Name, c.State.Text, countOf(int(used[corev1.ResourcePods]), "pod"), c.Share)
	return c
}

// topPods counts the pods of each workload on a node.
func topPods(c *census.Census, n *census.Node) ([]PodsOf, int) {
	counts := map[string]int{}
	for _, p := range n.Pods {
		_, name, _ := strings.Cut(c.Workload(p.Pod), " ") // without its kind
		if gang := c.GangOf(p.Pod); gang != "" {
			name = "gang " + gang
		}
		counts[name]++
	}
	out := make([]PodsOf, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, PodsOf{name, counts[name]})
	}
	slices.SortStableFunc(out, func(a, b PodsOf) int { return cmp.Compare(b.Count, a.Count) })
	return firstRows(out, mostPodsOf)
}
