package karpenter

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/build"
)

// TestKarpenterAndGangs: for a gang that has to be in one zone, and is shown by an affinity, nodes are bought in one
// zone. A running gang with a budget is not taken apart.
func TestKarpenterAndGangs(t *testing.T) {
	c := start(t)
	t.Run("in one zone, not shown", func(t *testing.T) { c.in(t).testGangNotShown() })
	t.Run("without a budget", func(t *testing.T) { c.in(t).testConsolidatedGang(false) })
	t.Run("with a budget", func(t *testing.T) { c.in(t).testConsolidatedGang(true) })
	c.show()
	t.Run("in one zone, shown", func(t *testing.T) { c.in(t).testGangShown() })
}

const gang = "train"

func (c *cluster) makeGroup(members int32, annotations map[string]string) {
	c.t.Helper()
	c.Make(c.t, &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gang, Annotations: annotations}, Spec: schedulingv1alpha1.PodGroupSpec{MinMember: members},
	})
}

// inOneZone is the annotation of a gang that has to be in one zone.
func inOneZone() map[string]string {
	return map[string]string{"zonewise.dev/required-topology": corev1.LabelTopologyZone}
}

// testGangNotShown: each member needs a node. There is one in zone a and one in zone b, so that six are bought: no zone
// has eight.
func (c *cluster) testGangNotShown() {
	c.makeGroup(8, inOneZone())
	c.deploy(gang, 8, "3", build.Member(gang))
	c.until("the scheduler finds no zone for the gang on eight nodes", func() (bool, error) {
		var events corev1.EventList
		err := c.List(c.t.Context(), &events, client.InNamespace(namespace))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "FailedScheduling" && strings.HasPrefix(e.Message, "0/8 nodes are available: PodGroup shop/"+gang)
		}), err
	})
	c.waitLooked()
	require.Len(c.t, c.nodeClaims(), 6)
	require.Equal(c.t, "waiting 8", c.running(gang))
}

// testGangShown: what eight members lack is bought in one zone.
func (c *cluster) testGangShown() {
	c.makeGroup(8, inOneZone())
	c.waitShown(map[string]string{schedulingv1alpha1.PodGroupLabel: gang})
	c.deploy(gang, 8, "3", build.Member(gang))
	c.until("the gang runs in one zone", func() (bool, error) {
		return slices.Contains([]string{"a 8", "b 8", "c 8"}, c.running(gang)), nil
	})
}

// testConsolidatedGang: a gang of four runs on four nodes, which are then three quarters empty.
func (c *cluster) testConsolidatedGang(budget bool) {
	annotations := map[string]string{}
	if budget {
		annotations["zonewise.dev/disruption-budget"] = "minMember"
	}
	c.deploy("other", 4, "3", inZone("c"))
	c.waitRunning("other", "c 4")
	c.makeGroup(4, annotations)
	c.deploy(gang, 4, "1", build.Member(gang), inZone("c"))
	c.waitRunning(gang, "c 4")
	before, nodes := c.uids(gang), c.boughtNodes()
	require.Len(c.t, nodes, 4)
	if !budget {
		c.remove("other")
		c.untilLooked("a member is evicted", func() (bool, error) {
			now := c.uids(gang)
			return slices.ContainsFunc(before, func(uid types.UID) bool { return !slices.Contains(now, uid) }), nil
		})
		return
	}
	c.until("the budget has counted the members", func() (bool, error) {
		pdb := &policyv1.PodDisruptionBudget{}
		err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: gang}, pdb)
		return pdb.Status.CurrentHealthy == 4 && pdb.Status.ObservedGeneration == pdb.Generation, client.IgnoreNotFound(err)
	})
	c.remove("other")
	for i := range nodes {
		c.waitStays(&nodes[i], "DisruptionBlocked", "prevents pod evictions")
	}
	require.Equal(c.t, before, c.uids(gang))
	require.Equal(c.t, "c 4", c.bought())
}
