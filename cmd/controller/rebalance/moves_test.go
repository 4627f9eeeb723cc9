package rebalance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/build"
	"zonewise.dev/test/clitest"
)

// drifted is a cluster whose zone c is empty: two of the six pods of web are to be moved there.
func drifted(hard v1.UnsatisfiableConstraintAction) *clitest.Cluster {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node(zone, zone, "8", "32Gi")
	}
	addSpread(c, "web", "1", hard, "a", "a", "a", "b", "b", "b")
	return c
}

// addSpread adds a Deployment that is to be spread, with pods on nodes.
func addSpread(c *clitest.Cluster, app, cpu string, hard v1.UnsatisfiableConstraintAction, nodes ...string) {
	c.Running(app, cpu, func(p *v1.PodTemplateSpec) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{build.OverZones(app, 1, hard)}
	}, nodes...)
}

// unready takes the condition Ready from a pod.
func unready(pod *v1.Pod) { pod.Status.Conditions = nil }

// scale changes the replicas of an application's Deployment and ReplicaSet.
func (w *running) scale(replicas int32) {
	for _, set := range sim.List[*appsv1.ReplicaSet](w.sim) {
		set = set.DeepCopy()
		set.Spec.Replicas = &replicas
		w.put(set)
	}
	for _, d := range sim.List[*appsv1.Deployment](w.sim) {
		d = d.DeepCopy()
		d.Spec.Replicas = &replicas
		w.put(d)
	}
}

// removeWaiting removes the pods without a node.
func (w *running) removeWaiting() {
	for _, pod := range sim.List[*v1.Pod](w.sim) {
		if pod.Spec.NodeName == "" {
			w.sim.Remove(pod)
		}
	}
}

// TestOutcomes: with the real scheduler, what becomes of a move. The first pod is evicted, and then something happens
// that the copy did not know. A failure is the workload's: it rests, twice as long after the next one, while others are
// moved. What its controller wanted anyway is none.
func TestOutcomes(t *testing.T) {
	full := func(w *running) { w.put(occupant(w, "batch", "c", "8", nil)) }
	for _, tc := range []struct {
		name  string
		rule  v1.UnsatisfiableConstraintAction
		after func(w *running) // the eviction, before there is a pod in place of the evicted one
		ready func(w *running) // the pod in its place has a node
		want  v1alpha1.RebalanceMoveState
	}{
		{name: "nothing", rule: v1.DoNotSchedule, want: v1alpha1.MoveMoved},
		{name: "its zone is full, and the rule is a wish", rule: v1.ScheduleAnyway, after: full, want: v1alpha1.MoveNotBetter},
		{name: "its zone is full, and the rule is hard", rule: v1.DoNotSchedule, after: full, want: v1alpha1.MoveNotBound},
		{name: "no pod comes in its place", rule: v1.DoNotSchedule, after: (*running).removeWaiting, want: v1alpha1.MoveNotBound},
		{
			name: "the pod in its place is not ready", rule: v1.DoNotSchedule, want: v1alpha1.MoveNotReady,
			ready: func(w *running) { w.changeAll("web", "c", unready) },
		},
		{
			name: "an autoscaler makes it smaller", rule: v1.DoNotSchedule, want: v1alpha1.MoveNotNeeded,
			after: func(w *running) {
				w.removeWaiting()
				w.scale(5)
			},
		},
		{
			name: "an autoscaler makes it larger", rule: v1.DoNotSchedule, want: v1alpha1.MoveNotNeeded,
			ready: func(w *running) { w.scale(7) },
		},
		{
			name: "a rollout of a moment", rule: v1.DoNotSchedule, want: v1alpha1.MoveNotNeeded,
			after: func(w *running) {
				for i, pod := range sim.List[*v1.Pod](w.sim) {
					w.sim.Remove(pod)
					fresh := pod.DeepCopy()
					fresh.Name, fresh.UID = fmt.Sprint("web-2-", i), types.UID(fmt.Sprint("new-", i))
					fresh.OwnerReferences[0].Name, fresh.OwnerReferences[0].UID = "web-2", "web-2"
					fresh.DeletionTimestamp, fresh.DeletionGracePeriodSeconds = nil, nil
					fresh.Spec.NodeName = string("abc"[i%3])
					fresh.Status = v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
					w.put(fresh)
				}
				w.scale(0)
			},
		},
		{
			name: "it is deleted", rule: v1.DoNotSchedule, want: v1alpha1.MoveNotNeeded,
			after: func(w *running) {
				for _, set := range sim.List[*appsv1.ReplicaSet](w.sim) {
					w.sim.Remove(set)
				}
				for _, pod := range sim.List[*v1.Pod](w.sim) {
					w.sim.Remove(pod)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := run(t, drifted(tc.rule), newRebalance("web"))
			w.turns("a move", func() bool { return len(w.evicted) > 0 })
			if tc.after != nil {
				tc.after(w)
			}
			if tc.ready != nil {
				w.schedule()
				tc.ready(w)
			}
			w.turns("its end", func() bool { return w.stored.Status.Moves[0].State != v1alpha1.MoveEvicted })
			m := w.stored.Status.Moves[0]
			require.Equal(t, tc.want, m.State, m.Why)
			require.Contains(t, w.events, "Move"+string(tc.want))
			require.Equal(t, v1alpha1.ReasonNotStopped, w.reason(v1alpha1.ConditionStopped), "one workload stops nothing")
			if !act.Failed(&m) {
				require.Zero(t, m.Failures)
				return
			}
			require.EqualValues(t, 1, m.Failures)
			asked, ended := len(w.evicted), m.At.Time
			w.restart() // it rests for another process, too
			w.live(25*time.Minute, nil)
			require.Len(t, w.evicted, asked, "within the cooldown after %s", ended)
		})
	}
}

// TestABrokenWorkloadStopsNoOther: a workload that crashes is left alone, and one whose moves fail rests; another one
// is moved all the same.
func TestABrokenWorkloadStopsNoOther(t *testing.T) {
	for _, crashes := range []bool{true, false} {
		c := drifted(v1.DoNotSchedule)
		addSpread(c, "api", "100m", v1.DoNotSchedule, "a", "b", "a", "b", "a", "b", "a", "b")
		w := run(t, c, newRebalance("api", "web"))
		on := "" // any node
		if !crashes {
			on = "c" // only what is made from now on
		}
		web := func() bool {
			return slices.ContainsFunc(w.evicted, func(pod string) bool { return strings.HasPrefix(pod, "web") })
		}
		for !web() && w.sim.Now().Before(clitest.Now.Add(2*time.Hour)) {
			w.live(time.Minute, func() { w.changeAll("api", on, unready) })
		}
		require.True(t, web(), "web is moved")
		require.Equal(t, v1alpha1.ReasonNotStopped, w.reason(v1alpha1.ConditionStopped))
	}
}

// TestThreeWorkloadsStop: when moves of three workloads in a row fail, the copy is wrong about something. A change of
// the spec ends that.
func TestThreeWorkloadsStop(t *testing.T) {
	c := drifted(v1.DoNotSchedule)
	for _, app := range []string{"api", "db", "job"} {
		addSpread(c, app, "100m", v1.DoNotSchedule, "a", "b", "a", "b", "a", "b")
	}
	w := run(t, c, newRebalance("api", "db", "job", "web"))
	w.server.evict = func(pod *v1.Pod) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, fmt.Errorf("a webhook refuses"))
	}
	w.turns("a stop", func() bool { return w.reason(v1alpha1.ConditionStopped) == v1alpha1.ReasonMovesFailed })
	require.Len(t, w.evicted, 3)
	require.Contains(t, w.events, "MovesStopped")
	require.Equal(t, v1alpha1.ReasonStopped, w.reason(v1alpha1.ConditionBalanced))
	w.live(25*time.Minute, nil)
	require.Len(t, w.evicted, 3, "nothing begins")
	w.server.evict = w.sim.Evict
	w.stored.Generation++
	w.live(5*time.Minute, nil)
	require.Greater(t, len(w.evicted), 3)
	require.Equal(t, v1alpha1.ReasonNotStopped, w.reason(v1alpha1.ConditionStopped))
}

// TestMissingRole: without the role to evict that is said, no move begins and no workload rests: with the role the
// moves are made soon, after a change of the spec at once.
func TestMissingRole(t *testing.T) {
	for _, changed := range []bool{false, true} {
		w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
		w.forbidden = true
		w.live(time.Hour, nil)
		require.Equal(t, v1alpha1.ReasonEvictionForbidden, w.reason(v1alpha1.ConditionReady))
		require.Empty(t, w.evicted)
		require.Empty(t, w.stored.Status.Moves)
		w.forbidden = false
		within := refreshInterval + time.Minute
		if changed {
			w.stored.Generation++
			within = 2 * time.Minute
		}
		w.live(within, nil)
		require.NotEmpty(t, w.evicted, "within %s", within)
		require.Equal(t, v1alpha1.ReasonPlanning, w.reason(v1alpha1.ConditionReady))
	}
}

// TestControllerAway: the controller is away for six minutes after it has written that a pod is to be evicted. No
// workload rests for that.
func TestControllerAway(t *testing.T) {
	w := run(t, drifted(v1.DoNotSchedule), newRebalance("web"))
	w.server.evict = func(*v1.Pod) error { return fmt.Errorf("the process ends") }
	w.turns("a move", func() bool { return len(w.stored.Status.Moves) == 1 })
	require.Equal(t, v1alpha1.MoveEvicting, w.stored.Status.Moves[0].State)
	w.server.evict = w.sim.Evict
	w.pass(6 * time.Minute)
	w.restart()
	w.live(5*time.Minute, nil)
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveMoved, v1alpha1.MoveMoved}, w.states())
}

// TestBusyBudget: a PodDisruptionBudget that is exhausted for a while makes a workload rest for the cooldown, and no
// more.
func TestBusyBudget(t *testing.T) {
	c := drifted(v1.DoNotSchedule)
	c.Budget("web", 5)
	w := run(t, c, newRebalance("web"))
	evict := w.server.evict
	w.server.evict = func(pod *v1.Pod) error { // another pod of the budget is evicted a moment before
		for _, other := range sim.List[*v1.Pod](w.sim) {
			if other.Name != pod.Name {
				require.NoError(t, w.sim.Evict(other))
				break
			}
		}
		return evict(pod)
	}
	w.turns("a move", func() bool { return len(w.stored.Status.Moves) == 1 })
	require.Equal(t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveBudgetExhausted}, w.states())
	w.server.evict = evict
	w.live(20*time.Minute, nil)
	require.Len(t, w.evicted, 1)
	w.live(30*time.Minute, nil)
	require.Equal(t, 2, w.bound("web")["c"])
	require.Zero(t, w.stored.Status.Moves[len(w.stored.Status.Moves)-1].Failures)
}

// TestBudgetIsFreeAgain: while a PodDisruptionBudget is exhausted, such as by an eviction that was cut off, nothing is
// asked for and no workload rests; a minute after it allows an eviction again, one is made.
func TestBudgetIsFreeAgain(t *testing.T) {
	c := drifted(v1.DoNotSchedule)
	addSpread(c, "stuck", "8", v1.DoNotSchedule, "a2", "a2", "b2") // the copy refuses its move, each time
	for node, zone := range map[string]string{"a2": "a", "b2": "b"} {
		c.Node(node, zone, "16", "64Gi")
	}
	c.Budget("web", 5)
	w := run(t, c, newRebalance("web", "stuck"))
	allow := func(pods int32) {
		budget := sim.List[*policyv1.PodDisruptionBudget](w.sim)[0].DeepCopy()
		budget.Status.DisruptionsAllowed = pods
		w.put(budget)
	}
	w.put(occupant(w, "batch", "c", "1", nil))
	allow(0)
	w.live(8*time.Minute, nil)
	require.Empty(t, w.evicted)
	require.Empty(t, w.stored.Status.Moves)
	require.Equal(t, v1alpha1.ReasonNothingToMove, w.reason(v1alpha1.ConditionBalanced))
	w.restart()
	w.live(2*time.Minute, nil) // another process has searched, too
	allow(1)
	w.live(stayInterval+time.Second, nil)
	require.Len(t, w.evicted, 1)
}

// TestUndone: a consolidation takes the moved pods back each time. The workload rests longer each time, up to a day.
func TestUndone(t *testing.T) {
	w := run(t, drifted(v1.ScheduleAnyway), newRebalance("web"))
	w.live(48*time.Hour, func() {
		if w.bound("web")["c"] < 2 || w.reason(v1alpha1.ConditionBalanced) != v1alpha1.ReasonBalanced {
			return
		}
		node, _ := sim.Get[*v1.Node](w.sim, "", "c")
		going := node.DeepCopy() // a consolidation empties the node, and another one like it comes
		going.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted", Effect: v1.TaintEffectNoSchedule}}
		w.put(going)
		for _, pod := range sim.List[*v1.Pod](w.sim) {
			if pod.Labels["app"] == "web" && pod.Spec.NodeName == "c" {
				require.NoError(t, w.sim.Evict(pod))
			}
		}
		w.schedule()
		w.pass(2 * time.Minute)
		w.put(node)
	})
	t.Logf("%d evictions in two days", len(w.evicted))
	require.Less(t, len(w.evicted), 20)
	require.Greater(t, len(w.evicted), 8, "it is tried again")
	require.GreaterOrEqual(t, w.stored.Status.Moves[len(w.stored.Status.Moves)-1].Failures, int64(5))
}

// TestMostOfAZoneIsLost: of the thirty nodes of zone c 29 are lost. Nothing begins until that has settled, and no pod
// is moved into what is left of the zone.
func TestMostOfAZoneIsLost(t *testing.T) {
	c := drifted(v1.DoNotSchedule)
	for i := range 29 {
		c.Node(fmt.Sprint("c", i), "c", "8", "32Gi")
	}
	w := run(t, c, newRebalance("web"))
	w.turn()
	w.pass(6 * time.Minute)
	for i := range 29 {
		w.loseNode(fmt.Sprint("c", i))
	}
	w.live(4*time.Minute, func() {
		w.turn()
		require.Equal(t, v1alpha1.ReasonSettling, w.reason(v1alpha1.ConditionReady), "%+v", w.stored.Status)
	})
	require.Empty(t, w.evicted)
	w.live(20*time.Minute, nil)
	require.Empty(t, w.evicted)
	require.Contains(t, w.stored.Status.Stays[0].Why, "zone c, which has lost most of its nodes")
}

// TestPoliciesElsewhere: teams elsewhere create policies of their own; those that select no selected pod settle
// nothing.
func TestPoliciesElsewhere(t *testing.T) {
	w := newWorld(t)
	w.turn(0)
	for n := range 4 {
		w.cluster.In(fmt.Sprint("preview-", n)).Policy("app", nil)
		w.turn(2 * time.Minute)
	}
	require.Equal(t, v1alpha1.ReasonPlanning, w.reason(v1alpha1.ConditionReady))
	require.Len(t, w.evicted, 1)

	w = newWorld(t)
	w.turn(0)
	w.turn(4 * time.Minute)
	w.cluster.In(clitest.Namespace).Policy("web", nil)
	w.turn(2 * time.Minute)
	require.Equal(t, v1alpha1.ReasonSettling, w.reason(v1alpha1.ConditionReady), "this one selects them")
}

// TestTheFirstMayHaveToWait: a workload that is not settled keeps no other one waiting.
func TestTheFirstMayHaveToWait(t *testing.T) {
	for _, app := range []string{"web", "zet"} {
		w := newWorld(t)
		addSpread(w.cluster, "zet", "100m", v1.DoNotSchedule, "a", "a", "a", "b", "b", "b")
		w.stored = newRebalance("web", "zet")
		for _, pod := range w.cluster.Pods() {
			if pod.Labels["app"] == app {
				unready(pod)
				break
			}
		}
		w.turn(0)
		w.turn(6 * time.Minute)
		require.Len(t, w.evicted, 1)
		require.NotContains(t, w.evicted[0], app)
	}
}

// TestSwap: zones a and b are full, and two workloads would have to swap their rooms. A move that is made alone is
// proved alone: neither is made, and no pod is away; a third workload that has nothing to do with them is moved.
func TestSwap(t *testing.T) {
	c := clitest.New()
	c.Node("a", "a", "4", "32Gi")
	c.Node("b", "b", "4", "32Gi")
	for _, zone := range []string{"a", "b"} {
		c.Node(zone+"2", zone, "2", "32Gi", v1.Taint{Key: "small", Effect: v1.TaintEffectNoSchedule}).Labels["small"] = "yes"
	}
	addSpread(c, "one", "1", v1.DoNotSchedule, "a", "a", "a", "b")
	addSpread(c, "two", "1", v1.DoNotSchedule, "a", "b", "b", "b")
	c.Running("zet", "500m", func(p *v1.PodTemplateSpec) {
		clitest.Spread("zet")(p)
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		p.Spec.NodeSelector = map[string]string{"small": "yes"}
	}, "a2", "a2", "a2")
	w := run(t, c, newRebalance("one", "two", "zet"))
	for _, atOnce := range []int32{1, 3} {
		w.stored.Spec.MaxAtOnce = &atOnce
		w.stored.Generation++
		w.live(time.Hour, func() {
			require.Equal(t, map[string]int{"a": 3, "b": 1}, w.bound("one"))
			require.Equal(t, map[string]int{"a": 1, "b": 3}, w.bound("two"))
		})
	}
	require.Equal(t, map[string]int{"a": 2, "b": 1}, w.bound("zet"))
	require.Len(t, w.evicted, 1)
}
