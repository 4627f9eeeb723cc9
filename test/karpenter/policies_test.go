package karpenter

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestKarpenterAndPolicies: for the pods of a policy that is shown by a constraint, a node is bought in the zone for
// which they wait, and the last node of a zone stays.
func TestKarpenterAndPolicies(t *testing.T) {
	c := start(t)
	t.Run("not shown", func(t *testing.T) { c.in(t).testPoliciesNotShown() })
	t.Run("not shown, consolidated", func(t *testing.T) { c.in(t).testConsolidationUnknown() })
	t.Run("a native constraint", func(t *testing.T) { c.in(t).testNativeConstraint() })
	c.show()
	for _, policy := range policies() {
		t.Run(policy.Name+" is shown", func(t *testing.T) { c.in(t).testPolicyShown(policy) })
	}
}

// policies are three ways to need zone c, each of which selects the app of its name. They count nodes with taints,
// since the node that is bought in zone c is Ready before Karpenter takes its taint from it: pods that wait for the
// zone would go to the others in that time.
func policies() []*v1alpha1.ZoneSpreadPolicy {
	policy := func(name string, spec v1alpha1.ZoneSpreadPolicySpec) *v1alpha1.ZoneSpreadPolicy {
		spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		spec.NodeTaintsPolicy = v1alpha1.Ignore
		spec.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		return &v1alpha1.ZoneSpreadPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	}
	return []*v1alpha1.ZoneSpreadPolicy{
		policy("max-skew", v1alpha1.ZoneSpreadPolicySpec{}),
		policy("max-per-zone", v1alpha1.ZoneSpreadPolicySpec{MaxPerZone: ptr.To(intstr.FromInt32(1))}),
		policy("quorum-safe", v1alpha1.ZoneSpreadPolicySpec{QuorumSafe: true}),
	}
}

// testPoliciesNotShown: the pods that only a policy keeps out of the zones a and b fit there as Karpenter sees it.
func (c *cluster) testPoliciesNotShown() {
	for _, policy := range policies() {
		c.Make(c.t, policy)
		c.deploy(policy.Name, 3, "500m")
	}
	for _, policy := range policies() {
		c.waitFits(policy.Name, 1)
	}
	require.Empty(c.t, c.bought())
}

// testPolicyShown: a node is bought in zone c, and stays although its pods would fit in the zones a and b.
func (c *cluster) testPolicyShown(policy *v1alpha1.ZoneSpreadPolicy) {
	c.Make(c.t, policy)
	c.waitShown(policy.Spec.PodSelector.MatchLabels)
	c.deploy(policy.Name, 3, "500m")
	c.waitRunning(policy.Name, "a 1, b 1, c 1")
	c.requireThirdZoneStays(policy.Name)
}

// testNativeConstraint: the same with a hard constraint of the pods.
func (c *cluster) testNativeConstraint() {
	const app = "native"
	c.deploy(app, 3, "1", build.Spread(app, 1, corev1.DoNotSchedule), func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints[0].MinDomains = ptr.To[int32](3) })
	c.waitRunning(app, "a 1, b 1, c 1")
	c.requireThirdZoneStays(app)
}

func (c *cluster) requireThirdZoneStays(app string) {
	c.t.Helper()
	before := c.uids(app)
	require.Equal(c.t, "c 1", c.bought())
	c.waitStays(&c.boughtNodes()[0], "Unconsolidatable", "Can't replace with a cheaper node")
	require.Equal(c.t, "c 1", c.bought())
	require.Equal(c.t, before, c.uids(app))
}

// testConsolidationUnknown: the node in zone c, which was bought for something else, is removed and its pod evicted:
// Karpenter does not know that the pod is to be in zone c.
func (c *cluster) testConsolidationUnknown() {
	policy := policies()[0]
	c.Make(c.t, policy)
	c.deploy("other", 1, "1", inZone("c"))
	c.waitRunning("other", "c 1")
	c.deploy(policy.Name, 3, "500m")
	c.waitRunning(policy.Name, "a 1, b 1, c 1")
	before, node := c.uids(policy.Name), &c.boughtNodes()[0]
	c.remove("other")
	c.waitRemoved(node, "Underutilized")
	require.NotEqual(c.t, before, c.uids(policy.Name))
	require.NotContains(c.t, c.running(policy.Name), "c ")
}
