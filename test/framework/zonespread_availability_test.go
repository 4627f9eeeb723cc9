package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestStartupTaints: a zone whose first node is Ready and still has a taint of its own holds back the pods that waited
// for it only if the policy ignores taints. TestKarpenterAndPolicies in test/karpenter has the second case with a real
// autoscaler.
func TestStartupTaints(t *testing.T) {
	type test struct {
		taints v1alpha1.InclusionPolicy
		zones  map[string]int // while the node has the taint
	}
	inBubbles(t, map[string]test{
		"honoured": {v1alpha1.Honor, map[string]int{"a": 2, "b": 2}},
		"ignored":  {v1alpha1.Ignore, map[string]int{"a": 1, "b": 1}},
	}, func(t *testing.T, tt test) {
		c := newSpreadCluster(t)
		c.addNodes("8", "a1", "b1")
		c.policies.Put(newPolicy(declaring("a", "b", "c"), func(s *v1alpha1.ZoneSpreadPolicySpec) { s.NodeTaintsPolicy = tt.taints }))
		c.start()
		c.createPods(newPods(4, "web", "1")...)
		c.waitBound("web", 2)
		c.pass(time.Minute)
		require.Len(t, c.bound("web"), 2, "the others wait for zone c")

		c1 := newNode("c1", "c", "8")
		c1.Spec.Taints = []v1.Taint{{Key: "example.com/starts", Effect: v1.TaintEffectNoExecute}}
		c.add(c1)
		c.pass(time.Minute)
		require.Equal(t, tt.zones, c.byZone("web"))

		c.editNode("c1", func(n *v1.Node) { n.Spec.Taints = nil })
		c.waitBound("web", 4)
		require.Equal(t, tt.taints == v1alpha1.Ignore, c.byZone("web")["c"] > 0)
	})
}

// TestPinnedPodClosesNoZone: a pod that can use one zone only, and is the newest of the policy, closes no other zone.
func TestPinnedPodClosesNoZone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Given: a pod in each of three zones, and then a newer one that selects zone a; zones b and c have no room.
		c := newSpreadCluster(t)
		c.addNodes("8", "a1", "a2", "b1", "c1")
		c.policies.Put(newPolicy(failover(10*time.Second, time.Hour)))
		c.start()
		c.createPods(newPods(3, "web", "1", build.Label("pod-template-hash", "1"))...)
		c.waitZones("web", map[string]int{"a": 1, "b": 1, "c": 1})
		for _, node := range []string{"b1", "c1"} {
			c.createPods(newPod("filler-"+node, "7", build.Label("app", "filler"), build.Bound(node)))
		}
		c.createPods(newPod("pinned", "1", build.Label("pod-template-hash", "2"), build.Selects(v1.LabelTopologyZone, "a")))
		c.waitBound("pinned", 1)
		c.pass(20 * time.Second)
		// When: more pods come than zone a may take.
		c.createPods(newPods(6, "more", "1", build.Label("pod-template-hash", "1"))...)
		c.pass(time.Minute)
		// Then: the zones are available, and maxSkew holds.
		require.Equal(t, map[string]int{"a": 1}, c.byZone("more"))
		for _, zone := range []string{"a", "b", "c"} {
			require.Equal(t, v1alpha1.ZoneAvailable, c.stateOf(zone), zone)
		}
	})
}

// addVolume adds a bound claim whose volume can be used on the nodes with one value of a label only.
func (c *cluster) addVolume(claim, label, value string) {
	c.t.Helper()
	storage := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	c.add(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim, UID: types.UID("pv-" + claim)},
		Spec: v1.PersistentVolumeSpec{
			Capacity: storage, AccessModes: modes,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: claim}},
			ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim, UID: types.UID(claim)},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{value}}},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	})
	c.add(&v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: claim, UID: types.UID(claim),
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"},
		},
		Spec: v1.PersistentVolumeClaimSpec{
			VolumeName: "pv-" + claim, AccessModes: modes, StorageClassName: ptr.To(""), Resources: v1.VolumeResourceRequirements{Requests: storage},
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	})
}

// withClaim mounts a claim.
func withClaim(claim string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// TestVolumePinsAPod: a pod goes back to the zone of its volume at once, be it a volume of the zone or of one node,
// however the others are placed, and the zones that it cannot use are not full for it.
func TestVolumePinsAPod(t *testing.T) {
	type test struct{ label, value, small string }
	inBubbles(t, map[string]test{
		"to its zone":                     {v1.LabelTopologyZone, "a", ""},
		"to its node":                     {v1.LabelHostname, "a1", ""},
		"beside nodes that are too small": {v1.LabelTopologyZone, "a", "bc"},
	}, func(t *testing.T, tt test) {
		// Given: three pods in zone a, two in zone b and none in zone c, as after an outage of zone c.
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "a2", "b1", "c1")
		for _, zone := range tt.small {
			c.addNodes("500m", string(zone)+"2")
		}
		c.addVolume("data-0", tt.label, tt.value)
		c.policies.Put(newPolicy(failover(time.Hour, 5*time.Minute)))
		for i, node := range []string{"a1", "a1", "a1", "b1", "b1"} {
			c.createPods(newPod(fmt.Sprintf("s-%d", i), "1", build.Bound(node)))
		}
		c.start()
		c.pass(time.Minute)
		// When: the one with a volume in zone a is made again.
		c.finish("s-0")
		c.createPods(newPod("s-0", "1", withClaim("data-0"), func(pod *v1.Pod) { pod.UID = "again" }))
		// Then: it is back in seconds.
		c.eventuallyWithin(15*time.Second, "it is back", func() bool { return len(c.bound("s-0")) == 1 })
		require.Equal(t, "a", c.bound("s-0")["s-0"][:1])
		c.pass(time.Minute)
		for _, zone := range c.status().Zones {
			require.Empty(t, zone.Full, "zone %s refuses this pod alone", zone.Name)
		}
	})
}

// fillNodes leaves no room on nodes of one CPU.
func (c *cluster) fillNodes(nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		c.createPods(newPod("filler-"+node, "1", build.Label("app", "filler"), build.Bound(node)))
	}
}

// setCordon cordons a node as kubectl does, or takes that back.
func (c *cluster) setCordon(node string, on bool) {
	c.t.Helper()
	c.editNode(node, func(n *v1.Node) {
		n.Spec.Unschedulable, n.Spec.Taints = on, nil
		if on {
			now := metav1.NewTime(c.clock.Now())
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule, TimeAdded: &now}}
		}
	})
}

// taintNode keeps the pods of these tests from a node.
func (c *cluster) taintNode(name string) {
	c.t.Helper()
	c.editNode(name, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: v1.TaintEffectNoSchedule})
	})
}

// TestNoZoneIsFullWithoutRoomElsewhere: a zone is full beside others. Where no zone has room the pods keep their spread
// for the nodes that come, however slowly.
func TestNoZoneIsFullWithoutRoomElsewhere(t *testing.T) {
	inBubbles(t, map[string]time.Duration{"nodes come soon": 3 * time.Minute, "nodes come late": 7 * time.Minute}, func(t *testing.T, wait time.Duration) {
		// Given: three zones without room, and pods that wait.
		c := newSpreadCluster(t)
		c.addNodes("1", "a1", "b1", "c1")
		c.policies.Put(newPolicy(failover(2*time.Minute, 5*time.Minute)))
		c.fillNodes("a1", "b1", "c1")
		c.start()
		c.createPods(newPods(9, "web", "1")...)
		c.pass(wait)
		// When: a node comes to one zone after the other.
		for _, name := range []string{"a2", "b2", "c2"} {
			c.addNodes("16", name)
			c.pass(time.Minute)
		}
		// Then: the pods are spread.
		c.eventuallyWithin(10*time.Minute, "all are bound", func() bool { return len(c.bound("web")) == 9 })
		require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3}, c.byZone("web"))
	})
}

// TestAGangPassesAFullZone: room for one member in a full zone is no room for the gang, since its rounds are undone.
func TestAGangPassesAFullZone(t *testing.T) {
	inBubbles(t, map[string]bool{"room for one member": false, "no room": true}, func(t *testing.T, filled bool) {
		c := newPackCluster(t, 16, 16, 1)
		c.policies.Put(newPolicy(failover(time.Hour, time.Minute)))
		if filled {
			c.fillNodes("c1")
		}
		c.start()
		c.createGang("g", 9, labelled("app", "web"))
		c.eventuallyWithin(10*time.Minute, "the gang is bound", func() bool { return len(c.bound("g-")) == 9 })
	})
}

// TestBackoffOfTheConfiguration: no change of a policy takes a pod out of the backoff that kube-scheduler is configured
// with.
func TestBackoffOfTheConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.maxBackoff = 300
		c.addNodes("640", "a1", "b1")
		c.addNodes("1", "c1")
		c.fillNodes("c1")
		c.policies.Put(newPolicy(failover(time.Hour, 5*time.Hour)))
		c.start()
		c.createPods(newPods(4, "web", "1")...)
		c.waitBound("web", 2)
		for i := range 60 {
			c.policies.Put(newPolicy(failover(time.Hour, 5*time.Hour+time.Duration(i)*time.Second)))
			c.pass(20 * time.Second)
		}
		for i := range 4 {
			require.LessOrEqual(t, c.mishap.tried(fmt.Sprint("web-", i)), 12, "1, 2, 4 ... 256, 300 and 300 s in 20 minutes")
		}
	})
}

// closeZoneC starts a scheduler under a policy, cordons node c1, on which is one of three pods, and creates more pods.
func (c *cluster) closeZoneC(policy func(*v1alpha1.ZoneSpreadPolicySpec), more int) {
	c.t.Helper()
	c.policies.Put(newPolicy(policy))
	c.start()
	c.createPods(newPods(3, "web", "1")...)
	c.waitBound("web", 3)
	c.setCordon("c1", true)
	c.pass(10 * time.Second)
	c.createPods(newPods(more, "more", "1")...)
}

// TestLastNodeOfAClosingZone: pods that wait for a closing zone are tried when the last node there that they could use
// goes.
func TestLastNodeOfAClosingZone(t *testing.T) {
	inBubbles(t, map[string]bool{"no other node": false, "another closed node that they cannot use": true}, func(t *testing.T, other bool) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		if other {
			c.addNodes("16", "c-cp")
			c.setCordon("c-cp", true)
			c.taintNode("c-cp")
		}
		c.closeZoneC(failover(30*time.Minute, time.Hour), 4)
		c.pass(time.Minute)
		require.Less(t, len(c.bound("more")), 4, "they wait for zone c")
		c.deleteNode("c1")
		c.eventuallyWithin(12*time.Second, "they go elsewhere", func() bool { return len(c.bound("more")) == 4 })
	})
}

// TestAZoneClosesByThePodsOwnNodes: an open node that the pods cannot use does not hide that those which they can are
// gone: they have downAfter to come back.
func TestAZoneClosesByThePodsOwnNodes(t *testing.T) {
	inBubbles(t, map[string]bool{"workers only": false, "beside a node of the control plane": true}, func(t *testing.T, controlPlane bool) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1", "c1")
		if controlPlane {
			c.addNodes("16", "c-cp")
			c.taintNode("c-cp")
		}
		c.closeZoneC(failover(2*time.Minute, 5*time.Minute), 6)
		c.pass(100 * time.Second)
		require.Less(t, len(c.bound("more")), 6, "zone c is closing")
		c.eventuallyWithin(30*time.Second, "it is closed", func() bool { return len(c.bound("more")) == 6 })
	})
}

// TestTooManyPolicies: a pod that too many policies select is refused, and says so, until there are fewer.
func TestTooManyPolicies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newSpreadCluster(t)
		c.addNodes("16", "a1", "b1")
		last := newPolicy()
		for i := range 17 {
			last = newPolicy()
			last.Name = fmt.Sprintf("web-%02d", i)
			c.policies.Put(last)
		}
		c.start()
		c.createPods(newPod("web", "1"), newPod("other", "1", build.Label("app", "other")))
		c.waitBound("other", 1)
		c.pass(time.Minute)
		require.Empty(t, c.bound("web"))
		require.Contains(t, refusal(&c.listPods("web")[0]), "17 ZoneSpreadPolicies select the pod, at most 16 may")
		c.policies.Delete(last)
		c.waitBound("web", 1)
	})
}
