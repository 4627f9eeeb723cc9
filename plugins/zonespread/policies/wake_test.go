package policies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestWakesWhenAZoneIsFull: nobody but the timer tells the waiting pod that fullAfter is over.
func TestWakesWhenAZoneIsFull(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("web"))
	waiting := w.createPod(newPod("waiting", ""))
	infos := snapshot(nodes, newPod("w1", "a1"), newPod("w2", "b1"))
	w.eventually("the pod was woken by the policy", func() bool { return w.wakes("waiting") > 0 })
	w.settle()
	woken := w.wakes("waiting")

	v := w.Judge(waiting, Direct{Nodes: infos}, false)
	require.Equal(t, fwk.Unschedulable, v.Check(nodes[0]).Code())
	require.Nil(t, v.Check(nodes[2]))
	w.Attempt(waiting, v, infos, statuses{of: map[string]*fwk.Status{
		"a1": refusedBy("ZoneSpread"), "b1": refusedBy("ZoneSpread"), "c1": refusedBy("NodeResourcesFit"),
	}})
	w.settle()
	w.clock.Step(5*time.Minute - 30*time.Second)
	w.settle()
	require.Equal(t, woken, w.wakes("waiting"), "not before the grace period is over")
	require.False(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]).IsSuccess())

	w.eventually("the pod is woken", func() bool { return w.wakes("waiting") > woken })
	v = w.Judge(waiting, Direct{Nodes: infos}, false)
	require.Nil(t, v.Check(nodes[0]), "the full zone holds the others back no more")

	// Room again: with Gradual nothing is blocked, and the zone is preferred.
	w.Took(waiting, nodes[2])
	v = w.Judge(waiting, Direct{Nodes: infos}, false)
	require.Nil(t, v.Check(nodes[0]))
	scores := v.Scores(nodes)
	require.Greater(t, scores[2], scores[0])
}

// TestWhatProvesNoFullness: a zone is full on explicit refusals by other plugins alone.
func TestWhatProvesNoFullness(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1", "c2")
	for name, s := range map[string]statuses{
		"a node that was not looked at": {of: map[string]*fwk.Status{"c1": refusedBy("NodeResourcesFit")}, absent: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "")},
		"a PreFilter that refused":      {absent: refusedBy("VolumeBinding")},
		"ZoneSpread itself":             {of: map[string]*fwk.Status{"c1": refusedBy("NodeResourcesFit"), "c2": refusedBy("ZoneSpread")}},
		"PermitGate":                    {of: map[string]*fwk.Status{"c1": refusedBy("NodeResourcesFit"), "c2": refusedBy("PermitGate")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, asObjects(nodes)...)
			w.add(newPolicy("web"))
			waiting := w.createPod(newPod("waiting", ""))
			infos := snapshot(nodes, newPod("w1", "a1"), newPod("w2", "b1"))
			for range 6 {
				w.Attempt(waiting, w.Judge(waiting, Direct{Nodes: infos}, false), infos, s)
				w.clock.Step(time.Minute)
			}
			require.NotNil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]))
		})
	}
}

// TestWakesWhenAZoneIsDown: the outage began when the node said so, before the policy was there.
func TestWakesWhenAZoneIsDown(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	nodes[2].Status.Conditions[0] = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(start.Add(-time.Minute))}
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("web"))
	waiting := w.createPod(newPod("waiting", ""))
	w.eventually("the pod was woken by the policy", func() bool { return w.wakes("waiting") > 0 })
	w.settle()
	woken := w.wakes("waiting")
	infos := snapshot(nodes, newPod("w1", "a1"), newPod("w2", "b1"))
	require.NotNil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]))
	w.clock.SetTime(start.Add(50 * time.Second))
	w.settle()
	require.Equal(t, woken, w.wakes("waiting"))
	w.eventually("the pod is woken", func() bool { return w.wakes("waiting") > woken })
	require.Nil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]))
	require.WithinDuration(t, start.Add(time.Minute), w.clock.Now(), 10*time.Second)
}

// TestWakesWhenTheLastNodeIsGone: a lost zone is down without a timer.
func TestWakesWhenTheLastNodeIsGone(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	w := newWorld(t, asObjects(nodes)...)
	w.add(newPolicy("web", declaring("a", "b", "c")))
	waiting := w.createPod(newPod("waiting", ""))
	w.settle()
	woken := w.wakes("waiting")
	infos := snapshot(nodes[:2], newPod("w1", "a1"), newPod("w2", "b1"))
	require.NotNil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]), "a declared zone is waited for")
	require.NoError(t, w.client.CoreV1().Nodes().Delete(t.Context(), "c1", metav1.DeleteOptions{}))
	w.eventually("the pod is woken", func() bool { return w.wakes("waiting") > woken })
	require.Nil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]))
}

// TestWakesWhenAnOwnerIsScaled: a percentage of more replicas admits more.
func TestWakesWhenAnOwnerIsScaled(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
		},
	}
	w := newWorld(t, append(asObjects(nodes), web)...)
	w.add(newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.MaxPerZone = ptr.To(intstr.FromString("34%"))
		s.PercentRounding = v1alpha1.RoundDown
	}))
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "web-1", OwnerReferences: controlledBy("Deployment", "web", "web")}}
	_, err := w.client.AppsV1().ReplicaSets("shop").Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	pods := []*v1.Pod{newPod("w1", "a1"), newPod("w2", "b1"), newPod("w3", "c1"), newPod("waiting", "")}
	for i, pod := range pods {
		pod.OwnerReferences = controlledBy("ReplicaSet", "web-1", "web-1")
		pods[i] = w.createPod(pod)
	}
	w.eventually("the desired replicas are known", func() bool { return w.replicasOf("policy-web") == 3 })
	w.settle()
	woken := w.wakes("waiting")
	infos := snapshot(nodes, pods...)
	refusal := w.Judge(pods[3], Direct{Nodes: infos}, false).Check(nodes[0])
	require.Equal(t, "policy shop/web: zone a holds 1 of 3, share 1.0, cap 1 (maxPerZone 34%)", refusal.Message())

	web.Spec.Replicas, web.Generation = ptr.To[int32](9), 2
	_, err = w.client.AppsV1().Deployments("shop").Update(t.Context(), web, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("the pod is woken", func() bool { return w.wakes("waiting") > woken })
	require.Nil(t, w.Judge(pods[3], Direct{Nodes: infos}, false).Check(nodes[0]))
}

// TestWakesOnPolicyEvents: a policy that is made, changed, broken, mended or deleted.
func TestWakesOnPolicyEvents(t *testing.T) {
	w := newWorld(t, asObjects(newNodes("a1", "b1"))...)
	waiting, err := w.client.CoreV1().Pods("shop").Create(t.Context(), newPod("waiting", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	other := newPod("other", "")
	other.Labels = map[string]string{"app": "other"}
	_, err = w.client.CoreV1().Pods("shop").Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	foreign := newPod("foreign", "")
	foreign.Spec.SchedulerName = "another"
	_, err = w.client.CoreV1().Pods("shop").Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually("the informer has the pods", func() bool {
		pods, err := w.cluster.pods.Pods("shop").List(everything)
		return err == nil && len(pods) == 3
	})

	obj := newPolicy("web")
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"created", func() { w.add(obj) }},
		{"changed", func() { w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 5 }) }},
		{"broken", func() { w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = -5 }) }},
		{"mended", func() { w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = 2 }) }},
		{"selects others", func() {
			w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector.MatchLabels = map[string]string{"app": "other"} })
		}},
		{"selects it again", func() {
			w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) { s.PodSelector.MatchLabels = map[string]string{"app": "web"} })
		}},
		{"deleted", func() { w.api.handler.OnDelete(w.api.stored(obj.UID)) }},
	} {
		w.settle()
		before := w.wakes(waiting.Name)
		step.do()
		w.eventually(step.name+": the pod is woken", func() bool { return w.wakes(waiting.Name) > before })
	}
	w.settle()
	require.Equal(t, 2, w.wakes("other"), "when it was selected, and when it no longer was")
	require.Zero(t, w.wakes("foreign"))
	require.False(t, w.Selects(waiting))
}
