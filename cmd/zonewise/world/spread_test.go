package world

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/cmd/zonewise/clitest"
)

func TestSpreadsAreMeasuredAsTheSchedulerDoes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.TopologySpreadConstraint)
		pods   []string // nodes
		nodes  func(*clitest.Cluster)
		want   Spread
	}{
		{name: "even", pods: []string{"a0", "b0", "c0"}, want: Spread{Pods: 3, Most: 1, Zones: map[string]int{"a": 1, "b": 1, "c": 1}, MaxSkew: 1, Hard: true}},
		{name: "uneven", pods: []string{"a0", "a1", "b0"}, want: Spread{Pods: 3, Most: 2, Zones: map[string]int{"a": 2, "b": 1, "c": 0}, Skew: 2, MaxSkew: 1, Hard: true}},
		{name: "a wish", pods: []string{"a0"}, change: func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }, want: Spread{Pods: 1, Most: 1, Zones: map[string]int{"a": 1, "b": 0, "c": 0}, Skew: 1, MaxSkew: 1}},
		{
			name: "a cordoned zone counts unless taints are honored", pods: []string{"a0", "b0", "b1", "a1"}, nodes: cordonC,
			want: Spread{Pods: 4, Most: 2, Zones: map[string]int{"a": 2, "b": 2, "c": 0}, Skew: 2, MaxSkew: 1, Hard: true},
		},
		{
			name: "and does not when they are", pods: []string{"a0", "b0", "b1", "a1"}, nodes: cordonC,
			change: func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor) },
			want:   Spread{Pods: 4, Most: 2, Zones: map[string]int{"a": 2, "b": 2}, MaxSkew: 1, Hard: true},
		},
		{
			name: "fewer zones than minDomains", pods: []string{"a0", "b0", "c0"},
			change: func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To[int32](4) },
			want:   Spread{Pods: 3, Most: 1, Zones: map[string]int{"a": 1, "b": 1, "c": 1}, Skew: 1, MaxSkew: 1, Hard: true},
		},
		{name: "pods that wait do not count", pods: []string{"a0", "b0", "c0", ""}, want: Spread{Pods: 3, Most: 1, Zones: map[string]int{"a": 1, "b": 1, "c": 1}, MaxSkew: 1, Hard: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			for _, name := range []string{"a0", "a1", "b0", "b1", "c0", "c1"} {
				c.Node(name, name[:1], "8", "32Gi")
			}
			if tc.nodes != nil {
				tc.nodes(c)
			}
			add := c.Deployment("web", int32(len(tc.pods)), "1", "1Gi", func(p *corev1.PodTemplateSpec) {
				constraint := clitest.ZoneSpread("web", 1)
				if tc.change != nil {
					tc.change(&constraint)
				}
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{constraint}
			})
			for _, node := range tc.pods {
				add(node)
			}
			tc.want.Workload = "Deployment shop/web"
			got, left := New(c.Snapshot, clitest.Now).Spreads("shop", 1000)
			require.Zero(t, left)
			require.Equal(t, []Spread{tc.want}, got)
			got, left = New(c.Snapshot, clitest.Now).Spreads("", 5)
			require.Empty(t, got, "there are 6 nodes to look at")
			require.Equal(t, 1, left)
		})
	}
}

func cordonC(c *clitest.Cluster) {
	for i := range c.Nodes {
		c.Nodes[i].Spec.Unschedulable = c.Nodes[i].Labels[corev1.LabelTopologyZone] == "c"
	}
}

func TestUnusedSlotsAreThoseOfEachReservation(t *testing.T) {
	w := New(clitest.Story().Snapshot, clitest.Now)
	require.NotEmpty(t, w.Holds())
	all := w.UnusedSlots()
	for _, h := range w.Holds() {
		require.Equal(t, w.Unused(h), all[h])
	}
}
