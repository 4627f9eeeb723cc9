package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// takesPods reports whether a node is ready and carries none of the taints
// that come with not being so.
func takesPods(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}

func (d *demo) readyNodes() int {
	nodes, _ := d.seen.lists()
	ready := 0
	for _, n := range nodes {
		if takesPods(n) {
			ready++
		}
	}
	return ready
}

func (d *demo) nodeStatus() string { return bar(d.readyNodes(), len(d.plan.Nodes)) + " ready" }

func (d *demo) nodeOutcome() string {
	return fmt.Sprintf("%d in each of %s", len(d.plan.Nodes)/len(d.plan.Zones), strings.Join(d.plan.Zones, ", "))
}

// tally counts the workload's pods.
func (d *demo) tally() (bound, total int, zones map[string]int) {
	nodes, pods := d.seen.lists()
	zoneOf := make(map[string]string, len(nodes))
	for _, n := range nodes {
		zoneOf[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	zones = map[string]int{}
	for _, pod := range pods {
		if pod.Namespace == corev1.NamespaceDefault || pod.DeletionTimestamp != nil {
			continue
		}
		total++
		if pod.Spec.NodeName != "" {
			bound++
			zones[zoneOf[pod.Spec.NodeName]]++
		}
	}
	return bound, total, zones
}

func (d *demo) perZone(zones map[string]int) string {
	parts := make([]string, 0, len(d.plan.Zones))
	for _, zone := range d.plan.Zones {
		parts = append(parts, fmt.Sprintf("%s %d", zone, zones[zone]))
	}
	return strings.Join(parts, " ")
}

// rateWindow is over how long the shown rate is taken.
const rateWindow = 2 * time.Second

func (d *demo) placeStatus() string {
	bound, _, zones := d.tally()
	total := d.plan.Replicas()
	for _, g := range d.plan.Gangs {
		total += g.Members
	}
	rate := float64(d.seen.boundSince(time.Now().Add(-rateWindow))) / rateWindow.Seconds()
	return fmt.Sprintf("%s bound, %s, %.0f pods/s", bar(bound, total), d.perZone(zones), rate)
}

func (d *demo) drainStatus() string {
	bound, total, zones := d.tally()
	return fmt.Sprintf("%s left %d, %d bound, %d wait, %s", d.plan.LostZone(), zones[d.plan.LostZone()], bound, total-bound, d.perZone(zones))
}

func (d *demo) placeOutcome() string {
	bound, total, zones := d.tally()
	return fmt.Sprintf("%d pods bound, %d wait; %s", bound, total-bound, d.perZone(zones))
}
