package rebalance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// watched is a cluster whose evictions are checked, and whose controller ends at any time.
type watched struct {
	*running
	rand      *rand.Rand
	services  []clitest.Service
	evictions []time.Time
	restarts  int
	// quiet: the controller does not end, and answers are not lost.
	quiet bool
	// other is a second controller that is at work at the same time; nil if there is none.
	other  *Controller
	nested bool                      // it is at work while the first one evicts
	past   []*v1alpha1.ZoneRebalance // what was stored before
}

func watch(t *testing.T, seed uint64) *watched {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 36))
	c, services := clitest.Drifted(r)
	var apps []string
	for _, s := range services {
		apps = append(apps, s.App)
	}
	z := newRebalance(apps...)
	z.Spec.MaxAtOnce, z.Spec.MaxPerHour = ptr.To(int32(1+r.IntN(3))), ptr.To(int32(2+r.IntN(4))) //nolint:gosec // small
	w := &watched{running: run(t, c, z), rand: r, services: services}
	w.server.evict = w.evict
	return w
}

// evict is the Eviction API. Its answer may be lost, whether or not the pod is evicted.
func (w *watched) evict(pod *v1.Pod) error {
	if w.other != nil && !w.nested && w.rand.IntN(2) == 0 {
		w.nested = true
		w.turnOfOther()
		w.nested = false
	}
	lost := !w.quiet && w.rand.IntN(6) == 0
	if lost && w.rand.IntN(2) == 0 {
		return errors.New("the connection was refused")
	}
	now, exists := sim.Get[*v1.Pod](w.sim, pod.Namespace, pod.Name)
	if err := w.sim.Evict(pod); err != nil {
		return err
	}
	if exists && now.DeletionTimestamp == nil {
		require.Empty(w.t, now.Annotations["karpenter.sh/do-not-disrupt"], "%s asks not to be moved", pod.Name)
		require.Empty(w.t, now.Labels[schedulingv1alpha1.PodGroupLabel], "%s is of a gang", pod.Name)
		w.evictions = append(w.evictions, w.sim.Now())
		w.checkBudgets()
		if !w.quiet && w.rand.IntN(3) == 0 {
			w.fill([]string{"a", "b", "c"}[w.rand.IntN(3)])
		}
	}
	if lost {
		return errors.New("the connection was reset")
	}
	return nil
}

// fill takes what is free in a zone, as somebody else's pods may while a pod is on its way there.
func (w *watched) fill(zone string) {
	for _, node := range sim.List[*v1.Node](w.sim) {
		free := node.Status.Allocatable.Cpu().MilliValue()
		for _, pod := range sim.List[*v1.Pod](w.sim) {
			if pod.Spec.NodeName == node.Name {
				free -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		if name := fmt.Sprint("batch-", len(w.evictions), "-", node.Name); node.Labels[v1.LabelTopologyZone] == zone && free > 0 {
			w.put(occupant(w.running, name, node.Name, fmt.Sprint(free, "m"), nil))
		}
	}
}

// checkBudgets: never more than maxPerHour in any hour, nor maxAtOnce at once, no budget is broken, and no service
// has more than one pod less than it wants.
func (w *watched) checkBudgets() {
	within := slices.DeleteFunc(slices.Clone(w.evictions), func(at time.Time) bool { return w.sim.Now().Sub(at) > time.Hour })
	require.LessOrEqual(w.t, len(within), int(*w.stored.Spec.MaxPerHour), "evictions within an hour")
	require.LessOrEqual(w.t, len(act.UnderWay(w.stored)), int(*w.stored.Spec.MaxAtOnce), "moves at once")
	for _, s := range w.services {
		require.NoError(w.t, s.CheckReady(sim.List[*v1.Pod](w.sim)))
	}
}

// live lets the controller work for a while, and end at any time.
func (w *watched) live(d time.Duration) {
	for end := w.sim.Now().Add(d); w.sim.Now().Before(end); {
		if !w.quiet && w.rand.IntN(5) == 0 {
			w.restart()
			w.restarts++
		}
		w.conflict = !w.quiet && w.rand.IntN(10) == 0
		if w.other != nil && w.rand.IntN(2) == 0 {
			w.turnOfOther()
		}
		wait := w.turn()
		w.past = append(w.past, w.stored)
		if w.rand.IntN(3) > 0 {
			w.schedule()
		}
		w.pass(max(time.Second, min(wait, 20*time.Minute)))
	}
	w.conflict = false
}

// turnOfOther gives the second controller a turn, which may read what was stored some time ago.
func (w *watched) turnOfOther() {
	w.controller, w.other = w.other, w.controller
	if n := len(w.past); n > 0 && w.rand.IntN(3) == 0 {
		w.lags = w.past[max(0, n-1-w.rand.IntN(4))]
	}
	w.turn()
	w.lags = nil
	w.controller, w.other = w.other, w.controller
}

// end lets the controller work undisturbed until there is nothing left to move, and returns the reason of the
// condition Balanced.
func (w *watched) end() string {
	w.quiet, w.other = true, nil
	w.live(30 * time.Hour) // longer than a workload rests, or a stop lasts
	reason := w.reason(v1alpha1.ConditionBalanced)
	require.Contains(w.t, []string{v1alpha1.ReasonBalanced, v1alpha1.ReasonNothingToMove}, reason)
	before := len(w.evictions)
	w.live(2 * time.Hour)
	require.Len(w.t, w.evictions, before, "nothing is left to move")
	return reason
}

// TestRandomClusters: on clusters with constraints, policies, budgets, a reservation and a gang, while the controller
// ends at any time, answers are lost and others change the cluster, plans come to what they say or are stopped. No
// budget is exceeded, no pod moves that asks to stay, and in the end there is nothing left to move.
func TestRandomClusters(t *testing.T) {
	evictions, failures, balanced, restarts := 0, 0, 0, 0
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := watch(t, seed)
			w.live(time.Hour)
			for _, m := range w.stored.Status.Moves {
				if act.Failed(&m) {
					failures++
				}
			}
			if w.end() == v1alpha1.ReasonBalanced {
				balanced++
			}
			evictions += len(w.evictions)
			restarts += w.restarts
		})
	}
	t.Logf("%d evictions, %d moves failed, %d clusters balanced in the end; the controller ended %d times", evictions, failures, balanced, restarts)
	require.Positive(t, evictions)
	require.Positive(t, balanced)
	require.Positive(t, failures)
}

// TestTwoControllersAtATime: two controllers, of which one reads statuses that are old and works while the other
// evicts, keep the budgets together, and come to an end.
func TestTwoControllersAtATime(t *testing.T) {
	evictions := 0
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := watch(t, seed)
			w.other = w.newController()
			w.live(2 * time.Hour)
			w.end()
			evictions += len(w.evictions)
		})
	}
	t.Logf("%d evictions", evictions)
	require.Positive(t, evictions)
}
