package gangbudgets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/clitest"
)

// ofJob gives pods the label of a Job.
func ofJob(uid string, members ...*v1.Pod) {
	for _, pod := range members {
		pod.Labels = map[string]string{batchv1.ControllerUidLabel: uid}
	}
}

// TestNativePlan: a native gang has a budget by the label of its Job.
func TestNativePlan(t *testing.T) {
	annotated := map[string]string{podgroup.DisruptionBudgetAnnotation: podgroup.BudgetOfMinMember}
	nodes := []string{"a", "a", "a"}
	const noLabel = "the members are not pods of one Job, and not all have label zonewise.dev/native-pod-group: a budget selects by labels"
	selected := map[string]string{batchv1.ControllerUidLabel: "1"}
	for _, tc := range []struct {
		name     string
		minCount int32
		nodes    []string
		change   func(c *clitest.Cluster)
		want     wanted
		selector map[string]string
	}{
		{name: "a whole gang", minCount: 3, nodes: nodes, want: wanted{create: []string{"train"}}, selector: selected},
		{name: "a gang that is not whole", minCount: 4, nodes: nodes},
		{name: "no gang", nodes: nodes},
		{
			name: "members of two Jobs", minCount: 3, nodes: nodes, want: wanted{refusal: noLabel},
			change: func(c *clitest.Cluster) { ofJob("2", c.Pods()[0]) },
		},
		{
			name: "members without a Job", minCount: 3, nodes: nodes, want: wanted{refusal: noLabel},
			change: func(c *clitest.Cluster) { ofJob("", c.Pods()...) },
		},
		{
			name: "members of two Jobs with the label of their group", minCount: 3, nodes: nodes, want: wanted{create: []string{"train"}},
			selector: map[string]string{nativeGroupLabel: "train"},
			change: func(c *clitest.Cluster) {
				ofJob("2", c.Pods()[0])
				for _, pod := range c.Pods() {
					pod.Labels[nativeGroupLabel] = "train"
				}
			},
		},
		{
			name: "a member that waits", minCount: 3, nodes: []string{"a", "a", "a", ""},
			want: wanted{create: []string{"train"}}, selector: selected,
		},
		{
			name: "the budget of a gang that has lost members stays as it is", minCount: 3,
			nodes: []string{"a", "", ""},
			change: func(c *clitest.Cluster) {
				c.Add(budgetOf(groupsOf(c.Snapshot)[0], selected))
				c.Pods()[0].Labels["index"] = "0"
			},
		},
		{
			name: "another minCount", minCount: 2, nodes: nodes, want: wanted{update: []string{"train"}}, selector: selected,
			change: func(c *clitest.Cluster) {
				b := budgetOf(groupsOf(c.Snapshot)[0], selected)
				b.Spec.MinAvailable, b.Annotations = new(intstr.FromInt32(3)), map[string]string{"team": "shop"}
				c.Add(b)
			},
		},
		{
			name: "a gang that has ended", minCount: 3, want: wanted{remove: []string{"train"}},
			change: func(c *clitest.Cluster) { c.Add(budgetOf(groupsOf(c.Snapshot)[0], selected)) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.New()
			c.Node("a", "a", "8", "32Gi")
			c.NativeGang("train", tc.minCount, "1", tc.nodes...).Annotations = annotated
			ofJob("1", c.Pods()...)
			if tc.change != nil {
				tc.change(c)
			}
			p := planFor(c.Snapshot)
			requirePlan(t, tc.want, p)
			for _, b := range append(p.create, p.update...) {
				require.Equal(t, tc.selector, b.Spec.Selector.MatchLabels)
				require.Equal(t, tc.minCount, b.Spec.MinAvailable.IntVal)
				require.Equal(t, "scheduling.k8s.io", strings.Split(b.OwnerReferences[0].APIVersion, "/")[0])
			}
			for _, b := range p.update {
				require.Equal(t, "shop", b.Annotations["team"], "what others have added stays")
			}
		})
	}
}

// TestOneNameInBothAPIs: of two gangs with one name the first to have a budget keeps it.
func TestOneNameInBothAPIs(t *testing.T) {
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	native := c.NativeGang("train", 3, "1", "a", "a", "a")
	ofJob("1", c.Pods()...)
	g := c.Gang("train", 1)
	native.Annotations = map[string]string{podgroup.DisruptionBudgetAnnotation: podgroup.BudgetOfMinMember}
	g.Annotations, g.UID = native.Annotations, "other"
	p := planFor(c.Snapshot)
	require.Equal(t, native.UID, p.create[0].OwnerReferences[0].UID)
	require.Empty(t, p.refusals)

	c.Add(p.create[0])
	c.Pod("old", "a", clitest.Plain("1", "1Gi"), map[string]string{schedulingv1alpha1.PodGroupLabel: "train"})
	p = planFor(c.Snapshot)
	requirePlan(t, wanted{refusal: "PodDisruptionBudget train exists and is not of this PodGroup"}, p)
	require.Equal(t, g.UID, p.refusals[0].group.GetUID())
}

// TestMovedGang: while a workload moves to native PodGroups, whose members may keep the label of the other API, no pod
// has two budgets.
func TestMovedGang(t *testing.T) {
	for name, before := range map[string]bool{"no budget yet": false, "the gang that is left has one": true} {
		t.Run(name, func(t *testing.T) {
			c, g := gang(3)
			left := c.Pods()
			if before {
				c.Add(budgetFor(g))
			}
			moved := c.NativeGang("train-2", 3, "1", "a", "a", "a")
			moved.Annotations = g.Annotations
			for _, pod := range c.Pods()[len(left):] {
				ofJob("2", pod)
				pod.Labels[schedulingv1alpha1.PodGroupLabel] = g.Name
			}
			p := planFor(c.Snapshot)
			require.Empty(t, p.remove)
			require.Len(t, p.refusals, 1)
			require.Equal(t, moved.UID, p.refusals[0].group.GetUID(), "the other one's budget selects its members")
			if before {
				require.Empty(t, p.create)
			} else {
				require.Equal(t, []string{"train"}, names(p.create))
			}
		})
	}
}
