package rebalance

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// drifted is a cluster whose zone c is empty: two of the six pods of web are to be moved there.
func drifted(hard v1.UnsatisfiableConstraintAction) *clitest.Cluster {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node(zone, zone, "8", "32Gi")
	}
	add := c.Deployment("web", 6, "1", "1Gi", func(p *v1.PodTemplateSpec) {
		constraint := clitest.ZoneSpread("web", 1)
		constraint.WhenUnsatisfiable = hard
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
	})
	for _, node := range []string{"a", "a", "a", "b", "b", "b"} {
		add(node)
	}
	return c
}

// TestStopsOfARunningCluster: with the real scheduler, a plan is stopped when the cluster does not follow it. The first
// pod is evicted, and then something happens that the plan does not know.
func TestStopsOfARunningCluster(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rule   v1.UnsatisfiableConstraintAction
		before func(w *running) // the eviction
		after  func(w *running) // the eviction, before there is a pod in place of the evicted one
		ready  func(w *running) // the pod in its place has a node
		reason string
	}{
		{
			name: "its zone is full, and the rule is a wish", rule: v1.ScheduleAnyway, reason: v1alpha1.ReasonOtherZone,
			after: func(w *running) { w.put(occupant(w, "batch", "c", "8", nil)) },
		},
		{
			name: "its zone is full, and the rule is hard", rule: v1.DoNotSchedule, reason: v1alpha1.ReasonNotBound,
			after: func(w *running) { w.put(occupant(w, "batch", "c", "8", nil)) },
		},
		{
			name: "no pod comes in its place", rule: v1.DoNotSchedule, reason: v1alpha1.ReasonNotBound,
			after: func(w *running) {
				for _, pod := range sim.List[*v1.Pod](w.sim) {
					if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
						w.sim.Remove(pod)
					}
				}
			},
		},
		{
			name: "the pod in its place is not ready", rule: v1.DoNotSchedule, reason: v1alpha1.ReasonPodNotReady,
			ready: func(w *running) {
				for _, pod := range sim.List[*v1.Pod](w.sim) {
					if pod.Spec.NodeName == "c" {
						pod = pod.DeepCopy()
						pod.Status.Conditions = nil
						w.put(pod)
					}
				}
			},
		},
		{
			name: "others of the workload come at the same time", rule: v1.DoNotSchedule, reason: v1alpha1.ReasonNotBetter,
			ready: func(w *running) {
				for _, name := range []string{"other-1", "other-2", "other-3"} {
					pod := occupant(w, name, "a", "1", map[string]string{"app": "web"})
					for _, like := range sim.List[*v1.Pod](w.sim) {
						if like.Labels["app"] == "web" {
							pod.Labels, pod.OwnerReferences, pod.Spec.TopologySpreadConstraints = like.Labels, like.OwnerReferences, like.Spec.TopologySpreadConstraints
						}
					}
					w.put(pod)
				}
			},
		},
		{
			name: "the API server refuses", rule: v1.DoNotSchedule, reason: v1alpha1.ReasonEvictionRefused,
			before: func(w *running) { w.server.evict = func(*v1.Pod) error { return errors.New("a webhook refuses") } },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := run(t, drifted(tc.rule), newRebalance("web"))
			w.turns("a plan", func() bool { return w.stored.Status.Planned == 2 })
			if tc.before != nil {
				tc.before(w)
			}
			w.turn()
			require.Len(t, w.evicted, 1)
			if tc.after != nil {
				tc.after(w)
			}
			if tc.ready != nil {
				w.schedule()
				tc.ready(w)
			}
			w.turns("a stop", func() bool { return w.stored.Status.Stop != nil })
			require.Equal(t, tc.reason, w.stored.Status.Stop.Reason, w.stored.Status.Stop.Message)
			require.Equal(t, tc.reason, w.reason(v1alpha1.ConditionStopped))
			require.Contains(t, w.stored.Status.Stop.Message, "web-1-")
			require.Len(t, w.stored.Status.Moves, 1, "the rest of the plan is dropped")
			require.Contains(t, w.events, "PlanStopped")

			// Nothing is evicted for the cooldown, by another process neither.
			asked, resumes := len(w.evicted), w.stored.Status.Stop.ResumesAt.Time
			w.restart()
			for w.sim.Now().Before(resumes.Add(-time.Minute)) {
				w.turn()
				w.pass(time.Minute)
			}
			require.Len(t, w.evicted, asked)
			require.Equal(t, v1alpha1.ReasonStopped, w.reason(v1alpha1.ConditionBalanced))
		})
	}
}

// TestOnlyWhatTheClusterFollows: what has happened since the plan was made is seen before a pod is evicted, although no
// node has changed. Of two pods that compete for the room in zone c the one that came meanwhile keeps it, and no pod is
// evicted in vain.
func TestOnlyWhatTheClusterFollows(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *running)
		stays  string
		moved  int
	}{
		{"another pod has the room", func(w *running) { w.put(occupant(w, "batch", "c", "8", nil)) }, "its replacement would wait", 0},
		{"another pod waits for the room", func(w *running) { w.put(occupant(w, "batch", "", "8", nil)) }, "its replacement would wait", 0},
		{"a budget", func(w *running) {
			c := clitest.New()
			c.Budget("web", 6)
			w.put(snapshot.List[*policyv1.PodDisruptionBudget](c.Snapshot)[0])
		}, "the eviction is refused", 0},
		{"another pod leaves room enough", func(w *running) { w.put(occupant(w, "batch", "c", "6", nil)) }, "", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
			w.turns("a plan", func() bool { return w.stored.Status.Planned == 2 })
			hash := w.stored.Status.Cluster.Hash
			tc.change(w)
			w.turns("the plan is over", func() bool { return w.stored.Status.Planned == 0 && act.UnderWay(w.stored) == 0 })
			require.Len(t, w.evicted, tc.moved)
			require.Equal(t, hash, w.stored.Status.Cluster.Hash)
			require.Nil(t, w.stored.Status.Stop)
			if tc.stays != "" {
				require.Contains(t, w.stored.Status.Stays[0].Why, tc.stays)
			}
		})
	}
}

// TestClusterChangesWithinAPlan: when the nodes change between two moves, what is left is planned anew before a further
// pod is evicted, and the moves go where the new plan says.
func TestClusterChangesWithinAPlan(t *testing.T) {
	w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
	w.turns("a plan", func() bool { return w.stored.Status.Planned == 2 })
	first := w.stored.Status.Cluster.Hash
	w.turn()
	w.schedule()
	c := clitest.New()
	d := c.Node("d", "d", "8", "32Gi")
	d.UID = "uid-of-d"
	w.put(d)
	w.schedule()
	w.turn()
	require.Equal(t, v1alpha1.ReasonSettling, w.reason(v1alpha1.ConditionReady), "a zone is new")
	require.Len(t, w.evicted, 1)
	w.turns("another plan", func() bool { return w.stored.Status.Cluster.Hash != first })
	require.Len(t, w.evicted, 1)
	w.turns("all is balanced", func() bool { return w.reason(v1alpha1.ConditionBalanced) == v1alpha1.ReasonBalanced })
	require.Nil(t, w.stored.Status.Stop)
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 1, "d": 1}, w.bound("web"))
	require.Len(t, w.evicted, 2)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveMoved, v1alpha1.MoveMoved}, w.states())
}
