package framework

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// A member's cycle may end where PermitGate does not hear of it: an earlier PreFilter refuses the pod, and
// DynamicResources, which is the first at PostFilter as shipped, then ends that extension point with an error.

func withVolume(p *st.PodWrapper, claim string) *st.PodWrapper {
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return p
}

func withDevice(p *st.PodWrapper, claim string) *st.PodWrapper {
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}}
	return p
}

// claiming gives a pod a claim of its own for a device.
func (c *cluster) claiming(p *st.PodWrapper) *st.PodWrapper {
	c.addClaim(p.Pod.Name)
	return withDevice(p, p.Pod.Name)
}

// TestMemberWhoseCycleEndsElsewhere: its gang holds nothing for it, says why, and starts when the cause is gone.
func TestMemberWhoseCycleEndsElsewhere(t *testing.T) {
	type test struct {
		with   func(p *st.PodWrapper, claim string) *st.PodWrapper
		claim  string
		before func(c *cluster)
		words  string
		cure   func(c *cluster)
	}
	inBubbles(t, map[string]test{
		"PersistentVolumeClaim that does not exist": {
			with: withVolume, claim: "absent", words: "PersistentVolumeClaim absent",
			cure: func(c *cluster) { c.addVolume("absent", v1.LabelHostname, "node-2") },
		},
		"PersistentVolumeClaim that is not bound": {
			with: withVolume, claim: "unbound", words: "g-2",
			before: func(c *cluster) {
				c.add(&v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unbound", UID: "pvc"},
					Spec:       v1.PersistentVolumeClaimSpec{StorageClassName: new(string), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
				})
			},
		},
		"ResourceClaim that does not exist": {
			with: withDevice, claim: "absent", words: "ResourceClaim absent",
			cure: func(c *cluster) { c.addClaim("absent") },
		},
		"error of a device selector": {
			with: withDevice, claim: "broken", words: "g-2",
			before: func(c *cluster) { c.addClaim("broken", `device.attributes["x.example.com"].y == 1`) },
		},
	}, func(t *testing.T, tt test) {
		c := newGangCluster(t, 1, 1, 1)
		c.addDevices(1, "", "node-0", "node-1", "node-2")
		if tt.before != nil {
			tt.before(c)
		}
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`))
		c.groups.set("g", 3, 900)
		c.create(member("g", "g-0"), member("g", "g-1"), tt.with(member("g", "g-2"), tt.claim))
		c.soon(func() bool { return c.recorder.count("PodGroup g ", tt.words) > 0 })
		others := c.createPlain("plain", 3)
		c.requireBound(others...)
		require.Empty(t, c.boundAmong("g-0", "g-1", "g-2"))
		if tt.cure != nil {
			c.delete(others...)
			tt.cure(c)
			c.requireBound("g-0", "g-1", "g-2")
		}
	})
}
