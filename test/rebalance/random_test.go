package rebalance

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/test/build"
	"zonewise.dev/test/clitest"
)

var seeds = flag.String("seeds", "1,13", "the seeds of TestRandomClusters, as in 1,2,3")

// mostKills and mostFills are how often the controller is killed, and a zone filled, in a run.
const mostKills, mostFills = 6, 2

// run is a cluster whose pods are moved, while the controller is killed and others take room.
type run struct {
	*world
	rand *rand.Rand
	// rebalance is what was seen last, and moves are all that were ever in its status.
	rebalance *v1alpha1.ZoneRebalance
	moves     map[types.UID]v1alpha1.RebalanceMove
	// failures are those of moves, and kills what had happened when the controller was killed.
	failures, kills []string
	moved, fills    int
	// maxPerHour is what was asked for last. What is seen of the ZoneRebalance may be older.
	maxPerHour int32
}

var evictions, kills, moved int // of all seeds

// TestRandomClusters: on clusters with constraints, policies, budgets, a reservation and a gang, with the shipped scheduler, while the
// controller is killed between and in batches and others take room, it comes to an end. For every other seed a second controller is at work all
// the time, which knows nothing of the first one's lease. By the watch of the pods, no more are evicted than the budgets of the ZoneRebalance and
// of the services allow.
func TestRandomClusters(t *testing.T) {
	for i, text := range strings.Split(*seeds, ",") {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		t.Run(text, func(t *testing.T) { runSeed(t, seed, i%2 == 1) })
	}
	require.Positive(t, evictions)
	require.Positive(t, kills)
	require.Positive(t, moved)
}

func runSeed(t *testing.T, seed uint64, two bool) {
	random := rand.New(rand.NewPCG(seed, 36))
	c, services := clitest.Drifted(random)
	r := &run{world: start(t, c, services), rand: random, moves: map[types.UID]v1alpha1.RebalanceMove{}}
	r.onPod, r.onRebalance = r.judgePod, r.judgeRebalance
	spec := v1alpha1.ZoneRebalanceSpec{
		Mode: v1alpha1.RebalanceEvict, After: &metav1.Duration{}, Cooldown: &metav1.Duration{Duration: time.Minute},
		MaxAtOnce: ptr.To(int32(1 + random.IntN(3))), MaxPerHour: ptr.To(int32(2 + random.IntN(4))), //nolint:gosec // small
	}
	for i := range services {
		spec.Workloads = append(spec.Workloads, v1alpha1.SurvivalWorkload{
			Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": services[i].App}},
		})
	}
	r.rebalance = &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Spec: spec}
	r.maxPerHour = *spec.MaxPerHour
	r.Make(t, r.rebalance)
	r.startController()
	if two {
		r.startSecondController()
	}
	r.watchUntil("nothing is left to move", func() bool { return isOver(r.rebalance) })
	r.watchUntil("all replicas run", func() bool { return r.ready() == r.replicas() })
	r.judgeEnd()
	t.Logf("seed %d: %d pods of %d services on %d nodes; %d evictions, %d moves succeeded; killed after: %s; zones filled: %d; failed: %s; in the end %s, %d pods too many",
		seed, r.replicas(), len(services), len(r.zones), len(r.evicted), r.moved, strings.Join(r.kills, ", "), r.fills, strings.Join(r.failures, ", "),
		r.reason(v1alpha1.ConditionBalanced), r.rebalance.Status.Excess)
	evictions, kills, moved = evictions+len(r.evicted), kills+len(r.kills), moved+r.moved
}

func (r *run) reason(condition string) string {
	if c := meta.FindStatusCondition(r.rebalance.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// judgePod judges an eviction, and disturbs the cluster.
func (r *run) judgePod(before, pod *corev1.Pod) {
	switch now := len(r.evicted) > 0 && r.evicted[len(r.evicted)-1] == pod; {
	case now:
		r.judgeEviction(pod)
		r.mayKill("an eviction")
	case before == nil && pod.Labels["batch"] == "":
		r.mayKill("a pod in place")
	case before != nil && pods.Ready(pod) && !pods.Ready(before):
		r.mayKill("a pod ready")
	}
	if c := pods.Condition(pod, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonUnschedulable {
		r.clear() // who took the room leaves again, so that the run does not take longer than a plan waits
	}
}

// judgeEviction judges one by what is seen of the pods.
func (r *run) judgeEviction(pod *corev1.Pod) {
	r.t.Helper()
	require.Empty(r.t, pod.Annotations[clitest.DoNotDisrupt], "%s asks not to be moved", pod.Name)
	require.Empty(r.t, pod.Labels[schedulingv1alpha1.PodGroupLabel], "%s is of a gang", pod.Name)
	require.LessOrEqual(r.t, len(r.evicted), int(r.maxPerHour), "evictions within an hour")
	require.LessOrEqual(r.t, r.replicas()-r.ready(), int(*r.rebalance.Spec.MaxAtOnce), "moves at once")
	for i := range r.services {
		require.NoError(r.t, r.services[i].CheckReady(r.running()), "%s is evicted", pod.Name)
	}
}

// mayKill kills the controller now and then.
func (r *run) mayKill(after string) {
	if len(r.kills) < mostKills && r.controller != nil && r.rand.IntN(4) == 0 {
		r.kills = append(r.kills, after)
		r.killController()
	}
}

// judgeRebalance takes what is seen of the ZoneRebalance, and disturbs the cluster.
func (r *run) judgeRebalance(now *v1alpha1.ZoneRebalance) {
	r.watchPodsUntil("the evictions that the status speaks of", func() bool {
		return !slices.ContainsFunc(now.Status.Moves, func(m v1alpha1.RebalanceMove) bool {
			pod := r.last[m.UID]
			return (m.State == v1alpha1.MoveEvicted || m.State == v1alpha1.MoveMoved) && (pod == nil || !isEvicted(pod))
		})
	})
	r.rebalance = now
	for _, m := range now.Status.Moves {
		known := r.moves[m.UID]
		r.moves[m.UID] = m
		if m.State == known.State && m.Begun.Equal(&known.Begun) {
			continue
		}
		switch m.State {
		case v1alpha1.MoveEvicting:
			r.mayFill(m.To[0])
			r.mayKill("a move written")
		case v1alpha1.MoveMoved:
			r.moved++
			r.mayKill("a move over")
		case v1alpha1.MoveNotBound, v1alpha1.MoveNotReady, v1alpha1.MoveNotBetter, v1alpha1.MoveRefused:
			r.failures = append(r.failures, string(m.State))
			r.clear()
		}
	}
	if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionBalanced); c != nil && c.Reason == v1alpha1.ReasonMoving &&
		strings.Contains(c.Message, "waits for the hour") && c.ObservedGeneration == now.Generation && *now.Spec.MaxPerHour == r.maxPerHour && r.maxPerHour < 100 {
		require.GreaterOrEqual(r.t, len(r.evicted), int(*now.Spec.MaxPerHour), "the budget of the hour is used")
		r.edit()
	}
}

// edit gives the ZoneRebalance a budget of one more, so that each hour is judged again by the next one.
func (r *run) edit() {
	r.t.Helper()
	r.maxPerHour++
	patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"spec": {"maxPerHour": %d}}`, r.maxPerHour)))
	require.NoError(r.t, r.Patch(r.t.Context(), r.rebalance.DeepCopy(), patch))
}

// judgeEnd compares what was seen of the pods with what the status has said of the moves.
func (r *run) judgeEnd() {
	r.t.Helper()
	for _, pod := range r.evicted {
		m, ok := r.moves[pod.UID]
		require.True(r.t, ok, "%s was evicted, and no move has named it", pod.Name)
		require.NotContains(r.t, []v1alpha1.RebalanceMoveState{v1alpha1.MoveEvicting, v1alpha1.MoveEvicted, v1alpha1.MoveNotEvicted}, m.State, "%s was evicted: %s", pod.Name, m.Why)
	}
	for uid, m := range r.moves {
		if m.State == v1alpha1.MoveMoved {
			require.True(r.t, slices.ContainsFunc(r.evicted, func(p *corev1.Pod) bool { return p.UID == uid }), "%s has moved", m.Name)
		}
	}
	if r.reason(v1alpha1.ConditionBalanced) == v1alpha1.ReasonBalanced {
		for i := range r.services {
			require.NoError(r.t, r.services[i].CheckSpread(r.running(), r.zones))
		}
	}
}

// fill takes what is free in a zone, as somebody else's pods may after a plan is made.
func (r *run) fill(zone string) {
	r.t.Helper()
	var nodes corev1.NodeList
	require.NoError(r.t, r.List(r.t.Context(), &nodes))
	for i := range nodes.Items {
		node := &nodes.Items[i]
		free := node.Status.Allocatable.Cpu().MilliValue()
		for _, pod := range r.pods {
			if pod.Spec.NodeName == node.Name {
				free -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		if r.zones[node.Name] == zone && free > 0 {
			name := fmt.Sprint("batch-", r.fills, "-", node.Name)
			r.Make(r.t, build.Pod(name, fmt.Sprint(free, "m"), build.Namespace(clitest.Namespace), build.Bound(node.Name), build.Label("batch", "true")))
		}
	}
}

// mayFill takes, now and then, the room in the zone to which a pod is to be moved.
func (r *run) mayFill(zone string) {
	if r.fills < mostFills && r.rand.IntN(4) == 0 {
		r.fills++
		r.fill(zone)
	}
}

// clear deletes the pods that fill has made.
func (r *run) clear() {
	r.t.Helper()
	require.NoError(r.t, r.DeleteAllOf(r.t.Context(), &corev1.Pod{}, client.InNamespace(clitest.Namespace), client.MatchingLabels{"batch": "true"}))
}
