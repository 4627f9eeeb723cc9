package rebalance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

func spread(app string, maxSkew int32) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, clitest.ZoneSpread(app, maxSkew))
	}
}

func priority(value int32) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) { t.Spec.Priority = &value }
}

func both(changes ...func(*v1.PodTemplateSpec)) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		for _, change := range changes {
			if change != nil {
				change(t)
			}
		}
	}
}

// rest makes a copy of a cluster that is at rest.
func rest(t *testing.T, c *clitest.Cluster) *sim.Sim {
	t.Helper()
	s, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Run(t.Context()))
	return s
}

func plan(t *testing.T, s *sim.Sim) *rebalance.Plan {
	t.Helper()
	p, err := rebalance.Make(t.Context(), s, rebalance.Options{})
	require.NoError(t, err)
	require.True(t, p.Complete)
	return p
}

// carryOut makes the moves of a plan in a copy, batch by batch.
func carryOut(t *testing.T, s *sim.Sim, p *rebalance.Plan) {
	t.Helper()
	for i, m := range p.Moves {
		pod, ok := sim.Get[*v1.Pod](s, m.Namespace, m.Name)
		require.True(t, ok, m)
		require.Equal(t, m.UID, pod.UID)
		require.NoError(t, s.Evict(pod))
		if i+1 == len(p.Moves) || p.Moves[i+1].Batch != m.Batch {
			require.NoError(t, s.Run(t.Context()))
		}
	}
}

// TestPlan has a small cluster for each thing that a plan does, or leaves.
func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster func(c *clitest.Cluster)
		// moves are the zones, from and to, and after is the excess that is left.
		moves   []string
		after   int64
		refused string
		stay    map[string]int
	}{
		{
			name:    "nothing to do",
			cluster: func(c *clitest.Cluster) { c.Running("web", "1", clitest.Spread("web"), "a", "a", "b", "c") },
		},
		{
			name:    "a zone is back",
			cluster: func(c *clitest.Cluster) { c.Running("web", "1", clitest.Spread("web"), "a", "a", "a", "b", "b", "b") },
			moves:   []string{"a c", "b c"},
		},
		{
			name: "by a policy, with weights",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", nil, "a", "a", "a", "b", "b", "b")
				c.Policy("web", func(p *v1alpha1.ZoneSpreadPolicySpec) {
					p.Zones = []v1alpha1.ZoneSpreadZone{{Name: "c", Weight: ptr.To[int32](4)}}
				})
			},
			moves: []string{"a c", "b c", "a c", "b c"},
		},
		{
			name: "two workloads",
			cluster: func(c *clitest.Cluster) {
				c.Running("one", "1", clitest.Spread("one"), "a", "a", "b")
				c.Running("two", "1", clitest.Spread("two"), "b", "b", "c")
			},
			moves: []string{"a c", "b a"},
		},
		{
			name: "there is no room",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", clitest.Spread("web"), "a", "a", "b")
				c.Running("batch", "8", nil, "c")
			},
			after: 1, refused: "its replacement would wait: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod topology spread constraints.",
		},
		{
			name: "what has room moves, what has none stays",
			cluster: func(c *clitest.Cluster) {
				c.Running("large", "4", clitest.Spread("large"), "a", "a", "b")
				c.Running("small", "1", clitest.Spread("small"), "b", "b")
				c.Running("batch", "5", nil, "c")
			},
			moves: []string{"b c"}, after: 1, refused: "its replacement would wait: 0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 Insufficient cpu.",
		},
		{
			name: "no pod is preempted for a move",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "2", both(clitest.Spread("web"), priority(10)), "a", "a", "b")
				c.Running("batch", "8", nil, "c")
			},
			after: 1, refused: "a pod would be preempted",
		},
		{
			name: "a budget allows one at a time",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", clitest.Spread("web"), "a", "a", "a", "a", "a", "b")
				c.Budget("web", 5)
			},
			moves: []string{"a c", "a b|c", "a c"},
		},
		{
			name: "pods that ask not to be disrupted",
			cluster: func(c *clitest.Cluster) {
				pods := c.Running("web", "1", clitest.Spread("web"), "a", "a", "a", "b")
				pods[0].Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
				pods[1].Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
			},
			moves: []string{"a c"},
			stay:  map[string]int{"has the annotation karpenter.sh/do-not-disrupt": 1, "has the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: false": 1},
		},
		{
			name: "a volume that is tied to a zone",
			cluster: func(c *clitest.Cluster) {
				pods := c.Running("web", "1", clitest.Spread("web"), "a", "a", "b")
				pods[0].Spec.Volumes = clitest.Claiming("data")
				c.ZonalVolume("data", "a")
			},
			moves: []string{"a c"}, stay: map[string]int{"has a volume that is tied to nodes": 1},
		},
		{
			name: "the emptiest zone is cordoned",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", clitest.Spread("web"), "a", "a", "b")
				for _, obj := range c.Objects() {
					if node, ok := obj.(*v1.Node); ok && node.Name == "c" {
						node.Spec.Unschedulable = true
					}
				}
			},
			after: 1,
		},
		{
			name: "a policy that asks for no nodes, and a Deployment that can be in one zone",
			cluster: func(c *clitest.Cluster) {
				c.Running("one", "1", func(t *v1.PodTemplateSpec) {
					t.Labels["tier"], t.Spec.NodeSelector = "front", map[string]string{v1.LabelTopologyZone: "a"}
				}, "a")
				c.Running("two", "1", func(t *v1.PodTemplateSpec) { t.Labels["tier"] = "front" }, "a", "b", "b", "b")
				c.Policy("front", func(p *v1alpha1.ZoneSpreadPolicySpec) {
					p.PodSelector.MatchLabels = map[string]string{"tier": "front"}
					p.NodeAffinityPolicy = v1alpha1.Ignore
				})
			},
			moves: []string{"b c"},
		},
		{
			name: "a node without a zone is no way out",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", both(clitest.Spread("web"), func(t *v1.PodTemplateSpec) {
					t.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable = v1.ScheduleAnyway
				}), "a", "a", "b")
				c.Running("batch", "8", nil, "c")
				c.Node("d", "", "8", "32Gi")
				c.Pod("other", "b", clitest.Plain("7", "1Gi"), nil)
				snapshot.List[*v1.Node](c.Snapshot)[0].Spec.Unschedulable = true
			},
			after: 1, refused: "its replacement would be on a node without a zone",
		},
		{
			name: "a constraint that is a wish",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "1", both(clitest.Spread("web"), func(t *v1.PodTemplateSpec) {
					t.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable = v1.ScheduleAnyway
				}), "a", "a", "a", "b")
			},
			moves: []string{"a c"},
		},
		{
			name: "room that is held for others is not taken",
			cluster: func(c *clitest.Cluster) {
				c.Running("web", "2", clitest.Spread("web"), "a", "a", "b")
				c.Reservation("spare", "shop", "7", 100, map[string]int64{"c": 1})
			},
			after: 1, refused: "its replacement would wait: 0/3 nodes are available: 1 node(s) had room only in what is held for ZoneReservation spare, 2 node(s) didn't match pod topology spread constraints.",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			tc.cluster(c)
			s := rest(t, c)
			p := plan(t, s)
			var moves []string
			for _, m := range p.Moves {
				moves = append(moves, m.From+" "+strings.Join(m.To, "|"))
			}
			require.ElementsMatch(t, tc.moves, moves)

			require.Equal(t, tc.after, p.After.Excess, "what is left")
			if tc.refused == "" {
				require.Empty(t, p.Refused)
			} else {
				require.Len(t, p.Refused, 1)
				require.Contains(t, p.Refused[0].Why, tc.refused)
			}
			if tc.stay != nil {
				require.Equal(t, tc.stay, p.Before.Stay)
			}
			carryOut(t, s, p)
			again := plan(t, s)
			require.Empty(t, again.Moves, "a plan for the cluster with the plan carried out is empty")
			require.Equal(t, p.After.Excess, again.Before.Excess)
		})
	}
}

// TestBrokenCertificate: a plan says which ZoneSurvival would not hold any more with its moves.
func TestBrokenCertificate(t *testing.T) {
	for _, cpu := range []string{"2", "3"} {
		c := clitest.Zones("a", "b", "c")
		c.Running("db", "6", nil, "a")
		c.Running("web", cpu, clitest.Spread("web"), "b", "b") // one of them goes to c, where 6 CPUs are still free, or 5
		c.Running("other", "1", nil, "a")
		survival := &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services", Generation: 1}}
		survival.Spec.Workloads = []v1alpha1.SurvivalWorkload{{Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
		survival.Spec.Survive.ZoneNames = []string{"a"}
		c.Add(survival)
		p := plan(t, rest(t, c))
		require.Len(t, p.Moves, 1)
		require.Equal(t, []string{"c"}, p.Moves[0].To)
		require.Equal(t, cpu == "3", len(p.BrokenCertificates) > 0, "%v", p.BrokenCertificates)
	}
}

// TestSelects: a plan is about the rules that selected pods carry, moves no other pod, and knows those that its caller
// wants to stay.
func TestSelects(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	for _, app := range []string{"web", "api", "db"} {
		c.Running(app, "1", clitest.Spread(app), "a", "a")
	}
	s := rest(t, c)
	all := plan(t, s)
	require.Len(t, all.Moves, 3)

	of := func(apps ...string) func(*v1.Pod) bool {
		return func(pod *v1.Pod) bool { return slices.Contains(apps, pod.Labels["app"]) }
	}
	p, err := rebalance.Make(t.Context(), s, rebalance.Options{Selects: of("web", "api"), Stays: func(pod *v1.Pod) string {
		if pod.Labels["app"] == "api" {
			return "rests"
		}
		return ""
	}})
	require.NoError(t, err)
	require.Len(t, p.Moves, 1)
	require.Equal(t, "Deployment shop/web", p.Moves[0].Workload)
	require.Equal(t, map[string]int{"rests": 2}, p.Before.Stay)
	require.Equal(t, []int64{2, 1}, []int64{p.Before.Excess, p.After.Excess}, "of web and api")
	require.Len(t, p.Before.Rules, 2)

	standing := rebalance.StandingOf(s, rebalance.Options{Selects: of("web")})
	for _, pod := range sim.List[*v1.Pod](s) {
		want := "is not selected"
		if pod.Labels["app"] == "web" {
			want = ""
		}
		require.Equal(t, want, standing.WhyStays(pod), pod.Name)
	}
	require.EqualValues(t, 1, standing.ExcessOf("Deployment shop/web"))
	require.Zero(t, standing.ExcessOf("Deployment shop/db"), "its rule is none of these")
}

// TestUnreadySibling: of a workload of which a pod waits or is being replaced, no pod is moved, since two would be away
// then.
func TestUnreadySibling(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	c.Running("web", "1", clitest.Spread("web"), "a", "a", "")[2].Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
	p := plan(t, rest(t, c))
	require.Empty(t, p.Moves)
	require.Equal(t, map[string]int{"is of a workload with a pod that is not ready": 2}, p.Before.Stay)
	// Of a StatefulSet there is no other pod until the one that is being deleted has ended.
	c = clitest.Zones("a", "b", "c")
	deployed := c.Running("db", "1", clitest.Spread("db"), "a", "a", "a")
	for _, pod := range deployed {
		clitest.Owned(pod, "apps/v1", "StatefulSet", "db")
	}
	c.Add(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "db", UID: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)},
	})
	deployed[0].DeletionTimestamp = &metav1.Time{Time: clitest.Now.Add(time.Minute)}
	s, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	standing := rebalance.StandingOf(s, rebalance.Options{})
	require.Equal(t, "is of a workload with fewer pods than it wants", standing.WhyStays(deployed[1]))
}

// TestSelectedPodsShareARule: where pods that are not selected carry the rule too, it is those that are selected that
// move.
func TestSelectedPodsShareARule(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	tier := func(t *v1.PodTemplateSpec) {
		t.Labels["tier"] = "front"
		constraint := clitest.ZoneSpread("", 1)
		constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
		t.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
	}
	c.Running("web", "1", tier, "a", "a")
	c.Running("api", "1", tier, "a", "a")
	s := rest(t, c)
	require.Len(t, plan(t, s).Moves, 2)
	p, err := rebalance.Make(t.Context(), s, rebalance.Options{Selects: func(pod *v1.Pod) bool { return pod.Labels["app"] == "api" }})
	require.NoError(t, err)
	require.Len(t, p.Moves, 2)
	for _, m := range p.Moves {
		require.Equal(t, "Deployment shop/api", m.Workload)
	}
	require.Equal(t, map[string]int{"is not selected": 2}, p.Before.Stay)
}

// startRollout adds a second ReplicaSet with a pod to come to a Deployment.
func startRollout(c *clitest.Cluster, app string) {
	for _, set := range snapshot.List[*appsv1.ReplicaSet](c.Snapshot) {
		if set.Name == app+"-1" {
			next := set.DeepCopy()
			next.Name, next.UID, next.Spec.Replicas = app+"-2", "next", ptr.To[int32](1)
			c.Add(next)
		}
	}
}

// TestZoneThatHasLostItsNodes: no pod is moved into a zone of which most nodes are not usable.
func TestZoneThatHasLostItsNodes(t *testing.T) {
	for lost, moves := range map[int]int{5: 2, 6: 0} {
		c := clitest.Zones("a", "b", "c")
		for i := range 9 {
			node := c.Node(fmt.Sprint("c", i), "c", "8", "32Gi")
			node.Spec.Unschedulable = i < lost
		}
		c.Running("web", "1", clitest.Spread("web"), "a", "a", "a", "b", "b", "b")
		p := plan(t, rest(t, c))
		require.Len(t, p.Moves, moves, "%d of 10 nodes", lost)
		if moves == 0 {
			require.Equal(t, "its replacement would be in zone c, which has lost most of its nodes", p.Refused[0].Why)
		}
	}
}

// TestFirstIsOneBatch: a search for the controller ends with the first batch, of no more moves than may be made, and
// tries last what was refused a moment ago.
func TestFirstIsOneBatch(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	for i := range 3 {
		c.Node(fmt.Sprint("b", i), "b", "8", "32Gi")
	}
	for _, app := range []string{"one", "two", "three"} {
		c.Running(app, "1", clitest.Spread(app), "a", "a", "a")
	}
	for _, atOnce := range []int{1, 2, 3} {
		p, err := rebalance.First(t.Context(), rest(t, c), rebalance.Options{AtOnce: atOnce})
		require.NoError(t, err)
		require.Len(t, p.Moves, atOnce)
		require.Equal(t, 1, p.Batches)
	}
	for _, app := range []string{"one", "two", "three"} {
		p, err := rebalance.First(t.Context(), rest(t, c), rebalance.Options{AtOnce: 1, TryLast: func(workload, _ string) bool {
			return workload != "Deployment shop/"+app
		}})
		require.NoError(t, err)
		require.Equal(t, "Deployment shop/"+app, p.Moves[0].Workload)
	}
}
