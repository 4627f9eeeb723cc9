package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// newPolicyWorld makes a world in which the API server serves policies. They stay served for the tests that follow.
func newPolicyWorld(t *testing.T) *world {
	t.Helper()
	w := newPolicyWorldWithout(t)
	w.installCRD(policyCRD)
	return w
}

// newPolicyWorldWithout leaves the CustomResourceDefinition to the test.
func newPolicyWorldWithout(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	t.Cleanup(func() {
		// The test's context is over by now.
		require.NoError(t, w.cp.client.DeleteAllOf(context.Background(), &v1alpha1.ZoneSpreadPolicy{}, client.InNamespace(w.namespace)))
	})
	return w
}

// spreadBy creates a policy for the pods of the app web.
func (w *world) spreadBy(name string, edit func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	w.t.Helper()
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: labelled("web")}},
	}
	if edit != nil {
		edit(&p.Spec)
	}
	require.NoError(w.t, w.cp.client.Create(w.ctx, p))
	return p
}

// waitStatus waits until a policy's status is as wanted.
func (w *world) waitStatus(p *v1alpha1.ZoneSpreadPolicy, what string, wanted func(s *v1alpha1.ZoneSpreadPolicyStatus) bool) {
	w.t.Helper()
	w.eventually("status of "+p.Name+": "+what, func() (bool, string) {
		got := &v1alpha1.ZoneSpreadPolicy{}
		require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(p), got))
		return wanted(&got.Status), fmt.Sprintf("%+v", got.Status)
	})
}

func hasCondition(s *v1alpha1.ZoneSpreadPolicyStatus, kind string, status metav1.ConditionStatus) bool {
	return meta.IsStatusConditionPresentAndEqual(s.Conditions, kind, status)
}

// deploy creates a Deployment of the app web.
func (w *world) deploy(replicas int32, cpu string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	w.t.Helper()
	web := newDeployment(w.namespace, "web", replicas, newPod("web", cpu, build.Label("app", "web")))
	if edit != nil {
		edit(web)
	}
	require.NoError(w.t, w.cp.client.Create(w.ctx, web))
	return web
}

// surgeOnly is a rollout that takes no pod away before a new one is ready.
func surgeOnly(surge int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(surge)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	}
}

// rollOut makes a new revision and waits until it has replaced the old one.
func (w *world) rollOut(web *appsv1.Deployment) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":"%d"}}}}}`, time.Now().UnixNano())
	require.NoError(w.t, w.cp.client.Patch(w.ctx, web, client.RawPatch(types.MergePatchType, patch)))
	replicas := *web.Spec.Replicas
	w.eventually("the rollout is complete", func() (bool, string) {
		require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(web), web))
		s := web.Status
		return s.ObservedGeneration >= web.Generation && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.ReadyReplicas == replicas, fmt.Sprintf("%+v", s)
	})
}

func (w *world) editNode(name string, ready v1.ConditionStatus, taints []v1.Taint) {
	w.t.Helper()
	node := &v1.Node{}
	require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKey{Name: name}, node))
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
	require.NoError(w.t, w.cp.client.Status().Update(w.ctx, node))
	// The controller taints by the condition, and so after it.
	node.Spec.Taints = taints
	require.NoError(w.t, w.cp.client.Update(w.ctx, node))
}

// failover is spec.unavailableZones with short grace periods.
func failover(downAfter, fullAfter time.Duration) v1alpha1.UnavailableZones {
	return v1alpha1.UnavailableZones{DownAfter: &metav1.Duration{Duration: downAfter}, FullAfter: &metav1.Duration{Duration: fullAfter}}
}

// scale changes how many replicas the Deployment web has.
func (w *world) scale(replicas int32) {
	w.t.Helper()
	web := newDeployment(w.namespace, "web", 0, newPod("web", "1m"))
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	require.NoError(w.t, w.cp.client.Patch(w.ctx, web, client.RawPatch("application/merge-patch+json", patch)))
}

// waiting lists the pods of the app web that are not bound.
func (w *world) waiting() []*v1.Pod {
	w.t.Helper()
	var waiting []*v1.Pod
	for _, pod := range w.pods(labelled("web")) {
		if pod.Spec.NodeName == "" {
			waiting = append(waiting, &pod)
		}
	}
	return waiting
}

// strike makes nodes unreachable, as the node lifecycle controller does.
func (w *world) strike(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.editNode(name, v1.ConditionUnknown, []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}})
	}
}

// heal makes nodes ready again.
func (w *world) heal(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.editNode(name, v1.ConditionTrue, nil)
	}
}
