package board

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// sound is a cluster of which everything is true, with a drained zone, a pod
// and a gang that wait with reason.
func sound() *world {
	return newWorld().
		node("a1", "a").node("a2", "a").node("b1", "b").node("b2", "b").node("c1", "c", cordoned, tainted(corev1.TaintNodeUnschedulable)).
		deployment("web", "shop", 4, atMost(1)).replicas("a1", "a2", "b1", "b2").
		deployment("db", "shop", 3).replicas("a1", "b1", "b1").
		deployment("big", "ml", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("5")
		}).replicas("").
		gang("whole", 2, "true", "a1", "b1").
		gang("waits", 3, "false", "", "", "").
		honest()
}

func TestASoundClusterHasNoBrokenInvariant(t *testing.T) {
	require.Empty(t, sound().build().Broken())
}

func TestEveryBrokenInvariantIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		check string
		want  []string
	}{
		{
			"a node holds more than it has",
			sound().deployment("extra", "x", 2).replicas("a1", "b1").pod("ns", nil, requests("3"), "a1").honest(),
			"allocated never exceeds allocatable",
			[]string{"node a1: cpu allocated 6000, allocatable 4000"},
		},
		{
			"a node holds more pods than it may",
			newWorld().node("a1", "a", func(n *corev1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("1") }).
				pod("ns", nil, requests("0"), "a1").pod("ns", nil, requests("0"), "a1").honest(),
			"allocated never exceeds allocatable",
			[]string{"node a1: pods allocated 2, allocatable 1"},
		},
		{
			"a device that the node does not have",
			newWorld().node("a1", "a").pod("ns", nil, corev1.PodSpec{Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpuResource: resource.MustParse("1")}},
			}}}, "a1").honest(),
			"allocated never exceeds allocatable",
			[]string{"node a1: nvidia.com/gpu allocated 1, allocatable 0"},
		},
		{
			"a pod on a node that does not exist",
			sound().pod("ns", nil, requests("1"), "gone").honest(),
			"allocated never exceeds allocatable",
			[]string{"pod ns/p14 is bound to node gone, which does not exist"},
		},
		{
			"skew over zones",
			sound().deployment("skewed", "x", 2).replicas("a1", "a2").honest(),
			"skew is within maxSkew",
			[]string{"ns/skewed over topology.kubernetes.io/zone: skew 2, allowed 1 (a 2, b 0)"},
		},
		{
			"too many on one node",
			sound().deployment("packed", "x", 3, atMost(1)).replicas("a1", "b2", "b2").honest(),
			"skew is within maxSkew",
			[]string{"ns/packed over kubernetes.io/hostname: skew 2, allowed 1 (b2 2, a1 1, a2 0)"},
		},
		{
			"half a gang",
			sound().gang("half", 3, "false", "a1", "b1", "").honest(),
			"no gang is partly bound",
			[]string{"gang half: 2 bound, minMember 3"},
		},
		{
			"a gang that waits and holds",
			sound().gang("greedy", 2, "false", "!a1", "").honest(),
			"a gang that waits holds nothing",
			[]string{"pod train/p14 is nominated to node a1"},
		},
		{
			"a gang that fits and waits",
			sound().gang("forgotten", 2, "true", "", "").honest(),
			"every gang that fits is whole",
			[]string{"gang forgotten: 0 of 2 bound"},
		},
		{
			"a replica that nobody made",
			sound().deployment("lazy", "x", 2).replicas("a2").honest(),
			"every replica exists",
			[]string{"service x: 1 pods, 2 replicas"},
		},
		{
			"a pod that could run and waits",
			sound().deployment("forgotten", "x", 1).replicas("").honest(),
			"no pod waits that some node could take",
			[]string{"pod ns/p14"},
		},
		{
			"an assumed pod",
			sound().metrics(func(m *Metrics) { m.Assumed = 2 }),
			"no assumed pod is left over",
			[]string{"zonewise_reservecache_assumed_pods is 2, must be 0"},
		},
		{
			"an assumed pod in the scheduler's cache",
			sound().metrics(func(m *Metrics) { m.CacheAssumed = 1 }),
			"no assumed pod is left over",
			[]string{`scheduler_cache_size{type="assumed_pods"} is 1, must be 0`},
		},
		{
			"drift",
			sound().metrics(func(m *Metrics) { m.Drift, m.Unsettled = 1, 4 }),
			"the ledger equals the scheduler's snapshot",
			[]string{"zonewise_reservecache_drift_nodes is 1, must be 0", "zonewise_reservecache_unsettled_nodes is 4, must be 0"},
		},
		{
			"drift that nobody looked for",
			sound().metrics(func(m *Metrics) { m.Checks = 0 }),
			"the ledger equals the scheduler's snapshot",
			[]string{"the scheduler has not compared them: zonewise_reservecache_drift_checks_total"},
		},
		{
			"a metric that is not there",
			sound().metrics(func(m *Metrics) { m.Assumed = math.NaN() }),
			"no assumed pod is left over",
			[]string{"the scheduler does not export zonewise_reservecache_assumed_pods"},
		},
		{
			"a pod that the ledger lost",
			sound().metrics(func(m *Metrics) { m.Pods-- }),
			"the ledger has what the API server has",
			[]string{"zonewise_reservecache_pods is 8, must be 9"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := tc.world.build().Broken()
			require.Len(t, broken, 1, "%v", broken)
			require.Equal(t, tc.check, broken[0].Name)
			require.Equal(t, tc.want, broken[0].Violations)
		})
	}
}

// A gang that was bound whole and then lost members is not the scheduler's
// fault, unless there is room for all of it.
func TestAGangThatAnEvictionReducedIsNotPartlyBound(t *testing.T) {
	w := sound().gang("worn", 3, "false", "a1", "b1", "").honest()
	w.MostBound = map[string]int{"worn": 3}
	b := w.build()
	require.Empty(t, b.Broken())
	require.Equal(t, Reduced, b.Gangs[2].State)

	w.MostBound["worn"] = 2
	require.Equal(t, Partial, w.build().Gangs[2].State)

	w = sound().gang("worn", 3, "true", "a1", "b1", "").honest()
	w.MostBound = map[string]int{"worn": 3}
	require.Len(t, w.build().Broken(), 1)
}

func (w *world) metrics(change func(*Metrics)) *world {
	change(&w.Metrics)
	return w
}

func requests(cpu string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}},
	}}}
}

func TestALongListOfViolationsIsCut(t *testing.T) {
	w := newWorld().node("a1", "a")
	for range mostViolations + 3 {
		w.pod("ns", nil, requests("0"), "gone")
	}
	broken := w.honest().build().Broken()
	require.Len(t, broken, 1)
	require.Len(t, broken[0].Violations, mostViolations+1)
	require.Equal(t, "and 3 more", broken[0].Violations[mostViolations])
}

// Finished pods hold nothing; pods that are going hold their resources, and no
// longer count in a spread.
func TestFinishedAndTerminatingPods(t *testing.T) {
	b := newWorld().node("a1", "a").node("b1", "b").
		deployment("web", "shop", 1).
		replicas("a1").replicas("a1").last(terminating).replicas("a1").last(succeeded).
		honest().build()
	require.Empty(t, b.Broken())
	require.InDelta(t, 0.5, *b.Zones[0].CPU, 1e-9)
	require.Equal(t, 1, b.Services[0].Bound)
	require.Equal(t, 1, b.Services[0].Skew)
}

// A constraint of a Deployment that may only run in one zone counts that zone
// alone, unless its policy ignores affinity.
func TestEligibleDomains(t *testing.T) {
	onlyA := func(policy corev1.NodeInclusionPolicy) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
			d.Spec.Template.Spec.TopologySpreadConstraints[0].NodeAffinityPolicy = ptr.To(policy)
		}
	}
	world := func(policy corev1.NodeInclusionPolicy) *world {
		return newWorld().node("a1", "a").node("b1", "b").deployment("web", "shop", 2, onlyA(policy)).replicas("a1", "a1").honest()
	}
	require.Empty(t, world(corev1.NodeInclusionPolicyHonor).build().Broken())
	require.Len(t, world(corev1.NodeInclusionPolicyIgnore).build().Broken(), 1)
}
