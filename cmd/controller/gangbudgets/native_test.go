package gangbudgets

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/clitest"
)

// TestNativePlan: a native gang has a budget by labels that are its members' alone.
func TestNativePlan(t *testing.T) {
	annotated := map[string]string{podgroup.DisruptionBudgetAnnotation: podgroup.BudgetOfMinMember}
	nodes := []string{"a", "a", "a"}
	for _, tc := range []struct {
		name                   string
		minCount               int32
		nodes                  []string
		change                 func(c *clitest.Cluster)
		create, update, remove []string
		selector               map[string]string
		refusal                string
	}{
		{
			name: "a whole gang", minCount: 3, nodes: nodes, create: []string{"train"},
			selector: map[string]string{"app": "train"},
		},
		{name: "a gang that is not whole", minCount: 4, nodes: nodes},
		{name: "no gang", nodes: nodes},
		{
			name: "labels that differ between members", minCount: 3, nodes: nodes, create: []string{"train"},
			selector: map[string]string{"job": "1"},
			change: func(c *clitest.Cluster) {
				for i, pod := range c.Pods() {
					pod.Labels = map[string]string{"job": "1", "index": strconv.Itoa(i)}
				}
			},
		},
		{
			name: "another pod has them, too", minCount: 3, nodes: nodes,
			change: func(c *clitest.Cluster) {
				c.Pod("web", "a", clitest.Plain("1", "1Gi"), map[string]string{"app": "train"})
			},
			refusal: "no labels that all members have are theirs alone: a budget selects by labels",
		},
		{
			name: "a member that waits has them, too", minCount: 3, nodes: []string{"a", "a", "a", ""},
			create: []string{"train"}, selector: map[string]string{"app": "train"},
		},
		{
			name: "the budget of a gang that has lost members stays as it is", minCount: 3,
			nodes: []string{"a", "", ""},
			change: func(c *clitest.Cluster) {
				c.Add(budgetOf(groupsOf(c.Snapshot)[0], map[string]string{"app": "train"}))
				c.Pods()[0].Labels["index"] = "0"
			},
		},
		{
			name: "another minCount", minCount: 2, nodes: nodes, update: []string{"train"},
			selector: map[string]string{"app": "train"},
			change: func(c *clitest.Cluster) {
				b := budgetOf(groupsOf(c.Snapshot)[0], map[string]string{"app": "train"})
				b.Spec.MinAvailable, b.Annotations = new(intstr.FromInt32(3)), map[string]string{"team": "shop"}
				c.Add(b)
			},
		},
		{
			name: "a gang that has ended", minCount: 3, remove: []string{"train"},
			change: func(c *clitest.Cluster) {
				c.Add(budgetOf(groupsOf(c.Snapshot)[0], map[string]string{"app": "train"}))
			},
		},
		{
			name: "a PodGroup of the other API has the name", minCount: 3, nodes: nodes,
			change: func(c *clitest.Cluster) {
				c.Gang("train", 1)
				snapshot.List[*schedulingv1alpha1.PodGroup](c.Snapshot)[0].Annotations = annotated
			},
			refusal: "a PodGroup of the other API with this name asks for a budget as well",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("a", "a", "8", "32Gi")
			c.NativeGang("train", tc.minCount, "1", tc.nodes...).Annotations = annotated
			if tc.change != nil {
				tc.change(c)
			}
			p := planFor(c.Snapshot)
			require.Equal(t, tc.create, names(p.create))
			require.Equal(t, tc.update, names(p.update))
			require.Equal(t, tc.remove, names(p.remove))
			for _, b := range append(p.create, p.update...) {
				require.Equal(t, tc.selector, b.Spec.Selector.MatchLabels)
				require.Equal(t, tc.minCount, b.Spec.MinAvailable.IntVal)
				require.Equal(t, "scheduling.k8s.io", strings.Split(b.OwnerReferences[0].APIVersion, "/")[0])
			}
			for _, b := range p.update {
				require.Equal(t, "shop", b.Annotations["team"], "what others have added stays")
			}
			if tc.refusal == "" {
				require.Empty(t, p.refusals)
				return
			}
			require.Len(t, p.refusals, 1)
			require.Equal(t, tc.refusal, p.refusals[0].message)
		})
	}
}
