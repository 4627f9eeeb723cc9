package framework

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

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

// packNative has a native gang be in one zone.
func (c *cluster) packNative(name, annotation string) {
	c.t.Helper()
	c.editNativeGroup(name, func(group *schedulingv1beta1.PodGroup) {
		group.Annotations = map[string]string{annotation: v1.LabelTopologyZone}
	})
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
		c.createNativeGang("n", 2, train)
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
		c.createPodGroup("n", 3)
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
	cases := maps.Clone(packings)
	cases["the filters refuse all"] = packing{podgroup.RequiredTopologyAnnotation, 4, func(c *cluster, _ func(string) *st.PodWrapper) {
		c.create(guard("a-0", v1.LabelTopologyZone), guard("b-0", v1.LabelTopologyZone))
	}, nil, &refusals{native: "none of the 2 domains of topology.kubernetes.io/zone"}}
	for name, tt := range cases {
		nativeBubble(t, name, func(t *testing.T) {
			c := newPackingCluster(t)
			c.createPodGroup("g", tt.size)
			c.packNative("g", tt.annotation)
			tt.run(t, c, guarded, func(name string) *st.PodWrapper { return nativeMember("g", name) }, func() {
				c.requireGroupCondition("g", native.ConditionFits, metav1.ConditionFalse, tt.says.native)
			})
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
		c.createPodGroup("n", 3)
		c.packNative("n", podgroup.RequiredTopologyAnnotation)
		names := c.createNativeMembers("n", 3)
		c.requireBound(names...)
		require.Equal(t, map[string]int{"a": 3}, c.zonesOf(names...))
		require.Len(t, c.listPods("low-b"), 3)
	})
}

// TestAnnotationsOfPackingThatDoNotApply: the PodGroup says so, until they are corrected.
func TestAnnotationsOfPackingThatDoNotApply(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := startGangCluster(t, guarded, 3)
		c.createPodGroup("n", 3)
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
