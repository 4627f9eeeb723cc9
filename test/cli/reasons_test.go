package cli

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/zonewise/explain"
)

// testTrueReasons has pods wait for what only upstream's plugins know: a device, the zone of a volume, other pods.
// Explain names the plugin, in the words that the scheduler of the live cluster has for it.
func (c *cluster) testTrueReasons(t *testing.T, viewer string) {
	c.Make(t, c.device()...)
	taker := pod("gpu-taker", "100m", nil)
	taker.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("taken")}}
	c.Make(t, taker)
	until(t, "the only device is taken", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(taker), taker)
		return taker.Spec.NodeName == "node-a", err
	})

	device := pod("waits-for-device", "100m", nil)
	device.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("wanted")}}
	volume := pod("waits-for-zone", "100m", nil)
	volume.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.volumeIn(t, "d")},
	}}}
	affine := pod("waits-for-cache", "100m", nil)
	affine.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}},
	}}}}
	for _, tc := range []struct {
		pod           *corev1.Pod
		plugin, words string
	}{
		{device, "DynamicResources", "cannot allocate all claims"},
		{volume, "VolumeBinding", "node(s) didn't match PersistentVolume's node affinity"},
		{affine, "InterPodAffinity", "node(s) didn't match pod affinity rules"},
	} {
		t.Run(tc.pod.Name, func(t *testing.T) {
			c.Make(t, tc.pod)
			var report *explain.Report
			until(t, "the scheduler has said why", func(context.Context) (bool, error) {
				report = decode[explain.Report](t, c.ok(t, viewer, "explain", tc.pod.Name, "-n", namespace, "-o", "json"))
				return slices.ContainsFunc(report.Said, func(s explain.SchedulerMessage) bool { return strings.Contains(s.Words, "3 "+tc.words) }), nil
			})
			require.Equal(t, explain.Waiting, report.Pod.Verdict)
			require.Len(t, report.Zone, 3)
			for _, zone := range report.Zone {
				require.Equal(t, []explain.Obstacle{{Plugin: tc.plugin, Words: tc.words, Nodes: 1}}, zone.Obstacles)
			}
		})
		require.NoError(t, c.Delete(t.Context(), tc.pod))
	}
	require.NoError(t, c.Delete(t.Context(), taker))
}

// device is a device on node-a, and two claims for it.
func (c *cluster) device() []client.Object {
	const driver = "gpu.example.com"
	objects := []client.Object{
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}},
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: ptr.To("node-a"), Pool: resourcev1.ResourcePool{Name: "node-a", ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
		}},
	}
	for _, name := range []string{"taken", "wanted"} {
		objects = append(objects, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver}}}},
		}})
	}
	return objects
}

// volumeIn makes a volume that can be reached from one zone only, bound to a claim whose name is returned.
func (c *cluster) volumeIn(t *testing.T, zone string) string {
	t.Helper()
	const name = "data"
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: name, StorageClassName: ptr.To(""), Resources: corev1.VolumeResourceRequirements{Requests: storage},
		},
	}
	c.Make(t, claim)
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: storage, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "zonal.example.com", VolumeHandle: name}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}},
	}}
	c.Make(t, volume)
	// There is no volume controller.
	volume.Status.Phase = corev1.VolumeBound
	require.NoError(t, c.Status().Update(t.Context(), volume))
	claim.Status.Phase = corev1.ClaimBound
	require.NoError(t, c.Status().Update(t.Context(), claim))
	return name
}
