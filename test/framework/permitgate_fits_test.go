package framework

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// countCycles has the plugin that makes mishaps come first in PreFilter, so that it counts the cycles in which
// PermitGate refuses a pod, too.
func (c *cluster) countCycles() {
	c.edit = func(p *config.KubeSchedulerProfile) {
		p.Plugins.PreFilter.Enabled = append(p.Plugins.PreFilter.Enabled, config.Plugin{Name: mishapName})
	}
}

// editNativeGroup changes a native PodGroup.
func (c *cluster) editNativeGroup(name string, edit func(group *schedulingv1beta1.PodGroup)) {
	c.t.Helper()
	groups := c.client.SchedulingV1beta1().PodGroups("default")
	group, err := groups.Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	edit(group)
	group.Generation++
	_, err = groups.Update(c.t.Context(), group, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	c.settle()
}

// TestNativeGangSaysWhyItDoesNotFit by the proof, which names what is short; and that it fits, once it does.
func TestNativeGangSaysWhyItDoesNotFit(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		names := c.createNativeGang("n", 4)
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, "no room for 4 members at once: short of cpu")
		c.soon(func() bool {
			return c.condition("n-0") == "0/1 nodes are available: PodGroup default/n: the cluster has no room for 4 members at once: short of cpu."
		})
		require.Empty(t, c.boundAmong(names...))
		require.Equal(t, "NoRoom", c.groupCondition("n", native.ConditionFits).Reason)
		c.addNode("more", 1)
		c.requireBound(names...)
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionTrue, "placed")
	})
}

// TestNativeGangThatTheFiltersRefuseSaysSo: the proof knows nothing of pods that keep others away.
func TestNativeGangThatTheFiltersRefuseSaysSo(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 4)
		c.create(guard("node-0", v1.LabelHostname))
		c.start(withArgs(guarded))
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 2))
		c.create(train(nativeMember("n", "n-0")), train(nativeMember("n", "n-1")))
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, "member n-0: 0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules")
		require.Equal(t, "Unschedulable", c.groupCondition("n", native.ConditionFits).Reason)
		c.delete("guard-node-0")
		c.requireBound("n-0", "n-1")
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionTrue, "placed")
	})
}

// TestNativeGangThatLacksMembersSaysSo, after a while in which no other comes.
func TestNativeGangThatLacksMembersSaysSo(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 3))
		c.create(nativeMember("n", "n-0"))
		c.pass(4 * time.Second)
		c.create(nativeMember("n", "n-1"))
		c.pass(4 * time.Second)
		require.Nil(t, c.groupCondition("n", native.ConditionFits))
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, "needs 3 members, 2 exist")
		c.create(nativeMember("n", "n-2"))
		c.requireBound("n-0", "n-1", "n-2")
		c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionTrue, "placed")
	})
}

// TestHopelessNativeGangCostsOneMember of each cycle, after the first one: the proof comes before the filters.
func TestHopelessNativeGangCostsOneMember(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 50)
		c.countCycles()
		c.start(withArgs(guarded))
		var began []time.Time // of the members' cycles
		c.mishap.set(func(m *mishap) {
			m.preFilter = func(pod string) *fwk.Status {
				if strings.HasPrefix(pod, "n-") { // the profile's filters are asked about hypothetical pods as well
					began = append(began, c.clock.Now())
				}
				return nil
			}
		})
		c.createNativeGang("n", 100)
		c.pass(30 * time.Second)
		require.Equal(t, began[0], began[50], "kube-scheduler has tried all that fit, and one more")
		later := began[51:]
		require.Greater(t, len(later), 2)
		for i := range later[1:] {
			require.True(t, later[i+1].After(later[i]), "two members at a time")
		}
	})
}

// TestLoweredMinCountWakesANativeGang, and does not have it wait for the end of its backoff.
func TestLoweredMinCountWakesANativeGang(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t, 2)
		c.maxBackoff = 1000
		c.start(withArgs(guarded))
		names := c.createNativeGang("n", 3)
		c.pass(20 * time.Second) // far into a backoff of 16s
		require.Empty(t, c.boundAmong(names...))
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) { group.Spec.SchedulingPolicy.Gang.MinCount = 2 })
		start := c.clock.Now()
		c.soon(func() bool { return len(c.boundAmong(names...)) == 2 })
		require.Less(t, c.clock.Since(start), 2*time.Second)
	})
}

// TestNativePacking is TestPacking for native gangs.
func TestNativePacking(t *testing.T) {
	for name, tt := range map[string]struct {
		annotation string
		size       int
		prepare    func(c *cluster)
		want       map[string]int // nil when the gang waits, empty when its members may be anywhere
		says       string
	}{
		"the tightest": {podgroup.RequiredTopologyAnnotation, 4, nil, map[string]int{"b": 4}, ""},
		"the largest":  {podgroup.RequiredTopologyAnnotation, 8, nil, map[string]int{"a": 8}, ""},
		"beside what is there": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster) {
			c.create(member("", "other").Node("b-0"))
		}, map[string]int{"a": 4}, ""},
		"with a member that is bound": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster) {
			c.create(nativeMember("n", "n-9").Node("a-0"))
		}, map[string]int{"a": 4}, ""},
		"with a quorum that is bound": {podgroup.RequiredTopologyAnnotation, 1, func(c *cluster) {
			c.create(nativeMember("n", "n-9").Node("a-0"))
		}, map[string]int{"a": 1}, ""},
		"the filters refuse the tightest": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster) {
			c.create(guard("b-0", v1.LabelTopologyZone))
		}, map[string]int{"a": 4}, ""},
		"the filters refuse the tightest, and the next is free": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster) {
			c.create(guard("b-0", v1.LabelTopologyZone))
			c.addZonalNode("c-0", "c", 4)
			c.create(member("", "low", 4).Priority(-1).Node("c-0"))
		}, map[string]int{"a": 4}, ""},
		"the filters refuse all": {podgroup.RequiredTopologyAnnotation, 4, func(c *cluster) {
			c.create(guard("a-0", v1.LabelTopologyZone), guard("b-0", v1.LabelTopologyZone))
		}, nil, "none of the 2 domains of topology.kubernetes.io/zone"},
		"none is large enough":                    {podgroup.RequiredTopologyAnnotation, 9, nil, nil, "for 9 members at once in one topology.kubernetes.io/zone"},
		"none is large enough, and one preferred": {podgroup.PreferredTopologyAnnotation, 9, nil, map[string]int{}, ""},
		"preferred": {podgroup.PreferredTopologyAnnotation, 4, nil, map[string]int{"b": 4}, ""},
		"preferred, and the filters refuse it": {podgroup.PreferredTopologyAnnotation, 8, func(c *cluster) {
			c.create(guard("a-0", v1.LabelHostname))
		}, map[string]int{"a": 4, "b": 4}, ""},
	} {
		nativeBubble(t, name, func(t *testing.T) {
			c := newGangCluster(t)
			for i := range 2 {
				c.addZonalNode(fmt.Sprintf("a-%d", i), "a", 4)
				c.addZonalNode(fmt.Sprintf("b-%d", i), "b", 2)
			}
			require.NoError(t, createNativeGang(t.Context(), c.client, "n", int32(tt.size)))
			c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) {
				group.Annotations = map[string]string{tt.annotation: v1.LabelTopologyZone}
			})
			if tt.prepare != nil {
				tt.prepare(c)
			}
			c.start(withArgs(guarded))
			var names []string
			for i := range tt.size {
				names = append(names, fmt.Sprintf("n-%d", i))
				c.create(train(nativeMember("n", names[i])))
			}
			if tt.want == nil {
				c.requireGroupCondition("n", native.ConditionFits, metav1.ConditionFalse, tt.says)
				c.requireUnbound(names...)
				return
			}
			c.requireBound(names...)
			if len(tt.want) > 0 {
				require.Equal(t, tt.want, c.zonesOf(names...))
			}
			if c.exists("low") {
				require.NotEmpty(t, c.bound("low"), "no pod is preempted while another domain has room")
			}
		})
	}
}

// TestPackedNativeGangPreempts in one domain: the only one that would have room for it, and only when the gang has been
// tried as it is.
func TestPackedNativeGangPreempts(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		for i := range 3 {
			for _, zone := range []string{"a", "b"} {
				node := fmt.Sprintf("%s-%d", zone, i)
				c.addZonalNode(node, zone, 1)
				priority := int32(-1)
				if zone == "b" && i == 0 {
					priority = 100
				}
				c.create(member("", "low-"+node).Priority(priority).Node(node))
			}
		}
		c.start(withArgs(guarded))
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 3))
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) {
			group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone}
		})
		c.create(nativeMember("n", "n-0"), nativeMember("n", "n-1"), nativeMember("n", "n-2"))
		c.requireBound("n-0", "n-1", "n-2")
		require.Equal(t, map[string]int{"a": 3}, c.zonesOf("n-0", "n-1", "n-2"))
		require.Len(t, c.listPods("low-b"), 3)
	})
}

// TestAnnotationsOfPackingThatDoNotApply: the PodGroup says so, until they are corrected.
func TestAnnotationsOfPackingThatDoNotApply(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		require.NoError(t, createNativeGang(t.Context(), c.client, "n", 3))
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) {
			group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "no key"}
		})
		c.requireGroupCondition("n", native.ConditionPacked, metav1.ConditionFalse, "must be the key of a node label")
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) { group.Annotations = nil })
		c.requireGroupCondition("n", native.ConditionPacked, metav1.ConditionTrue, "")
		c.editNativeGroup("n", func(group *schedulingv1beta1.PodGroup) {
			group.Annotations = map[string]string{podgroup.PreferredTopologyAnnotation: v1.LabelTopologyZone}
			group.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: v1.LabelTopologyZone}}}
		})
		c.requireGroupCondition("n", native.ConditionPacked, metav1.ConditionFalse, "spec.schedulingConstraints")
	})
}
