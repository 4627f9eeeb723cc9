package world

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/clitest"
	"zonewise.dev/cmd/zonewise/snapshot"
)

// gangLabels are those of the members of the gang train.
func gangLabels() map[string]string {
	return map[string]string{"app": "train", schedv1alpha1.PodGroupLabel: "train"}
}

// members adds members of the gang train that wait, or are on a node.
func members(c *clitest.Cluster, n int, cpu, node string) {
	for range n {
		pod := c.Pod(fmt.Sprintf("train-%d", len(c.Pods)), node, clitest.Plain(cpu, "1Gi"), gangLabels())
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "train", UID: "train", Controller: ptr.To(true)}}
	}
}

func TestWhyAGangIsNotPlaced(t *testing.T) {
	each := func(c *clitest.Cluster, change func(p *corev1.Pod)) {
		for i := range c.Pods {
			if c.Pods[i].Labels["app"] == "train" {
				change(&c.Pods[i])
			}
		}
	}
	for _, tc := range []struct {
		name  string
		build func(c *clitest.Cluster)
		why   string // empty: it is whole
		fit   int
		stuck bool
	}{
		{"it fits", func(c *clitest.Cluster) { c.Gang("train", 3); members(c, 3, "4", "") }, "", 3, false},
		{"more than it needs fit", func(c *clitest.Cluster) { c.Gang("train", 2); members(c, 4, "4", "") }, "", 3, true},
		{"room for some", func(c *clitest.Cluster) {
			c.Gang("train", 4)
			members(c, 4, "4", "")
		}, "needs 4, plan found 3: 3 nodes short of cpu", 3, true},
		{"with those that are bound", func(c *clitest.Cluster) {
			c.Gang("train", 5)
			members(c, 1, "3", "node-a")
			members(c, 4, "3", "")
		}, "needs 5, plan found 3: 3 nodes short of cpu", 2, true},
		{"what is reserved for the members is not theirs as a gang", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 3, "3", "")
			c.Reservation("headroom", "train", "2", 0, map[string]int64{"node-a": 1})
		}, "needs 3, plan found 2: 3 nodes short of cpu", 2, true},
		{"a reservation of a lower priority", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 3, "3", "")
			c.Reservation("headroom", "web", "2", 5, map[string]int64{"node-a": 1})
			each(c, func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](6) })
		}, "", 3, false},
		{"one member whose priority is lower", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 3, "3", "")
			c.Reservation("headroom", "web", "2", 5, map[string]int64{"node-a": 1})
			each(c, func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](6) })
			c.Pods[1].Spec.Priority = nil
		}, "needs 3, plan found 2: 3 nodes short of cpu", 2, true},
		{"the last member has the slot that is its own", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			members(c, 1, "3", "node-b")
			members(c, 1, "3", "")
			c.Pod("big", "node-c", clitest.Plain("4", "1Gi"), nil)
			c.Reservation("headroom", "train", "3", 0, map[string]int64{"node-a": 1})
		}, "", 1, false},
		{"the last member fits nowhere", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			members(c, 1, "3", "node-b")
			members(c, 1, "5", "")
		}, "", 0, true},
		{"no PodGroup", func(c *clitest.Cluster) { members(c, 2, "1", "") }, "the PodGroup does not exist", 0, false},
		{"a PodGroup that nobody may read", func(c *clitest.Cluster) {
			members(c, 2, "1", "")
			c.Missing = []snapshot.Missing{{Resource: podGroups, Reason: snapshot.Forbidden}}
		}, "", 2, false},
		{"minMember of 0", func(c *clitest.Cluster) { c.Gang("train", 0); members(c, 2, "1", "") }, "spec.minMember is 0, must be at least 1", 0, false},
		{"too few", func(c *clitest.Cluster) {
			c.Gang("train", 4)
			members(c, 1, "1", "node-a")
			members(c, 2, "1", "")
		}, "needs 4 members, 3 exist", 0, false},
		{"gates", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 3, "1", "")
			c.Pods[1].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
		}, "needs 3 members, 2 exist and 1 more have scheduling gates or another scheduler", 0, false},
		{"members that have succeeded", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 2, "4", "node-a")
			each(c, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			members(c, 1, "4", "")
		}, "", 1, false},
		{"members of another Job that have", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 2, "4", "node-a")
			each(c, func(p *corev1.Pod) { p.Status.Phase, p.OwnerReferences[0].UID = corev1.PodSucceeded, "other" })
			members(c, 1, "4", "")
		}, "needs 3 members, 1 exist", 0, false},
		{"minResources", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			c.PodGroups[0].Spec.MinResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("1Gi")}
			members(c, 2, "1", "")
		}, "needs 2, and spec.minResources are not there: cpu: 16 wanted, 12 free in the cluster", 0, false},
		{"what its members have counts for minResources", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			c.PodGroups[0].Spec.MinResources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")}
			members(c, 1, "1", "node-a")
			members(c, 2, "1", "")
		}, "", 2, false},
		{"the anti-affinity of others", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			members(c, 2, "3", "")
			spec := clitest.Plain("1", "1Gi")
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("train")}}
			c.Pod("hermit-a", "node-a", spec, nil)
			c.Pod("hermit-b", "node-b", spec, nil)
		}, "needs 2, plan found 1: 2 nodes refused by InterPodAffinity (node(s) didn't satisfy existing pods anti-affinity rules), 1 node short of cpu", 1, true},
		{"affinity to a namespace by its labels", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			members(c, 2, "2", "")
			c.Namespaces[0].Labels = map[string]string{"team": "ml"}
			each(c, func(p *corev1.Pod) {
				terms := away("data")
				terms[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ml"}}
				p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			})
			c.Pod("data", "node-b", clitest.Plain("1", "1Gi"), map[string]string{"app": "data"})
		}, "needs 2, plan found 1: 2 nodes refused by InterPodAffinity (node(s) didn't match pod affinity rules), 1 node short of cpu", 1, true},
		{"a volume that is elsewhere", func(c *clitest.Cluster) {
			c.Gang("train", 2)
			members(c, 2, "3", "")
			volumeIn(c, "b")
			each(c, func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			})
		}, "needs 2, plan found 1: 2 nodes refused by VolumeBinding (node(s) didn't match PersistentVolume's node affinity), 1 node short of cpu", 1, true},
		{"caps", func(c *clitest.Cluster) {
			c.Gang("train", 4)
			members(c, 4, "1", "")
			c.Policy("train", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromInt32(1)) })
		}, "needs 4, plan found 3: 1 node kept: policy shop/train: zone a holds 1, cap 1 (maxPerZone 1), " +
			"1 node kept: policy shop/train: zone b holds 1, cap 1 (maxPerZone 1), " +
			"1 node kept: policy shop/train: zone c holds 1, cap 1 (maxPerZone 1)", 3, true},
		{"host ports", func(c *clitest.Cluster) {
			c.Gang("train", 3)
			members(c, 3, "1", "")
			each(c, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} })
			c.Pod("web", "node-a", c.Pods[0].Spec, nil)
		}, "needs 3, plan found 2: 2 nodes with the host port planned for another member, 1 node with its host port taken", 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := zones()
			tc.build(c)
			w := New(c.Snapshot, clitest.Now)
			before := w.Rooms()
			g := w.Gang("shop/train")
			got := w.PlaceGang(g)
			require.Equal(t, tc.why, got.Why)
			require.Equal(t, tc.fit, got.Fit)
			require.Equal(t, tc.stuck, got.Stuck != nil)
			if tc.why != "" {
				require.Empty(t, got.Placed)
				require.Equal(t, before, w.Rooms(), "nobody is placed")
				placed := w.PlacePartly(g, got)
				require.Len(t, placed, tc.fit)
				w.Undo(placed)
			} else {
				require.Len(t, got.Placed, tc.fit)
				w.Undo(got.Placed)
			}
			require.Equal(t, before, w.Rooms())
		})
	}
}

func TestAGangGoesWhereItIsPlanned(t *testing.T) {
	c := zones()
	c.Gang("train", 2)
	members(c, 2, "1", "")
	c.Pod("other", "node-b", clitest.Plain("2", "1Gi"), nil)
	w := New(c.Snapshot, clitest.Now)
	for _, p := range w.PlaceGang(w.Gang("shop/train")).Placed {
		require.Equal(t, "node-b", p.Node.Object.Name, "where there is the least to spare, and not on the emptiest node")
	}
}

func TestGroupsOfKubernetesItselfAreNoGangs(t *testing.T) {
	c := zones()
	members(c, 1, "1", "")
	c.Pods[0].Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	w := New(c.Snapshot, clitest.Now)
	require.Nil(t, w.Gang("shop/train"))
	require.Empty(t, w.GangKeys())
}

// TestGangsAreWholeOrNotAtAll places random gangs in random clusters. Who is placed is a quorum that keeps every rule that can
// be recounted; who is not leaves no trace; and where the members are equal and only ask for room, one by one and planned
// agree on whether there is enough.
func TestGangsAreWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clitest.New()
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			n := c.Node(fmt.Sprintf("node-%d", i), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"), fmt.Sprint(rapid.IntRange(1, 8).Draw(t, "cpu")), "16Gi")
			n.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(t, "cordon") == 0
		}
		request := fmt.Sprintf("%dm", 500*rapid.IntRange(1, 6).Draw(t, "request"))
		maxSkew := int32(rapid.IntRange(1, 2).Draw(t, "maxSkew")) //nolint:gosec // small
		spread, capped, hermit := rapid.Bool().Draw(t, "spread"), rapid.IntRange(0, 3).Draw(t, "capped") == 0, rapid.IntRange(0, 3).Draw(t, "hermit") == 0
		for range rapid.IntRange(0, 2).Draw(t, "bound") {
			members(c, 1, "500m", rapid.SampledFrom(c.Nodes).Draw(t, "node").Name)
		}
		members(c, rapid.IntRange(1, 8).Draw(t, "members"), request, "")
		for i := range c.Pods {
			if spread {
				c.Pods[i].Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("train", maxSkew)}
			}
			c.Pods[i].Labels["batch.kubernetes.io/job-completion-index"] = fmt.Sprint(i)
		}
		if capped {
			c.Policy("train", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = maxSkew })
		}
		if hermit {
			spec := clitest.Plain("0", "0")
			spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: away("train")}}
			c.Pod("hermit", rapid.SampledFrom(c.Nodes).Draw(t, "hermit's").Name, spec, nil)
		}
		if rapid.Bool().Draw(t, "held") {
			c.Reservation("r", "other", "1", 0, map[string]int64{c.Nodes[0].Name: 1})
		}
		c.Gang("train", int32(rapid.IntRange(1, 9).Draw(t, "minMember"))) //nolint:gosec // small

		w := New(c.Snapshot, clitest.Now)
		before := fmt.Sprint(w.Rooms(), w.UnusedSlots())
		g := w.Gang("shop/train")
		got := w.PlaceGang(g)
		onNodes := 0
		for _, p := range g.Members {
			if p.Node == nil {
				continue
			}
			onNodes++
			if p.Object.Spec.NodeName == "" {
				if p.Node.Object.Spec.Unschedulable {
					t.Fatalf("%s is on a cordoned node", p.Key())
				}
				// Who was bound before may have broken the constraint already.
				check(t, w, p, spread && g.Bound == 0 && !hermit, maxSkew)
			}
		}
		switch {
		case onNodes != g.Bound+len(got.Placed):
			t.Fatalf("%d members are on nodes, %d were and %d came", onNodes, g.Bound, len(got.Placed))
		case len(got.Placed) > 0 && onNodes < g.MinMember():
			t.Fatalf("%d of %d members are on nodes", onNodes, g.MinMember())
		case got.Why != "" && len(got.Placed) > 0:
			t.Fatalf("%d are placed although %s", len(got.Placed), got.Why)
		case got.Why == "" && onNodes < g.MinMember() && got.Stuck == nil:
			t.Fatal("nothing is said about why it waits")
		}
		w.Undo(got.Placed)
		if after := fmt.Sprint(w.Rooms(), w.UnusedSlots()); after != before {
			t.Fatalf("a trace is left:\n%s\n%s", before, after)
		}
		if spread || capped || hermit || g.Bound+len(g.Waiting) < g.MinMember() {
			return
		}
		single := 0
		for _, p := range g.Waiting {
			if w.Place(p) {
				single++
			}
		}
		if whole := got.Why == "" && onNodes >= g.MinMember(); whole != (g.Bound+single >= g.MinMember()) {
			t.Fatalf("planned: %+v; one by one %d of %d find a node, and %d are bound of %d", got, single, len(g.Waiting), g.Bound, g.MinMember())
		} else if whole && len(got.Placed) != single {
			t.Fatalf("planned %d, one by one %d", len(got.Placed), single)
		}
	})
}
