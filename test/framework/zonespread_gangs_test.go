package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

func countGangs(s *v1alpha1.ZoneSpreadPolicySpec) { s.Unit = v1alpha1.UnitPodGroup }

// newGang makes the pods of a gang, which are to be in one zone.
func newGang(name string, size int) []*v1.Pod {
	return newPods(size, name, "1", build.Label(v1alpha1.PodGroupLabel, name), func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.PodGroupLabel: name}}, TopologyKey: v1.LabelTopologyZone,
		}}}}
	})
}

// gangsByZone counts the gangs that have a pod in each zone.
func (c *cluster) gangsByZone() map[string]int {
	seen := map[string]bool{}
	counts := map[string]int{}
	for _, pod := range c.listPods("") {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		at := pod.Labels[v1alpha1.PodGroupLabel] + "/" + pod.Spec.NodeName[:1]
		if !seen[at] {
			seen[at] = true
			counts[pod.Spec.NodeName[:1]]++
		}
	}
	return counts
}

// TestGangsAreSpread: with unit PodGroup a policy spreads whole gangs: their sizes do not matter, caps are numbers of
// gangs, and a zone that is closed does not hold them up.
func TestGangsAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("40", "a1", "b1", "c1")
		c.policies.Put(newPolicy(countGangs, maxPerZone("2", 1), failover(2*time.Minute, time.Hour)))
		c.start()
		pods := 0
		for i, size := range []int{8, 1, 4, 2, 6, 3} {
			c.createPods(newGang(fmt.Sprintf("gang-%d", i), size)...)
			pods += size
			c.waitBound("gang", pods)
		}
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.gangsByZone())
		c.eventually("the report is there", func() bool { return c.status().Replicas == 6 && c.status().Pods == 6 })
		require.Zero(t, c.status().Skew)

		c.createPods(newGang("seventh", 3)...)
		c.pass(30 * time.Second)
		require.Empty(t, c.bound("seventh"), "each zone is at its cap")
		// The pods of one gang go, one after the other: the last one makes room.
		of := c.bound("gang-5")
		for name := range of {
			require.Empty(t, c.bound("seventh"))
			c.finish(name)
			c.pass(15 * time.Second)
		}
		c.waitBound("seventh", 3)

		c.policies.Put(newPolicy(countGangs, failover(2*time.Minute, time.Hour)))
		c.editNode("c1", func(n *v1.Node) { n.Spec.Unschedulable = true })
		c.createPods(newGang("eighth", 4)...)
		c.waitBound("eighth", 4)
		c.createPods(newGang("ninth", 4)...)
		c.createPods(newGang("tenth", 4)...)
		c.pass(100 * time.Second)
		require.Less(t, len(c.bound("ninth"))+len(c.bound("tenth")), 8, "a gang waits for zone c")
		c.waitBound("ninth", 4)
		c.waitBound("tenth", 4)
	})
}

// TestNativeGroupsAreWokenByPolicies: a native pod group that a policy has refused a zone is tried again when the
// policy is changed, and does not wait for the end of the group's own backoff, which lasts 17 seconds.
func TestNativeGroupsAreWokenByPolicies(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	inBubble(t, func(t *testing.T) {
		// Given: a group of three, and room for one of its pods by a cap.
		c := newSpreadCluster(t)
		c.addNodes("16", "a1")
		capped := func(pods int32) *v1alpha1.ZoneSpreadPolicy {
			return newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) {
				s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", MaxPods: ptr.To(pods)}}
			})
		}
		c.policies.Put(capped(1))
		c.start()
		require.NoError(t, createNativeGang(t.Context(), c.client, "native", 3))
		c.createPods(newPods(3, "web", "1", func(pod *v1.Pod) {
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("native")}
		})...)
		c.pass(2 * time.Minute)
		require.Empty(t, c.bound("web"))
		// When: the cap is raised.
		c.policies.Put(capped(3))
		// Then: the whole group is bound at once: it was tried more than ten seconds ago.
		c.eventuallyWithin(2*time.Second, "the group is bound", func() bool { return len(c.bound("web")) == 3 })
	})
}
