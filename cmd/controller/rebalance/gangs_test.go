package rebalance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/test/clitest"
)

// halfBound is a cluster with a gang of three that asks for recovery and has to be in one zone. Two members are bound
// in zone a, where there is no room for the third.
func halfBound() *clitest.Cluster {
	c := clitest.New()
	c.Node("a", "a", "8", "32Gi")
	c.Node("b", "b", "12", "32Gi")
	c.Gang("train", 3)
	group := snapshot.List[*schedulingv1alpha1.PodGroup](c.Snapshot)[0]
	group.Annotations = map[string]string{
		podgroup.RecoveryPolicyAnnotation: podgroup.RecoveryEvict, podgroup.RequiredTopologyAnnotation: v1.LabelTopologyZone,
	}
	for i, node := range []string{"a", "a", ""} {
		pod := c.Pod(fmt.Sprint("train-", i), node, clitest.Plain("4", "1Gi"), map[string]string{"app": "train", schedulingv1alpha1.PodGroupLabel: "train"})
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job-train", Controller: ptr.To(true)}}
	}
	return c
}

// TestGangBoundInPartIsEvicted: with the real scheduler, which reports the gang in the PodGroup's phase. Its members
// are evicted together after five minutes, whatever maxAtOnce is. It is whole where there is room for all of it, and
// waits as a whole where there is none. Another process goes on at any time.
func TestGangBoundInPartIsEvicted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		taken string // of zone b
		why   string
		bound map[string]int
	}{
		{"there is room elsewhere", "", "the gang is whole", map[string]int{"b": 3}},
		{"there is none", "12", "the gang waits as a whole", map[string]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := halfBound()
			if tc.taken != "" {
				c.Pod("batch", "b", clitest.Plain(tc.taken, "1Gi"), nil)
			}
			w := run(t, c, newRebalance("train"))
			listed := func() bool { return len(w.stored.Status.PartlyBound) == 1 }
			w.turns("the gang is listed", listed)
			require.Empty(t, w.evicted)
			since := w.stored.Status.PartlyBound[0].Since
			w.restart()
			w.turns("it is to be evicted", func() bool { return len(w.evicted) > 0 })
			require.Equal(t, []string{"train-0", "train-1"}, w.evicted)
			require.GreaterOrEqual(t, w.sim.Now().Sub(since.Time), 5*time.Minute)
			w.restart()
			w.turns("the moves are over", func() bool {
				return len(w.stored.Status.Moves) == 2 && w.stored.Status.Moves[0].State == v1alpha1.MoveMoved
			})
			for i := range w.stored.Status.Moves {
				require.Equal(t, tc.why, w.stored.Status.Moves[i].Why)
			}
			require.Equal(t, tc.bound, w.bound("train"))
			require.Empty(t, w.stored.Status.PartlyBound)
			require.Nil(t, w.stored.Status.Stop)
			for range 30 {
				w.schedule()
				w.turn()
				w.pass(time.Minute)
			}
			require.Len(t, w.evicted, 2, "nothing more is evicted")
		})
	}
}

// TestGangThatStays: what is against the eviction is said in the status, and nothing is evicted.
func TestGangThatStays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *clitest.Cluster, group *schedulingv1alpha1.PodGroup)
		why    string // empty: the gang is not listed
	}{
		{"not asked for", func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) { g.Annotations = nil }, ""},
		{"asked for wrongly", func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) {
			g.Annotations[podgroup.RecoveryPolicyAnnotation] = "evict"
		}, `annotation zonewise.dev/recovery-policy is "evict", must be "Evict"`},
		{"a member is not selected", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			c.Pods()[0].Labels["app"] = "other"
		}, "1 of 2 bound members are selected, must be all"},
		{"no member is selected", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			c.Pods()[0].Labels["app"], c.Pods()[1].Labels["app"] = "other", "other"
		}, ""},
		{"a member asks not to be", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			c.Pods()[1].Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
		}, "member train-1 has the annotation karpenter.sh/do-not-disrupt"},
		{
			"a member has no controller", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) { c.Pods()[1].OwnerReferences = nil },
			"member train-1 would not be replaced: no controller replaces it",
		},
		{"a budget allows one eviction", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			c.Budget("train", 1)
		}, "the eviction of member train-1 would be refused"},
		{"a member does not exist", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			delete(c.Pods()[2].Labels, schedulingv1alpha1.PodGroupLabel)
		}, ""},
		{"a member is gated", func(c *clitest.Cluster, _ *schedulingv1alpha1.PodGroup) {
			c.Pods()[2].Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "quota"}}
		}, ""},
		{"whole by now", func(_ *clitest.Cluster, g *schedulingv1alpha1.PodGroup) { g.Spec.MinMember = 2 }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := halfBound()
			group := snapshot.List[*schedulingv1alpha1.PodGroup](c.Snapshot)[0]
			group.Status.Phase = schedulingv1alpha1.PodGroupUnknown
			tc.change(c, group)
			w := newWorld(t)
			w.cluster, w.stored = c, newRebalance("train")
			w.turn(0)
			w.turn(6 * time.Minute)
			w.turn(6 * time.Minute)
			require.Empty(t, w.evicted)
			if tc.why == "" {
				require.Empty(t, w.stored.Status.PartlyBound)
				return
			}
			require.Len(t, w.stored.Status.PartlyBound, 1)
			require.Contains(t, w.stored.Status.PartlyBound[0].Why, tc.why)
		})
	}
}

// TestGangsOfTwoRebalances: a gang that one has evicted rests for the other too.
func TestGangsOfTwoRebalances(t *testing.T) {
	c := halfBound()
	snapshot.List[*schedulingv1alpha1.PodGroup](c.Snapshot)[0].Status.Phase = schedulingv1alpha1.PodGroupUnknown
	w := newWorld(t)
	w.cluster, w.stored = c, newRebalance("train")
	other := newRebalance("train")
	other.Name, other.UID = "zz", "other"
	other.Status.Moves = []v1alpha1.RebalanceMove{{
		Workload: "PodGroup shop/train", PodGroup: "u", UID: "gone", State: v1alpha1.MoveFailed, At: metav1.NewTime(w.now.Add(time.Minute)),
	}}
	c.Add(other)
	rs := []*v1alpha1.ZoneRebalance{w.stored, other}
	l := w.controller.newLook(c.Snapshot, rs)
	defer l.close()
	all := func(*v1.Pod) bool { return true }
	for _, g := range l.gangs(w.stored, all) {
		require.Equal(t, "another ZoneRebalance had its members evicted within the cooldown", g.Stays)
	}
	w.now = w.now.Add(time.Hour)
	gangs := l.gangs(w.stored, all)
	require.Len(t, gangs, 1)
	for _, g := range gangs {
		require.Empty(t, g.Stays)
	}
}

// TestGangIsTriedSeldom: whether members may be evicted is asked of a copy, and the answer is kept for five minutes,
// whatever changes. It is forgotten with the gang.
func TestGangIsTriedSeldom(t *testing.T) {
	w := newWorld(t)
	w.cluster, w.stored = halfBound(), newRebalance("train")
	w.cluster.Budget("train", 1)
	group := snapshot.List[*schedulingv1alpha1.PodGroup](w.cluster.Snapshot)[0]
	group.Status.Phase = schedulingv1alpha1.PodGroupUnknown
	w.turn(0)
	w.turn(6 * time.Minute)
	first := w.controller.tried[group.UID]
	require.Equal(t, w.now, first.At)
	require.Contains(t, first.Refused, "would be refused")
	w.cluster.Pod("other", "b", clitest.Plain("1", "1Gi"), nil)
	w.turn(4 * time.Minute)
	require.Equal(t, first, w.controller.tried[group.UID])
	w.turn(time.Minute)
	require.Equal(t, w.now, w.controller.tried[group.UID].At)
	w.cluster = clitest.New()
	w.turn(time.Minute)
	require.Empty(t, w.controller.tried)
}

// TestMemberAsksToStay: after the first request, which was refused.
func TestMemberAsksToStay(t *testing.T) {
	w := newWorld(t)
	w.cluster, w.stored = halfBound(), newRebalance("train")
	snapshot.List[*schedulingv1alpha1.PodGroup](w.cluster.Snapshot)[0].Status.Phase = schedulingv1alpha1.PodGroupUnknown
	w.refused = errors.New("a webhook")
	w.turn(0)
	w.turn(6 * time.Minute)
	require.Equal(t, []string{"train-0", "train-1"}, w.evicted)
	w.cluster.Pods()[1].Annotations = map[string]string{clitest.DoNotDisrupt: "true"}
	w.turn(10 * time.Second)
	require.Len(t, w.evicted, 2)
	require.Len(t, w.stored.Status.Moves, 2)
	for _, m := range w.stored.Status.Moves {
		require.Equal(t, v1alpha1.MoveRefused, m.State)
		require.Equal(t, "member train-1 has the annotation karpenter.sh/do-not-disrupt", m.Why)
	}
}
