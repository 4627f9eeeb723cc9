package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/demo/workload"
)

// takesPods reports whether a node is ready and has no taint of an unready node.
func takesPods(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}

func (d *demo) readyNodes() int {
	nodes, ready := d.seen.nodes(), 0
	for i := range nodes {
		if takesPods(&nodes[i]) {
			ready++
		}
	}
	return ready
}

// nodesOf returns the nodes of a zone.
func (d *demo) nodesOf(zone string) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(d.seen.nodes()), func(n corev1.Node) bool { return n.Labels[corev1.LabelTopologyZone] != zone })
}

func (d *demo) nodeStatus() string { return show.Bar(d.readyNodes(), len(d.plan.Nodes)) + " ready" }

func (d *demo) nodeOutcome() string {
	return fmt.Sprintf("%d in each of %s", len(d.plan.Nodes)/len(d.plan.Zones), strings.Join(d.plan.Zones, ", "))
}

// tally counts the workload's bound pods, by zone, and its waiting ones.
func (d *demo) tally() (bound, waiting int, zones map[string]int) {
	zones = map[string]int{}
	for _, pod := range d.seen.pods() {
		switch {
		case pod.Namespace == corev1.NamespaceDefault || pod.DeletionTimestamp != nil:
		case pod.Spec.NodeName == "":
			waiting++
		default:
			bound++
			zones[d.zones[pod.Spec.NodeName]]++
		}
	}
	return bound, waiting, zones
}

func (d *demo) perZone(zones map[string]int) string {
	parts := make([]string, 0, len(d.plan.Zones))
	for _, zone := range d.plan.Zones {
		parts = append(parts, fmt.Sprintf("%s %d", zone, zones[zone]))
	}
	return strings.Join(parts, " ")
}

// zoneNames returns the zones of a plan's nodes, by node name.
func zoneNames(nodes []workload.Node) map[string]string {
	out := make(map[string]string, len(nodes))
	for _, n := range nodes {
		out[n.Name] = n.Zone
	}
	return out
}

// rateWindow is the time over which the shown rate is computed.
const rateWindow = 2 * time.Second

func (d *demo) placeStatus() string {
	count, waiting, zones := d.tally()
	rate := float64(len(d.seen.livesSince(time.Now().Add(-rateWindow), bound))) / rateWindow.Seconds()
	return fmt.Sprintf("%s bound, %s, %.0f pods/s", show.Bar(count, count+waiting), d.perZone(zones), rate)
}

func (d *demo) placeOutcome() string {
	bound, waiting, zones := d.tally()
	return fmt.Sprintf("%d pods bound, %d wait; %s", bound, waiting, d.perZone(zones))
}
