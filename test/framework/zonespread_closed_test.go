package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// closeNode is one of the ways in which a node can be closed, and opened again.
type closeNode struct {
	name        string
	close, open func(*v1.Node)
}

func ways(now func() time.Time) []closeNode {
	taint := func(key string, effect v1.TaintEffect) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: effect}} }
	}
	untaint := func(n *v1.Node) { n.Spec.Taints = nil }
	readiness := func(status v1.ConditionStatus) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now())}}
		}
	}
	return []closeNode{
		{"cordoned", func(n *v1.Node) { n.Spec.Unschedulable = true }, func(n *v1.Node) { n.Spec.Unschedulable = false }},
		{
			"dead", func(n *v1.Node) {
				readiness(v1.ConditionUnknown)(n)
				taint(v1.TaintNodeUnreachable, v1.TaintEffectNoSchedule)(n)
			},
			func(n *v1.Node) {
				readiness(v1.ConditionTrue)(n)
				untaint(n)
			},
		},
	}
}

// TestClosedZone: a zone whose nodes are cordoned or dead holds the others back for downAfter and no longer, declared
// or not; when it is open again new pods fill it first, and nothing is blocked meanwhile.
func TestClosedZone(t *testing.T) {
	for _, declared := range []bool{true, false} {
		for i := range 2 {
			name := ways(time.Now)[i].name + map[bool]string{true: ", declared"}[declared]
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newSpreadCluster(t)
					way := ways(c.clock.Now)[i]
					c.addNodes("16", "a1", "b1", "c1", "c2")
					edits := []func(*v1alpha1.ZoneSpreadPolicySpec){failover(2*time.Minute, time.Hour)}
					if declared {
						edits = append(edits, declaring("a", "b", "c"))
					}
					c.policies.Put(newPolicy(edits...))
					c.start()
					c.createPods(newPods(3, "web", "100m")...)
					c.waitZones("", map[string]int{"a": 1, "b": 1, "c": 1})

					c.editNode("c1", way.close)
					c.editNode("c2", way.close)
					c.eventually("that is noted at once", func() bool {
						for _, z := range c.status().Zones {
							if z.Name == "c" {
								return z.Since != nil
							}
						}
						return false
					})
					since := c.clock.Now()
					c.createPods(newPods(5, "more", "100m")...)
					c.pass(100 * time.Second)
					require.Equal(t, map[string]int{"a": 1, "b": 1}, c.byZone("more"), "the others wait for it")
					c.waitBound("more", 5)
					require.InDelta(t, 2*time.Minute, c.clock.Since(since), float64(25*time.Second))
					require.Equal(t, map[string]int{"a": 4, "b": 3, "c": 1}, sorted(c.byZone("")))

					c.pass(time.Minute)
					c.editNode("c1", way.open)
					c.editNode("c2", way.open)
					c.eventually("it recovers", func() bool {
						zones := c.status().Zones
						return len(zones) == 3 && zones[2].State == v1alpha1.ZoneRecovering
					})
					c.createPods(newPods(3, "back", "100m")...)
					c.waitZones("back", map[string]int{"c": 3})
					c.eventually("it has caught up", func() bool { return c.status().Zones[2].State == v1alpha1.ZoneAvailable })
				})
			})
		}
	}
}

// sorted gives zone a no fewer pods than zone b: which of the two comes first is chance.
func sorted(counts map[string]int) map[string]int {
	if counts["a"] < counts["b"] {
		counts["a"], counts["b"] = counts["b"], counts["a"]
	}
	return counts
}
