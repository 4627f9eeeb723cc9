package framework

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/features"

	"zonewise.dev/plugins/permitgate/native"
)

// compositeBubble is nativeBubble with kube-scheduler's composite groups on.
func compositeBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	nativeBubble(t, name, test, features.TopologyAwareWorkloadScheduling, features.CompositePodGroup)
}

func (c *cluster) createComposite(parent, name string, minGroupCount int32) {
	c.t.Helper()
	require.NoError(c.t, createComposite(c.t.Context(), c.client, parent, name, minGroupCount))
}

// createPart creates a PodGroup of a composite group, with as many members as it needs, and returns their names. One
// that needs none has a basic policy, and two members.
func (c *cluster) createPart(parent, name string, minCount int32) []string {
	c.t.Helper()
	c.createPodGroup(name, minCount, func(spec *schedulingv1beta1.PodGroupSpec) {
		spec.ParentCompositePodGroupName = &parent
		spec.WorkloadRef = &schedulingv1beta1.WorkloadReference{WorkloadName: "workload", TemplateName: name}
	})
	return c.createNativeMembers(name, int(max(minCount, 2)))
}

// TestCompositeGroupIsBoundWholeOrNotAtAll: each level has what it asks for when the first pod of it is bound.
// kube-scheduler alone binds each pod by itself once the cycle has placed it.
func TestCompositeGroupIsBoundWholeOrNotAtAll(t *testing.T) {
	for name, tree := range map[string]struct {
		// create makes the hierarchy, with a group b, and returns the pods that need b, and those that do not.
		create func(c *cluster) (with, without []string)
		cpus   int
	}{
		"two groups that need each other": {func(c *cluster) (with, without []string) {
			c.createComposite("", "root", 2)
			return append(c.createPart("root", "a", 3), c.createPart("root", "b", 2)...), nil
		}, 5},
		"pods of a basic policy": {func(c *cluster) (with, without []string) {
			c.createComposite("", "root", 2)
			return append(c.createPart("root", "a", 0), c.createPart("root", "b", 2)...), nil
		}, 4},
		"one of two is enough": {func(c *cluster) (with, without []string) {
			c.createComposite("", "root", 1)
			return c.createPart("root", "b", 2), c.createPart("root", "a", 2)
		}, 4},
		"a level that needs both, below one that does without it": {func(c *cluster) (with, without []string) {
			c.createComposite("", "root", 1)
			c.createComposite("root", "both", 2)
			with = append(c.createPart("both", "a", 2), c.createPart("both", "b", 2)...)
			return with, c.createPart("root", "c", 2)
		}, 6},
		"a level that does without it, below one that needs both": {func(c *cluster) (with, without []string) {
			c.createComposite("", "root", 2)
			c.createComposite("root", "one", 1)
			with = c.createPart("one", "b", 2)
			without = append(c.createPart("one", "a", 2), c.createPart("root", "c", 2)...)
			return with, without
		}, 6},
	} {
		compositeBubble(t, name, func(t *testing.T) {
			c := startGangCluster(t, guarded, tree.cpus)
			c.stage.setAnswer(refusing("b-"))
			with, without := tree.create(c)
			c.requireBound(without...)
			c.soon(func() bool { return c.stage.count("b-0")+c.stage.count("b-1") >= 3 })
			require.Empty(t, c.boundAmong(with...), "a level is bound without the group that it needs")
			c.requireRoomFor(len(with))
			c.requireGroupCondition("b", native.ConditionReleased, metav1.ConditionFalse, "not on a Friday")
			require.Nil(t, c.groupCondition("b", native.ConditionGuarded))

			c.stage.setAnswer(nil)
			c.requireBound(with...)
			c.requireGroupCondition("b", native.ConditionReleased, metav1.ConditionTrue, "2 members")
		})
	}
	compositeBubble(t, "kube-scheduler alone", func(t *testing.T) {
		c := startGangCluster(t, alone, 4)
		var others atomic.Int32
		c.refuseBinds(func(pod string) error {
			if pod != "b-1" {
				others.Add(1)
			} else if others.Load() < 3 {
				return refusing("b-1")(pod) // until the others are bound without it
			}
			return nil
		})
		c.createComposite("", "root", 2)
		c.requireBound(append(c.createPart("root", "a", 2), c.createPart("root", "b", 2)...)...)
	})
}

// TestCompositeGroupLosesAMemberAtTheBarrier: what needs it gives back its nodes, in other groups too.
func TestCompositeGroupLosesAMemberAtTheBarrier(t *testing.T) {
	compositeBubble(t, "", func(t *testing.T) {
		c := startGangCluster(t, guarded, 4)
		p := c.slowPreparation("b-1")
		c.createComposite("", "root", 2)
		c.loseAtTheBarrier(p, append(c.createPart("root", "a", 2), c.createPart("root", "b", 2)...), nativeMember("b", "b-0"))
	})
}

// TestCompositeGroupComesBackSoon: a rollback costs it the backoff, and no more than a moment until all of its groups
// are back.
func TestCompositeGroupComesBackSoon(t *testing.T) {
	compositeBubble(t, "", func(t *testing.T) {
		c := startGangCluster(t, guarded, 5)
		c.stage.setAnswer(refusing("b-"))
		c.createComposite("", "root", 2)
		start := c.clock.Now()
		names := append(c.createPart("root", "a", 3), c.createPart("root", "b", 2)...)
		c.soon(func() bool { return c.stage.count("b-0")+c.stage.count("b-1") == 4 })
		require.Less(t, c.clock.Since(start), 8*time.Second, "at most 1s, 2s and 4s")
		for _, name := range names {
			require.Equal(t, 4, c.mishap.tried(name), "one cycle for each backoff: %s", name)
		}
	})
}
