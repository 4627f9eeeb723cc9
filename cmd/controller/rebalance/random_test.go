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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/rebalance/act"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// service is a workload of a random cluster.
type service struct {
	app      string
	replicas int
	// minAvailable is that of its budget; 0 if it has none.
	minAvailable int
}

// randomCluster returns one that has drifted, with constraints and policies, budgets, a reservation, a gang and pods that
// ask not to be moved.
func randomCluster(r *rand.Rand) (*clitest.Cluster, []service) {
	c := clitest.New()
	var nodes []string
	for i := range 3 + r.IntN(4) {
		name := fmt.Sprintf("node-%d", i)
		c.Node(name, string(rune('a'+i%3)), fmt.Sprint(6+4*r.IntN(3)), "64Gi")
		nodes = append(nodes, name)
	}
	var services []service
	for i := range 2 + r.IntN(3) {
		s := service{app: fmt.Sprintf("app-%d", i), replicas: 2 + r.IntN(4)}
		byPolicy := r.IntN(2) == 0
		add := c.Deployment(s.app, int32(s.replicas), "1", "1Gi", func(p *v1.PodTemplateSpec) { //nolint:gosec // small
			if !byPolicy {
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{clitest.ZoneSpread(s.app, 1)}
			}
		})
		first := r.IntN(len(nodes)) // the pods are on two nodes
		for range s.replicas {
			pod := add(nodes[(first+r.IntN(2))%len(nodes)])
			if r.IntN(8) == 0 {
				pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			}
		}
		if byPolicy {
			c.Policy(s.app, func(p *v1alpha1.ZoneSpreadPolicySpec) {
				if r.IntN(3) > 0 {
					p.WhenUnsatisfiable = v1alpha1.ScheduleAnyway
				}
				if r.IntN(2) == 0 {
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: ptr.To[int32](2)}}
				}
			})
		}
		if r.IntN(2) == 0 {
			s.minAvailable = max(1, s.replicas-1)
			c.Budget(s.app, int32(s.minAvailable)) //nolint:gosec // small
		}
		services = append(services, s)
	}
	c.Gang("train", 2)
	for i := range 2 {
		c.Pod(fmt.Sprint("train-", i), nodes[i], clitest.Plain("1", "1Gi"), map[string]string{schedulingv1alpha1.PodGroupLabel: "train", "app": "app-0"})
	}
	if r.IntN(2) == 0 {
		c.Reservation("spare", "app-0", "1", 5, map[string]int64{nodes[r.IntN(len(nodes))]: 1})
	}
	return c, services
}

// watched is a cluster whose evictions are checked, and whose controller ends at any time.
type watched struct {
	*running
	rand      *rand.Rand
	services  []service
	evictions []time.Time
	restarts  int
	// quiet: the controller does not end, and answers are not lost.
	quiet bool
}

func watch(t *testing.T, seed uint64) *watched {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 36))
	c, services := randomCluster(r)
	var apps []string
	for _, s := range services {
		apps = append(apps, s.app)
	}
	z := newRebalance(apps...)
	z.Spec.MaxAtOnce, z.Spec.MaxPerHour = ptr.To(int32(1+r.IntN(3))), ptr.To(int32(2+r.IntN(4))) //nolint:gosec // small
	w := &watched{running: run(t, c, z), rand: r, services: services}
	w.server.evict = w.evict
	return w
}

// evict is the Eviction API. Its answer may be lost, whether or not the pod is evicted.
func (w *watched) evict(pod *v1.Pod) error {
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

// checkBudgets: never more than maxPerHour in any hour, nor maxAtOnce at once, no budget is broken, and no service has more
// than one pod less than it wants.
func (w *watched) checkBudgets() {
	within := slices.DeleteFunc(slices.Clone(w.evictions), func(at time.Time) bool { return w.sim.Now().Sub(at) > time.Hour })
	require.LessOrEqual(w.t, len(within), int(*w.stored.Spec.MaxPerHour), "evictions within an hour")
	require.LessOrEqual(w.t, act.UnderWay(w.stored), int(*w.stored.Spec.MaxAtOnce), "moves at once")
	for _, s := range w.services {
		ready := 0
		for _, pod := range sim.List[*v1.Pod](w.sim) {
			if pod.Labels["app"] == s.app && pod.Labels[schedulingv1alpha1.PodGroupLabel] == "" && pods.Live(pod) && pods.Ready(pod) {
				ready++
			}
		}
		require.GreaterOrEqual(w.t, ready, s.minAvailable, "the budget of %s", s.app)
		require.GreaterOrEqual(w.t, ready, s.replicas-1, "of a workload one pod at a time is moved")
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
		wait := w.turn()
		w.checkMoves()
		if w.rand.IntN(3) > 0 {
			w.schedule()
		}
		w.pass(max(time.Second, min(wait, 20*time.Minute)))
	}
	w.conflict = false
}

// checkMoves: what has moved is in a zone of its plan, unless it was replaced since.
func (w *watched) checkMoves() {
	zones := map[types.UID]string{}
	for _, pod := range sim.List[*v1.Pod](w.sim) {
		if node, ok := sim.Get[*v1.Node](w.sim, "", pod.Spec.NodeName); ok {
			zones[pod.UID] = node.Labels[v1.LabelTopologyZone]
		}
	}
	for _, m := range w.stored.Status.Moves {
		if zone := zones[m.ReplacedBy]; m.State == v1alpha1.MoveMoved && zone != "" {
			require.Contains(w.t, m.To, zone, "%s", m.Name)
		}
	}
}

// TestRandomClusters: on clusters with constraints, policies, budgets, a reservation and a gang, while the controller ends at
// any time, answers are lost and others change the cluster, plans come to what they say or are stopped. No budget is
// exceeded, no pod moves that asks to stay, and in the end there is nothing left to move.
func TestRandomClusters(t *testing.T) {
	evictions, stops, balanced, restarts := 0, 0, 0, 0
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := watch(t, seed)
			w.live(time.Hour)
			if w.stored.Status.Stop != nil {
				stops++
			}
			w.quiet = true
			for w.live(3 * time.Hour); act.Stopped(w.stored, w.sim.Now()); w.live(3 * time.Hour) {
				w.pass(w.stored.Status.Stop.ResumesAt.Sub(w.sim.Now()))
			}
			reason := w.reason(v1alpha1.ConditionBalanced)
			require.Contains(t, []string{v1alpha1.ReasonBalanced, v1alpha1.ReasonNothingToMove}, reason)
			if reason == v1alpha1.ReasonBalanced {
				balanced++
			}
			before := len(w.evictions)
			w.live(2 * time.Hour)
			require.Len(t, w.evictions, before, "nothing is left to move")
			evictions += before
			restarts += w.restarts
		})
	}
	t.Logf("%d evictions, %d plans stopped, %d clusters balanced in the end; the controller ended %d times", evictions, stops, balanced, restarts)
	require.Positive(t, evictions)
	require.Positive(t, balanced)
	require.Positive(t, stops)
}
