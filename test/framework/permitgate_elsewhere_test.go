package framework

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
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

// addVolumeClaim creates a PersistentVolumeClaim, which is bound to a volume if it has one.
func (c *cluster) addVolumeClaim(name, volume string) {
	c.t.Helper()
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "pvc", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: new(string), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
	if volume != "" {
		claim.Status.Phase = v1.ClaimBound
		_, err := c.client.CoreV1().PersistentVolumes().Create(c.t.Context(), &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: volume},
			Spec: v1.PersistentVolumeSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				ClaimRef:    &v1.ObjectReference{Namespace: "default", Name: name, UID: "pvc"},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
		}, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
	_, err := c.client.CoreV1().PersistentVolumeClaims("default").Create(c.t.Context(), claim, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// TestMemberWhoseCycleEndsElsewhere: its gang holds nothing for it, says why, and starts when the cause is gone.
func TestMemberWhoseCycleEndsElsewhere(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(t *testing.T, c *cluster)
		change func(p *st.PodWrapper) *st.PodWrapper
		words  string
		cure   func(t *testing.T, c *cluster)
	}{
		"PersistentVolumeClaim that does not exist": {
			func(*testing.T, *cluster) {}, func(p *st.PodWrapper) *st.PodWrapper { return withVolume(p, "absent") },
			`PersistentVolumeClaim absent`, func(_ *testing.T, c *cluster) { c.addVolumeClaim("absent", "volume") },
		},
		"PersistentVolumeClaim that is not bound": {
			func(t *testing.T, c *cluster) {
				_, err := c.client.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unbound", UID: "pvc"},
					Spec:       v1.PersistentVolumeClaimSpec{StorageClassName: new(string), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}, func(p *st.PodWrapper) *st.PodWrapper { return withVolume(p, "unbound") },
			"g-2", nil,
		},
		"ResourceClaim that does not exist": {
			func(*testing.T, *cluster) {}, func(p *st.PodWrapper) *st.PodWrapper { return withDevice(p, "absent") },
			`ResourceClaim absent`, func(_ *testing.T, c *cluster) { c.addClaim("absent") },
		},
		"error of a device selector": {
			func(t *testing.T, c *cluster) {
				c.addClaim("broken")
				claim, err := c.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "broken", metav1.GetOptions{})
				require.NoError(t, err)
				claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{{
					CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["x.example.com"].y == 1`},
				}}
				_, err = c.client.ResourceV1().ResourceClaims("default").Update(t.Context(), claim, metav1.UpdateOptions{})
				require.NoError(t, err)
			}, func(p *st.PodWrapper) *st.PodWrapper { return withDevice(p, "broken") },
			"g-2", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t, 1, 1, 1)
				c.addDevices(1, "", "node-0", "node-1", "node-2")
				tt.before(t, c)
				c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`))
				c.groups.set("g", 3, 900)
				c.create(member("g", "g-0"), member("g", "g-1"), tt.change(member("g", "g-2")))
				c.requireMessage("g", tt.words)
				c.create(member("", "plain-0"), member("", "plain-1"), member("", "plain-2"))
				c.requireBound("plain-0", "plain-1", "plain-2")
				require.Empty(t, c.boundAmong("g-0", "g-1", "g-2"))
				if tt.cure != nil {
					c.delete("plain-0", "plain-1", "plain-2")
					tt.cure(t, c)
					c.requireBound("g-0", "g-1", "g-2")
				}
			})
		})
	}
}

// requireMessage waits for an event of a gang, or a condition of its members, with words.
func (c *cluster) requireMessage(gang, words string) {
	c.t.Helper()
	c.soon(func() bool { return c.recorder.count("PodGroup "+gang+" ", words) > 0 })
}

// TestRoundEndsWithoutProgress: a member that another plugin keeps out of the queue does not come; its gang does not
// hold its nodes until the time is up.
func TestRoundEndsWithoutProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t, 1, 1, 1)
		c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "30s", "bindRehearsal": "Never"}`))
		c.mishap.set(func(m *mishap) {
			m.preEnqueue = func(pod string) *fwk.Status {
				if pod == "g-2" {
					return fwk.AsStatus(errors.New("not yet"))
				}
				return nil
			}
		})
		c.groups.set("g", 3, 900)
		c.create(member("g", "g-0"), member("g", "g-1"), member("g", "g-2"))
		c.requireEvent("PodGroup g GangRolledBack", "g-2")
		c.create(member("", "plain-0"), member("", "plain-1"), member("", "plain-2"))
		c.requireBound("plain-0", "plain-1", "plain-2")
		assert.Empty(t, c.boundAmong("g-0", "g-1", "g-2"), fmt.Sprint(c.mishap.waiting()))
	})
}
