package board

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPlaceable(t *testing.T) {
	cpu := func(quantity string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(quantity)
		}
	}
	selector := func(zone string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
		}
	}
	tolerating := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  bool
	}{
		{"an empty node", newWorld().node("a1", "a").deployment("d", "d", 1).replicas(""), true},
		{"no node", newWorld().deployment("d", "d", 1).replicas(""), false},
		{"exactly the rest", newWorld().node("a1", "a").pod("ns", nil, requests("3"), "a1").deployment("d", "d", 1).replicas(""), true},
		{"a little too much", newWorld().node("a1", "a").pod("ns", nil, requests("3001m"), "a1").deployment("d", "d", 1).replicas(""), false},
		{"too large for any", newWorld().node("a1", "a").deployment("d", "d", 1, cpu("5")).replicas(""), false},
		{"held by a pod that is going", newWorld().node("a1", "a").pod("ns", nil, requests("4"), "a1").last(terminating).deployment("d", "d", 1).replicas(""), false},
		{"cordoned before the taint", newWorld().node("a1", "a", cordoned).deployment("d", "d", 1).replicas(""), false},
		{"tainted", newWorld().node("a1", "a", tainted("gpu")).deployment("d", "d", 1).replicas(""), false},
		{"tainted and tolerated", newWorld().node("a1", "a", tainted("gpu")).deployment("d", "d", 1, tolerating).replicas(""), true},
		{"selected elsewhere", newWorld().node("a1", "a").deployment("d", "d", 1, selector("b")).replicas(""), false},
		{"the other zone is full", newWorld().node("a1", "a").node("b1", "b").pod("ns", nil, requests("4"), "b1").deployment("d", "d", 2).replicas("a1", ""), false},
		{"the other zone has room", newWorld().node("a1", "a").node("b1", "b").deployment("d", "d", 2).replicas("a1", ""), true},
		{"the other zone is drained", newWorld().node("a1", "a").node("b1", "b", cordoned).deployment("d", "d", 2).replicas("a1", ""), true},
		{"the node has as many as it may", newWorld().node("a1", "a").deployment("d", "d", 2, atMost(1)).replicas("a1", ""), false},
		{"the node may have one more", newWorld().node("a1", "a").deployment("d", "d", 2, atMost(2)).replicas("a1", ""), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := FindWaiting(pointers(tc.world.Nodes), pointers(tc.world.Pods), 10)
			require.Equal(t, 1, w.Pods)
			require.Equal(t, tc.want, len(w.Placeable) == 1)
		})
	}
}

func TestFindWaitingStopsLookingAndLeavesGangsOut(t *testing.T) {
	w := newWorld().node("a1", "a").deployment("d", "d", 3).replicas("", "", "").gang("g", 2, "true", "", "")
	got := FindWaiting(pointers(w.Nodes), pointers(w.Pods), 1)
	require.Equal(t, Waiting{Pods: 3, Placeable: []string{"ns/p1"}}, got)
}
