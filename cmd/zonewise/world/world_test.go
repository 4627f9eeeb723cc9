package world

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/clitest"
)

// zones returns a cluster of three zones with one node of 4 CPUs each.
func zones() *clitest.Cluster {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node("node-"+zone, zone, "4", "16Gi")
	}
	return c
}

// words lists the obstacles of a waiting pod, by zone.
func words(w *World, pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, a := range w.Ask(pod) {
		var all []string
		for _, o := range a.Obstacles {
			all = append(all, o.Plugin+": "+o.Words)
		}
		if a.Fit > 0 {
			all = append(all, "fits")
		}
		out[a.Zone] = strings.Join(all, "; ")
	}
	return out
}

func TestObstaclesOfOneNode(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *clitest.Cluster, spec *corev1.PodSpec)
		want   string
	}{
		{"none", func(*clitest.Cluster, *corev1.PodSpec) {}, "fits"},
		{"cordoned", func(c *clitest.Cluster, _ *corev1.PodSpec) { c.Nodes[0].Spec.Unschedulable = true }, "NodeUnschedulable: cordoned"},
		{"cordoned, tolerated", func(c *clitest.Cluster, s *corev1.PodSpec) {
			c.Nodes[0].Spec.Unschedulable = true
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, "fits"},
		{"tainted", func(c *clitest.Cluster, _ *corev1.PodSpec) {
			c.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		}, "TaintToleration: tainted gpu=yes"},
		{"a preference is no obstacle", func(c *clitest.Cluster, _ *corev1.PodSpec) {
			c.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, "fits"},
		{
			"node selector", func(_ *clitest.Cluster, s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} },
			"NodeAffinity: outside of the pod's node selector or affinity",
		},
		{"cpu", func(_ *clitest.Cluster, s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("5")
		}, "NodeResourcesFit: short of cpu"},
		{"extended resource", func(_ *clitest.Cluster, s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}, "NodeResourcesFit: short of example.com/gpu"},
		{"pods", func(c *clitest.Cluster, _ *corev1.PodSpec) {
			c.Nodes[0].Status.Allocatable[corev1.ResourcePods] = resource.MustParse("0")
		}, "NodeResourcesFit: short of pods"},
		{"host port", func(c *clitest.Cluster, s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
			c.Pod("web", "node-a", *s, nil)
		}, "NodePorts: with the pod's host port in use"},
		{"another protocol", func(c *clitest.Cluster, s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolUDP}}
			c.Pod("web", "node-a", *s, nil)
			s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}
		}, "fits"},
		{"volume elsewhere", func(c *clitest.Cluster, s *corev1.PodSpec) {
			volumeIn(c, "b")
			s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, "VolumeBinding: away from the pod's volume"},
		{"volume here", func(c *clitest.Cluster, s *corev1.PodSpec) {
			volumeIn(c, "a")
			s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, "fits"},
		{"no topology key", func(_ *clitest.Cluster, s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, "ZoneSpread: without the topology key of a constraint"},
		{"its own anti-affinity", func(c *clitest.Cluster, s *corev1.PodSpec) {
			c.Pod("other", "node-a", clitest.Plain("1", "1Gi"), map[string]string{"app": "other"})
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("other")}}
		}, "InterPodAffinity: with a pod that the pod's anti-affinity avoids over " + corev1.LabelHostname},
		{"another pod's anti-affinity", func(c *clitest.Cluster, _ *corev1.PodSpec) {
			spec := clitest.Plain("1", "1Gi")
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("pod")}}
			c.Pod("other", "node-a", spec, nil)
		}, "InterPodAffinity: kept by the anti-affinity of a pod that is there"},
		{"affinity to nobody", func(_ *clitest.Cluster, s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("other")}}
		}, "InterPodAffinity: away from the pods of its affinity over " + corev1.LabelHostname},
		{"affinity to its own kind: the first goes anywhere", func(_ *clitest.Cluster, s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("pod")}}
		}, "fits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := zones()
			spec := clitest.Plain("1", "1Gi")
			tc.change(c, &spec)
			pod := c.Pod("pod", "", spec, map[string]string{"app": "pod"}).DeepCopy()
			require.Equal(t, tc.want, words(New(c.Snapshot, clitest.Now), pod)["a"])
		})
	}
}

// away is a term over hosts about the pods with the label app.
func away(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func volumeIn(c *clitest.Cluster, zone string) {
	c.Claims = append(c.Claims, corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "disk"},
	})
	c.Volumes = append(c.Volumes, corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"},
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}}},
	})
}

func TestConstraintNamesWhoHoldsItBack(t *testing.T) {
	c := zones()
	web := c.Deployment("web", 4, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	web("node-a")
	web("node-b")
	c.Pod("big", "node-c", clitest.Plain("4", "1Gi"), nil)
	pod := web("").DeepCopy()
	answers := New(c.Snapshot, clitest.Now).Ask(pod)
	require.Equal(t, []ConstraintCount{{TopologyKey: corev1.LabelTopologyZone, Pods: 1, Fewest: 0, MaxSkew: 1}}, answers[0].Constraints)
	require.Equal(t, "room in c, which has the fewest", answers[0].Obstacles[0].Remedy)
	require.Equal(t, "NodeResourcesFit", answers[2].Obstacles[0].Plugin)
	require.Equal(t, "1 more cpu (0 free, 1 asked for) on node node-c", answers[2].Obstacles[0].Remedy)
	require.True(t, answers[2].Constraints[0].Allowed)
}

func TestPolicyCapsAndTurns(t *testing.T) {
	c := zones()
	c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a", MaxPods: ptr.To[int32](1)}}
	})
	web := c.Deployment("web", 6, "100m", "1Gi", nil)
	web("node-a")
	web("node-b")
	pod := web("").DeepCopy()
	w := New(c.Snapshot, clitest.Now)
	got := words(w, pod)
	require.Contains(t, got["a"], "policy shop/web: zone a holds 1 of 6, share 2.0, cap 1 (maxPods)")
	require.Contains(t, got["b"], "policy shop/web: zone b holds 1 of 6, share 2.0, maxSkew 1 over zone c with 0 of weight 1")
	require.Equal(t, "fits", got["c"])
	answers := w.Ask(pod)
	require.Equal(t, "MaxPods", answers[0].Policies[0].Rule)
	require.Equal(t, int64(1), answers[0].Policies[0].Pods)
	require.Equal(t, "room in zone c, whose turn it is", answers[1].Obstacles[0].Remedy)
}

func TestALostZoneHoldsNobodyBack(t *testing.T) {
	c := zones()
	c.Policy("web", nil)
	web := c.Deployment("web", 6, "100m", "1Gi", nil)
	for _, zone := range []string{"a", "b", "c", "a", "b", "c"} {
		web("node-" + zone)
	}
	w := New(c.Snapshot, clitest.Now)
	lost := w.Lose(func(n *Node) bool { return n.Zone == "a" })
	require.Len(t, lost, 2)
	for _, p := range lost {
		require.True(t, w.Place(p))
		require.NotEqual(t, "a", p.Node.Zone)
	}
	status := w.Status(w.Policies()[0], 0)
	require.Equal(t, v1alpha1.ZoneClosed, status.Zones[0].State)
	require.Equal(t, int64(3), status.Zones[1].Desired)
	require.Equal(t, int64(6), status.Pods)
	require.Equal(t, []string{"b", "c"}, w.Zones())
}

func TestAPercentageIsOfTheOwnersReplicas(t *testing.T) {
	c := zones()
	c.Policy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.MaxPerZone = ptr.To(intstr.FromString("50%"))
		s.MaxSkew = 10
	})
	web := c.Deployment("web", 4, "100m", "1Gi", nil)
	web("node-a")
	web("node-a")
	require.Contains(t, words(New(c.Snapshot, clitest.Now), web("").DeepCopy())["a"], "cap 2 (maxPerZone 50%)")
}

func TestHoldsKeepOthersOff(t *testing.T) {
	c := zones()
	c.Reservation("headroom", "shop", "2", 100, map[string]int64{"node-a": 2, "node-b": 1})
	stranger := c.Pod("stranger", "", clitest.Plain("1", "1Gi"), nil).DeepCopy()
	high := c.Pod("high", "", clitest.Plain("1", "1Gi"), nil).DeepCopy()
	high.Spec.Priority = ptr.To[int32](101)
	daemon := c.Pod("daemon", "", clitest.Plain("1", "1Gi"), nil).DeepCopy()
	daemon.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
	own := c.Pod("own", "", clitest.Plain("2", "1Gi"), map[string]string{"app": "shop"}).DeepCopy()
	w := New(c.Snapshot, clitest.Now)
	require.Equal(t, "ReserveCache: short of cpu, which ZoneReservation headroom holds", words(w, stranger)["a"])
	require.Equal(t, "fits", words(w, stranger)["b"])
	require.Equal(t, "fits", words(w, high)["a"])
	require.Equal(t, "fits", words(w, daemon)["a"])
	require.Equal(t, "fits", words(w, own)["a"])
	require.Equal(t, []HoldCount{{Reservation: "headroom", Unused: 2, Own: true}}, w.Ask(own)[0].Holds)

	// Headroom is a last resort: free room first, a slot when nothing else is left.
	var nodes []string
	for range 6 {
		p := w.Add(own.DeepCopy())
		require.True(t, w.Place(p))
		nodes = append(nodes, p.Node.Object.Name)
	}
	require.ElementsMatch(t, []string{"node-c", "node-c", "node-b"}, nodes[:3])
	require.Equal(t, map[string]int{}, w.Unused(w.Holds()[0]), "the other three took the slots")
	require.False(t, w.Place(w.Add(own.DeepCopy())))
}

func TestAnOwnerThatRunsInSlotsOnly(t *testing.T) {
	c := zones()
	r := c.Reservation("strict", "shop", "2", 0, map[string]int64{"node-a": 1})
	r.Spec.OwnerPolicy = v1alpha1.OwnerRequired
	own := c.Pod("own", "", clitest.Plain("2", "1Gi"), map[string]string{"app": "shop"}).DeepCopy()
	w := New(c.Snapshot, clitest.Now)
	require.Equal(t, map[string]string{
		"a": "fits",
		"b": "ReserveCache: without a slot of the reservation that the pod has to run in",
		"c": "ReserveCache: without a slot of the reservation that the pod has to run in",
	}, words(w, own))
}

func TestSlotsShiftWhenTheirZoneIsLost(t *testing.T) {
	for policy, want := range map[v1alpha1.ZoneLossPolicy]int{v1alpha1.ZoneLossShift: 2, v1alpha1.ZoneLossKeep: 0} {
		t.Run(string(policy), func(t *testing.T) {
			c := zones()
			c.Reservation("headroom", "shop", "2", 100, map[string]int64{"node-a": 2}).Spec.OnZoneLoss = policy
			w := New(c.Snapshot, clitest.Now)
			w.Lose(func(n *Node) bool { return n.Zone == "a" })
			h := w.Holds()[0]
			require.Equal(t, 2, h.Lost)
			require.Equal(t, want, w.ShiftHolds()[h])
			require.Equal(t, 2-want, h.Lost)
			sum := 0
			for _, n := range w.Unused(h) {
				sum += n
			}
			require.Equal(t, want, sum)
		})
	}
}

func TestAPodThatTerminatesTakesRoomAndCountsForNothing(t *testing.T) {
	c := zones()
	web := c.Deployment("web", 3, "4", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	web("node-a").DeletionTimestamp = ptr.To(metav1.NewTime(clitest.Now))
	web("node-b").Status.Phase = corev1.PodSucceeded
	got := words(New(c.Snapshot, clitest.Now), web("").DeepCopy())
	require.Equal(t, map[string]string{"a": "NodeResourcesFit: short of cpu", "b": "fits", "c": "fits"}, got)
}

func TestWorkloadsAreNamedByTheirTop(t *testing.T) {
	c := zones()
	web := c.Deployment("web", 1, "1", "1Gi", nil)("node-a").DeepCopy()
	bare := c.Pod("bare", "node-a", clitest.Plain("1", "1Gi"), nil).DeepCopy()
	w := New(c.Snapshot, clitest.Now)
	require.Equal(t, "Deployment shop/web", w.Workload(web))
	require.Equal(t, "Pod shop/bare", w.Workload(bare))
	bare.OwnerReferences = []metav1.OwnerReference{{Kind: "Rollout", Name: "r", UID: "unknown", Controller: ptr.To(true)}}
	require.Equal(t, "Rollout shop/r", w.Workload(bare))
}

func TestRooms(t *testing.T) {
	c := zones()
	c.Node("nowhere", "", "1", "1Gi")
	c.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
	c.Pod("p", "node-a", clitest.Plain("1", "1Gi"), nil)
	var got []string
	for _, r := range New(c.Snapshot, clitest.Now).Rooms() {
		got = append(got, fmt.Sprintf("%q %d/%d %d %d of %d", r.Zone, r.Ready, r.Nodes, r.Pods, r.Requested.MilliCPU, r.Allocatable.MilliCPU))
	}
	require.Equal(t, []string{`"" 1/1 0 0 of 1000`, `"a" 0/1 1 1000 of 4000`, `"b" 1/1 0 0 of 4000`, `"c" 1/1 0 0 of 4000`}, got)
}
