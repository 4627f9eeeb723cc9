package world

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/clitest"
)

// TestPlacingKeepsTheRules places pods of random workloads in random clusters, and requires of every step what can
// be recounted from the outside: Ask and Place agree, no node is overcommitted, no hard constraint is broken
// by the pod that was placed, and Undo leaves no trace.
func TestPlacingKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clitest.New()
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			n := c.Node(fmt.Sprintf("node-%d", i), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"), fmt.Sprint(rapid.IntRange(1, 8).Draw(t, "cpu")), "16Gi")
			n.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(t, "cordon") == 0
		}
		maxSkew := int32(rapid.IntRange(1, 2).Draw(t, "maxSkew")) //nolint:gosec // small
		spread := rapid.Bool().Draw(t, "spread")
		add := c.Deployment("web", 8, fmt.Sprintf("%dm", 500*rapid.IntRange(1, 4).Draw(t, "request")), "1Gi", func(s *corev1.PodTemplateSpec) {
			if spread {
				s.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", maxSkew)}
			}
		})
		if rapid.Bool().Draw(t, "policy") {
			c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = maxSkew })
		}
		unused := map[string]int64{}
		for i := range c.Nodes {
			unused[c.Nodes[i].Name] = int64(rapid.IntRange(0, 1).Draw(t, "slots"))
		}
		c.Reservation("r", rapid.SampledFrom([]string{"web", "other"}).Draw(t, "owner"), "1", 0, unused)
		waiting := rapid.IntRange(1, 10).Draw(t, "pods")
		for range waiting {
			add("")
		}
		w := New(c.Snapshot, clitest.Now)
		before := fmt.Sprint(w.Rooms(), w.Unused(w.Holds()[0]))
		var placed []*Pod
		for _, p := range w.In(clitest.Namespace) {
			fit := 0
			for _, a := range w.Ask(p.Object) {
				fit += a.Fit
			}
			if ok := w.Place(p); ok != (fit > 0) {
				t.Fatalf("%s: Place says %t, and %d nodes fit", p.Key(), ok, fit)
			}
			if p.Node == nil {
				continue
			}
			placed = append(placed, p)
			if p.Node.Object.Spec.Unschedulable {
				t.Fatalf("%s is on a cordoned node", p.Key())
			}
			check(t, w, p, spread, maxSkew)
		}
		w.Undo(placed)
		if after := fmt.Sprint(w.Rooms(), w.Unused(w.Holds()[0])); after != before {
			t.Fatalf("Undo left a trace:\n%s\n%s", before, after)
		}
	})
}

// check recounts what there is after a pod was placed.
func check(t *rapid.T, w *World, p *Pod, spread bool, maxSkew int32) {
	used := map[*Node]int64{}
	perZone := map[string]int{}
	for _, n := range w.Nodes {
		perZone[n.Zone] += 0
	}
	for _, other := range w.Pods {
		if other.Node != nil {
			used[other.Node] += other.Requests.MilliCPU
			perZone[other.Node.Zone]++
		}
	}
	for n, cpu := range used {
		if cpu != n.Requested.MilliCPU || cpu > n.Allocatable.MilliCPU {
			t.Fatalf("node %s: %d requested, %d recounted, %d allocatable", n.Object.Name, n.Requested.MilliCPU, cpu, n.Allocatable.MilliCPU)
		}
	}
	if !spread {
		return
	}
	fewest := perZone[p.Node.Zone]
	for _, pods := range perZone {
		fewest = min(fewest, pods)
	}
	if perZone[p.Node.Zone]-fewest > int(maxSkew) {
		t.Fatalf("%s in zone %s breaks maxSkew %d: %v", p.Key(), p.Node.Zone, maxSkew, perZone)
	}
}
