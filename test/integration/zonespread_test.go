package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	hard = v1.DoNotSchedule
	soft = v1.ScheduleAnyway
)

// TestZoneSpreadHard: the zone that is best by every score takes no more than its share.
func TestZoneSpreadHard(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"zonespread.yaml", "zonewise.yaml"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("100", "a1", "a2")
			w.addNodes("4", "b1", "b2", "c1", "c2")
			w.startScheduler(configured(file))
			pods := w.create(newPods(9, "web", "500m", ofApp("web", 1, hard))...)
			w.waitBound(pods...)
			require.Equal(t, map[string]int{"zone-a": 3, "zone-b": 3, "zone-c": 3}, w.byZone(labelled("web")))
		})
	}
}

// TestZoneSpreadHardWaits: a pod for which only a full zone is left waits, and goes on when that zone
// gets a node.
func TestZoneSpreadHardWaits(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1", "b1")
	w.addNodes("1", "c1")
	w.startScheduler()
	w.waitBound(w.create(newPods(5, "web", "1", ofApp("web", 1, hard))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 1}, w.byZone(labelled("web")))

	sixth := w.create(newPod("web-5", "1", ofApp("web", 1, hard)))[0]
	w.waitUnschedulable("2 node(s) didn't match pod topology spread constraints", sixth)
	w.waitUnschedulable("1 Insufficient cpu", sixth)
	// Other pods are not kept from the zones that are closed to this one.
	w.waitBound(w.create(newPod("other", "1"))...)

	w.addNodes("1", "c2")
	w.waitBound(sixth)
	require.Equal(t, "c2", w.pod(sixth).Spec.NodeName)
}

// TestZoneSpreadGoesOnWhenAPodIsDeleted: a waiting pod goes on when a pod of the zone that is ahead is
// gone, though no node has changed.
func TestZoneSpreadGoesOnWhenAPodIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.addNodes("3", "a1")
	w.addNodes("2", "b1")
	w.startScheduler()
	pods := w.create(newPods(2, "web", "1", ofApp("web", 1, hard))...)
	w.waitBound(pods...)
	// With b1 full, the next goes to a1, and the one behind it may go to b1 only.
	filler := w.create(newPod("filler", "1", onNode("b1")))
	w.waitBound(filler...)
	ahead := w.create(newPod("web-2", "1", ofApp("web", 1, hard)))[0]
	w.waitBound(ahead)
	require.Equal(t, "a1", w.pod(ahead).Spec.NodeName)
	behind := w.create(newPod("web-3", "1", ofApp("web", 1, hard)))[0]
	w.waitUnschedulable("1 node(s) didn't match pod topology spread constraints", behind)

	w.deletePod(ahead)
	w.waitBound(behind)
	require.Equal(t, "a1", w.pod(behind).Spec.NodeName)
}

// TestZoneSpreadSoft: equal zones get equal shares, and a zone without room stops nothing.
func TestZoneSpreadSoft(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	w.startScheduler()
	w.waitBound(w.create(newPods(9, "web", "500m", ofApp("web", 1, soft))...)...)
	require.Equal(t, map[string]int{"zone-a": 3, "zone-b": 3, "zone-c": 3}, w.byZone(labelled("web")))

	w.removeNode("c1")
	w.waitBound(w.create(newPods(4, "more", "500m", ofApp("web", 1, soft))...)...)
	require.Equal(t, map[string]int{"zone-a": 5, "zone-b": 5}, w.byZone(labelled("web")))
}

// TestZoneSpreadKeepsSkewWhileNodesComeAndGo: a Deployment is scaled, a zone is lost and comes back, a
// fourth zone is added, and after each step the skew over the zones that exist is within bounds.
func TestZoneSpreadKeepsSkewWhileNodesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "a2", "b1", "b2", "c1", "c2")
	w.startScheduler()
	web := newDeployment(w.namespace, "web", 9, newPod("web", "500m", ofApp("web", 1, hard)))
	require.NoError(t, w.cp.client.Create(w.ctx, web))
	scale := func(replicas int32) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		require.NoError(t, w.cp.client.Patch(w.ctx, web, client.RawPatch(types.MergePatchType, patch)))
		w.waitBoundCount(int(replicas), labelled("web"))
	}
	w.waitBoundCount(9, labelled("web"))
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b", "zone-c")

	// One node of a zone: the other takes the zone's share.
	w.removeNode("a1")
	w.waitBoundCount(9, labelled("web"))
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b", "zone-c")

	// The whole zone: it no longer counts, the others share what there is.
	w.removeNode("a2")
	w.waitBoundCount(9, labelled("web"))
	w.requireSkew(1, labelled("web"), "zone-b", "zone-c")
	scale(12)
	w.requireSkew(1, labelled("web"), "zone-b", "zone-c")

	// It comes back empty. The pods that run stay, so the next six must all go there.
	w.addNodes("16", "a3")
	scale(18)
	require.Equal(t, map[string]int{"zone-a": 6, "zone-b": 6, "zone-c": 6}, w.byZone(labelled("web")))

	w.addNodes("16", "d1")
	scale(24)
	require.Equal(t, map[string]int{"zone-a": 6, "zone-b": 6, "zone-c": 6, "zone-d": 6}, w.byZone(labelled("web")))
}

// TestZoneSpreadRollout: with matchLabelKeys a new revision is spread by itself, whatever the old one
// left behind.
func TestZoneSpreadRollout(t *testing.T) {
	w := newWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "b1", "c1")
	w.startScheduler()
	pod := newPod("web", "250m", ofApp("web", 1, hard))
	pod.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"pod-template-hash"}
	web := newDeployment(w.namespace, "web", 6, pod)
	web.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
		MaxSurge: ptr.To(intstr.FromInt32(2)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
	}
	require.NoError(t, w.cp.client.Create(w.ctx, web))
	w.waitBoundCount(6, labelled("web"))

	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
	require.NoError(t, w.cp.client.Patch(w.ctx, web, client.RawPatch(types.MergePatchType, patch)))
	w.eventually("the rollout is complete", func() (bool, string) {
		require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(web), web))
		s := web.Status
		return s.ObservedGeneration >= web.Generation && s.UpdatedReplicas == 6 && s.Replicas == 6 && s.ReadyReplicas == 6, fmt.Sprintf("%+v", s)
	})
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
}

// TestZoneSpreadDefaultConstraints: pods of a Service that say nothing about spread are spread softly.
func TestZoneSpreadDefaultConstraints(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	w.startScheduler()
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
		Spec:       v1.ServiceSpec{Selector: labelled("web"), Ports: []v1.ServicePort{{Port: 80}}},
	}
	require.NoError(t, w.cp.client.Create(w.ctx, service))
	w.waitBound(w.create(newPods(6, "web", "100m", withLabel("app", "web"))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
}
