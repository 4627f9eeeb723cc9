package native

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/gangbudgets"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/manifests"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/build"
)

// TestNativeGangIsShown to autoscalers: its new members get an affinity that says that they have to be in one zone,
// with which they are bound, and once they are it has a budget.
func TestNativeGangIsShown(t *testing.T) {
	c := startCluster(t)
	policies, err := manifests.FS.ReadFile("components/autoscaler-constraints/nativegangs.yaml")
	require.NoError(t, err)
	c.apply(string(policies))
	c.run("a packed gang", guarded, func(c *cluster) {
		packed := c.createGroup("n", 3, map[string]string{
			podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone, podgroup.DisruptionBudgetAnnotation: podgroup.BudgetOfMinMember,
		})
		c.createGroup("loose", 3, map[string]string{podgroup.RequiredTopologyAnnotation: v1.LabelHostname})
		probe := func(group string) *v1.Pod {
			pod := build.Pod("probe", "1", build.Namespace(c.namespace))
			pod.Labels = nil
			if group != "" {
				pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
			}
			require.NoError(c.t, c.objects.Create(c.t.Context(), pod, client.DryRunAll))
			return pod
		}
		c.eventually("the API server applies the policy", func() bool { return probe("n").Spec.Affinity != nil })
		require.Equal(c.t, []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zonewise.dev/native-pod-group": "n"}},
		}}, probe("n").Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		require.Equal(c.t, map[string]string{"zonewise.dev/native-pod-group": "n"}, probe("n").Labels)
		for _, other := range []string{"loose", "none", ""} {
			require.Nil(c.t, probe(other).Spec.Affinity)
			require.Empty(c.t, probe(other).Labels)
		}
		for _, member := range []string{"n-0", "n-1", "n-2"} {
			c.createPod(member)
		}
		c.eventually("all are bound", func() bool { return len(c.bound()) == 3 })

		reader, err := snapshot.NewClient(c.config)
		require.NoError(c.t, err)
		part := gangbudgets.New(parts.Shared{Client: reader, CPUFraction: 1000, Read: func() *snapshot.Snapshot {
			read, err := snapshot.Read(c.t.Context(), reader, nil)
			require.NoError(c.t, err)
			return read
		}})
		_, err = part.Reconcile(c.t.Context(), parts.Look)
		require.NoError(c.t, err)
		budget, err := c.admin.PolicyV1().PodDisruptionBudgets(c.namespace).Get(c.t.Context(), "n", metav1.GetOptions{})
		require.NoError(c.t, err)
		require.True(c.t, metav1.IsControlledBy(budget, packed))
		require.Equal(c.t, 3, budget.Spec.MinAvailable.IntValue())
		require.Equal(c.t, "n", budget.Spec.Selector.MatchLabels["zonewise.dev/native-pod-group"])
	})
}
