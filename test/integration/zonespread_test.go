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

	"zonewise.dev/test/build"
)

const (
	hard = v1.DoNotSchedule
	soft = v1.ScheduleAnyway
)

// TestZoneSpreadRollout: with matchLabelKeys a new revision is spread by itself, whatever the old one
// left behind.
func TestZoneSpreadRollout(t *testing.T) {
	w := newWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "b1", "c1")
	w.startScheduler(configured("zonespread.yaml"))
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
	w.waitBound(w.create(newPods(6, "web", "100m", build.Label("app", "web"))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))
}
