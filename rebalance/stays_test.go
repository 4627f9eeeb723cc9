package rebalance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// TestStays has a cluster for each reason for which two of six pods, all in zones a and b, are not moved to c.
func TestStays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *clitest.Cluster, pods []*v1.Pod)
		why    string // empty if they are moved
	}{
		{"nothing", func(*clitest.Cluster, []*v1.Pod) {}, ""},
		{"an emptyDir", volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), "has an emptyDir volume"},
		{"an emptyDir in memory", volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}), ""},
		{"a hostPath", volume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}), "has a hostPath volume"},
		{"no controller", each(func(pod *v1.Pod) { pod.OwnerReferences = nil }), "is not replaced: no controller replaces it"},
		{"a gang", func(c *clitest.Cluster, pods []*v1.Pod) {
			each(func(pod *v1.Pod) { pod.Labels[schedulingv1alpha1.PodGroupLabel] = "gang" })(c, pods)
			c.Gang("gang", 6)
		}, "is a member of a gang"},
		{"a pod that is not ready", func(_ *clitest.Cluster, pods []*v1.Pod) {
			pods[1].Status.Conditions = nil
		}, "is of a workload with a pod that is not ready"},
		{"a pod that does not come", func(c *clitest.Cluster, _ []*v1.Pod) {
			*snapshot.List[*appsv1.ReplicaSet](c.Snapshot)[0].Spec.Replicas = 7
		}, "is of a workload with fewer pods than it wants"},
		{"a budget", func(c *clitest.Cluster, _ []*v1.Pod) {
			c.Budget("web", 6)
		}, "is covered by a PodDisruptionBudget that allows no eviction now"},
		{"two budgets", func(c *clitest.Cluster, _ []*v1.Pod) {
			second := c.Budget("web", 5).DeepCopy()
			second.Name = "web-too"
			c.Add(second)
		}, "is covered by more than one PodDisruptionBudget, which the Eviction API does not support"},
		{"a rollout", func(c *clitest.Cluster, _ []*v1.Pod) { startRollout(c, "web") }, "takes part in a rollout of Deployment shop/web"},
		{"a system-critical workload", each(func(pod *v1.Pod) { pod.Spec.Priority = ptr.To[int32](2_000_000_000) }), "is system-critical"},
		{"a LeaderWorkerSet", each(func(pod *v1.Pod) { pod.Labels["leaderworkerset.sigs.k8s.io/name"] = "web" }), "is of a LeaderWorkerSet, which restarts a group as a whole"},
		{"it asks for a day", doNotDisrupt("24h"), "has the annotation karpenter.sh/do-not-disrupt"},
		{"it has asked for a minute", doNotDisrupt("1m"), ""},
		{"it asks in other words", doNotDisrupt("yes"), "has the annotation karpenter.sh/do-not-disrupt"},
		{"it does not ask", doNotDisrupt("false"), ""},
		{"a canary of an Argo Rollout", func(c *clitest.Cluster, _ []*v1.Pod) {
			startRollout(c, "web")
			for _, set := range snapshot.List[*appsv1.ReplicaSet](c.Snapshot) {
				set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web", UID: "rollout", Controller: ptr.To(true)}}
			}
		}, "takes part in a rollout of Rollout shop/web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			tc.change(c, c.Running("web", "1", clitest.Spread("web"), "a", "a", "a", "b", "b", "b"))
			snapshot.Trim(c.Pods()[0]) // what decides is kept by the controller
			p := plan(t, rest(t, c))
			if tc.why == "" {
				require.Len(t, p.Moves, 2)
				return
			}
			require.Empty(t, p.Moves)
			require.Equal(t, map[string]int{tc.why: 6}, p.Before.Stay)
		})
	}
	t.Run("an emptyDir that may be lost", func(t *testing.T) {
		c := clitest.Zones("a", "b", "c")
		volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})(c, c.Running("web", "1", clitest.Spread("web"), "a", "a", "b"))
		p, err := rebalance.Make(t.Context(), rest(t, c), rebalance.Options{EvictLocalStorage: true})
		require.NoError(t, err)
		require.Len(t, p.Moves, 1)
	})
}

// each changes all pods, and volume gives them one.
func each(change func(pod *v1.Pod)) func(*clitest.Cluster, []*v1.Pod) {
	return func(_ *clitest.Cluster, pods []*v1.Pod) {
		for _, pod := range pods {
			change(pod)
		}
	}
}

func volume(source v1.VolumeSource) func(*clitest.Cluster, []*v1.Pod) {
	return each(func(pod *v1.Pod) { pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: source}} })
}

func doNotDisrupt(value string) func(*clitest.Cluster, []*v1.Pod) {
	return each(func(pod *v1.Pod) {
		pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": value}
		pod.Status.StartTime = &metav1.Time{Time: clitest.Now.Add(-5 * time.Minute)}
	})
}

// TestJustReady: a pod is moved once it has been ready for a minute, in a search on the cluster as it is.
func TestJustReady(t *testing.T) {
	c := clitest.Zones("a", "b", "c")
	pods := c.Running("web", "1", clitest.Spread("web"), "a", "a", "b")
	for _, pod := range pods {
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clitest.Now.Add(-time.Second))
	}
	p, err := rebalance.First(t.Context(), rest(t, c), rebalance.Options{ReadyFor: rebalance.DefaultReadyFor})
	require.NoError(t, err)
	require.Empty(t, p.Moves)
	require.Equal(t, map[string]int{"has been ready for less than 60s": 2}, p.Before.Stay)
	require.Len(t, plan(t, rest(t, c)).Moves, 1, "in a plan it will have been")
}

// TestAgeOfTheReading: in a search, time passes in the copy, for a pod that waits there until its patience ends. The
// pods of the cluster are no older by it: what Read would refuse a moment later is not moved.
func TestAgeOfTheReading(t *testing.T) {
	for name, change := range map[string]func(pod *v1.Pod){
		"just ready": func(pod *v1.Pod) {
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clitest.Now.Add(-time.Second))
		},
		"not to be disrupted for a while": func(pod *v1.Pod) {
			pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "30s"}
			pod.Status.StartTime = &metav1.Time{Time: clitest.Now}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			for _, pod := range c.Running("web", "1", clitest.Spread("web"), "a", "a", "b") {
				change(pod)
			}
			c.Running("huge", "100", nil, "") // waits
			copied, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now})
			require.NoError(t, err)
			search, err := rebalance.SearchIn(t.Context(), copied, rebalance.Options{ReadyFor: rebalance.DefaultReadyFor})
			require.NoError(t, err)
			defer search.Close()
			require.Greater(t, copied.Now().Sub(clitest.Now), time.Minute)
			for done := false; !done; {
				done, err = search.Step(t.Context())
				require.NoError(t, err)
			}
			require.Empty(t, search.Plan().Moves)
		})
	}
}

// TestOnlyReplica: workloads of one pod each share a rule. A move is an outage of one, unless a budget says what it may
// cost.
func TestOnlyReplica(t *testing.T) {
	for _, covered := range []bool{false, true} {
		c := clitest.Zones("a", "b", "c")
		for i, node := range []string{"a", "a", "a", "b", "b", "b"} {
			c.Running(string("uvwxyz"[i]), "1", func(p *v1.PodTemplateSpec) {
				p.Labels["team"] = "x"
				constraint := clitest.ZoneSpread("", 1)
				constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
			}, node)
			if covered {
				c.Budget(string("uvwxyz"[i]), 0)
			}
		}
		p := plan(t, rest(t, c))
		require.Equal(t, covered, len(p.Moves) == 2, "%v", p.Moves)
		if !covered {
			require.Equal(t, map[string]int{"is the only pod of its workload, and no PodDisruptionBudget covers it": 6}, p.Before.Stay)
		}
	}
}

// TestTheNodeThatIsGoing: of the pods of a zone that on a node which is cordoned, or about to be removed, is moved: it
// has to leave anyway.
func TestTheNodeThatIsGoing(t *testing.T) {
	for name, change := range map[string]func(node *v1.Node){
		"cordoned": func(node *v1.Node) { node.Spec.Unschedulable = true },
		"disrupted by Karpenter": func(node *v1.Node) {
			node.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted", Effect: v1.TaintEffectNoSchedule}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := clitest.Zones("a", "b", "c")
			change(c.Node("a2", "a", "8", "32Gi"))
			c.Running("web", "1", clitest.Spread("web"), "a", "a", "a2", "b", "b", "b")
			p := plan(t, rest(t, c))
			require.Equal(t, "web-1-3", p.Moves[0].Name)
		})
	}
}
