package snapshot_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
)

// read returns a pod as a reader has it: with memory of its own.
func read(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	content, err := pod.Marshal()
	require.NoError(t, err)
	out := &corev1.Pod{}
	require.NoError(t, out.Unmarshal(content))
	return out
}

// TestSharing: pods of one template share what they have in common, and each is what it is without sharing.
func TestSharing(t *testing.T) {
	c := clitest.New()
	add := c.Deployment("web", 3, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
		t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
		t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	})
	other := c.Deployment("api", 1, "2", "1Gi", nil)
	var sharing snapshot.Sharing
	var pods []*corev1.Pod
	for _, pod := range []*corev1.Pod{add("a"), add("b"), add(""), other("a")} {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod.Name},
		}}}
		alone, shared := read(t, pod), read(t, pod)
		snapshot.Trim(alone)
		for range 2 { // an informer may trim an object more than once
			sharing.Trim(shared)
		}
		require.Equal(t, alone, shared)
		pods = append(pods, shared)
	}
	web, again, waiting, api := pods[0], pods[1], pods[2], pods[3]
	for _, pod := range []*corev1.Pod{again, waiting} {
		require.Same(t, &web.Spec.Containers[0], &pod.Spec.Containers[0])
		require.Same(t, &web.Spec.TopologySpreadConstraints[0], &pod.Spec.TopologySpreadConstraints[0])
		require.Same(t, web.Spec.Affinity, pod.Spec.Affinity)
		require.Same(t, &web.OwnerReferences[0], &pod.OwnerReferences[0])
	}
	require.NotSame(t, &web.Spec.Containers[0], &api.Spec.Containers[0])
}

// TestSharingForgets: what is known is bounded, whatever comes and goes, and pods are what they are after that, too.
func TestSharingForgets(t *testing.T) {
	var sharing snapshot.Sharing
	for i := range 10_000 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": fmt.Sprint(i)}}}
		sharing.Trim(pod)
		require.Equal(t, fmt.Sprint(i), pod.Labels["app"])
	}
	require.LessOrEqual(t, sharing.Known(), 4096)
}
