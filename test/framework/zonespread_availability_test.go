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
