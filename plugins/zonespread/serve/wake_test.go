package serve

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/plugins/zonespread/policy"
)

func percent(limit string) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxPerZone = ptr.To(intstr.FromString(limit)) }
}

func terminating(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: noon}
	return pod
}

// TestBackoffIsKept: a pod is not woken before the framework would try it again, and only once.
func TestBackoffIsKept(t *testing.T) {
	w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1")...)
	waiting, counted := newPod("waiting", ""), newPod("counted", "a1")
	for i, backoff := range []time.Duration{1, 2, 4, 8, 10, 10} {
		w.attempt(waiting, skewOfA, nil)
		w.podChanged(counted, terminating(counted))
		w.podChanged(counted, terminating(counted))
		w.pass(backoff*time.Second - 10*time.Millisecond)
		require.Equal(t, i, w.wakes("waiting"), "after %d attempts", i+1)
		w.pass(20 * time.Millisecond)
		require.Equal(t, i+1, w.wakes("waiting"))
	}
	w.pass(time.Minute)
	require.Equal(t, 6, w.wakes("waiting"))
	w.attempt(waiting, skewOfA, nil)
	w.Placed(waiting)
	w.podChanged(counted, terminating(counted))
	w.pass(time.Minute)
	require.Equal(t, 6, w.wakes("waiting"), "it waits no more")
}

// newDeployment returns the Deployment web of 11 replicas, and its ReplicaSet.
func newDeployment() (web *appsv1.Deployment, set *appsv1.ReplicaSet) {
	web = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](11), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	set = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "set", OwnerReferences: []metav1.OwnerReference{
		{Kind: "Deployment", Name: "web", UID: "web", Controller: ptr.To(true)},
	}}}
	return web, set
}

// owned makes a pod one of that Deployment.
func owned(pod *v1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: ptr.To(true)}}
}

// TestWhoIsWoken: which changes wake a pod that a policy refused, by what was refused.
func TestWhoIsWoken(t *testing.T) {
	web, set := newDeployment()
	other := func(pod *v1.Pod) { pod.Labels["app"] = "other" }
	end := func(node string, edit ...func(*v1.Pod)) func(*world) {
		return func(w *world) {
			pod := newPod("counted", node, edit...)
			w.podChanged(pod, terminating(pod))
		}
	}
	scale := func(replicas int32) func(*world) {
		return func(w *world) {
			d := web.DeepCopy()
			d.Spec.Replicas, d.Generation = &replicas, 2
			_, err := w.client.AppsV1().Deployments("shop").Update(context.Background(), d, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.eventually("that is seen", func() bool {
				got, err := w.cluster.deployments.Deployments("shop").Get("web")
				return err == nil && *got.Spec.Replicas == replicas
			})
		}
	}
	minZones := map[string]policy.Rule{"a": policy.MinZones}
	for _, test := range []struct {
		name    string
		refused map[string]policy.Rule
		change  func(*world)
		wakes   bool
	}{
		{"skew: a pod of the zone terminates", skewOfA, end("a1"), true},
		{"skew: a pod of another zone terminates", skewOfA, end("b1"), false},
		{"skew: a pod of an unknown node terminates", skewOfA, end("gone"), true},
		{"skew: a pod that does not count terminates", skewOfA, end("a1", other), false},
		{"cap: a pod of the zone terminates", capOfA, end("a1"), true},
		{"an unknown rule: a pod of the zone terminates", map[string]policy.Rule{"a": policy.Pass}, end("a1"), true},
		{"forbidden: a pod of the zone terminates", map[string]policy.Rule{"a": policy.Forbidden}, end("a1"), false},
		{"nothing refused: a pod terminates", nil, end("a1"), false},
		{"cap: more replicas", capOfA, scale(20), true},
		{"cap: more replicas, same cap", capOfA, scale(12), false},
		{"cap: more replicas, the cap is higher and still reached", capOfA, scale(13), false},
		{"cap: fewer replicas", capOfA, scale(2), false},
		{"skew: more replicas", skewOfA, scale(20), false},
		{"skew: fewer replicas, so that the zone behind is at its cap", skewOfA, scale(2), true},
		{"skew: fewer replicas, and the zone behind is not at its cap", skewOfA, scale(10), false},
		{"an unknown rule: other replicas", map[string]policy.Rule{"a": policy.Pass}, scale(20), true},
		{"skew: a zone that nobody declared loses its last node", skewOfA, func(w *world) {
			require.NoError(w.t, w.client.CoreV1().Nodes().Delete(context.Background(), "c1", metav1.DeleteOptions{}))
		}, true},
		{"minZones: a zone is open again", minZones, func(w *world) {
			w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = false })
		}, true},
		{"skew: a zone is open again", skewOfA, func(w *world) {
			w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = false })
		}, false},
		{"skew: a zone is closed", skewOfA, func(w *world) { w.pass(3 * time.Minute) }, true},
		{"cap: a zone is closed", capOfA, func(w *world) { w.pass(3 * time.Minute) }, false},
		{"the policy is changed", capOfA, func(w *world) { w.source.Put(newPolicy("web", percent("41%"))) }, true},
		{"the policy is broken", capOfA, func(w *world) {
			w.source.Put(newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = -1 }))
		}, true},
		{"the policy is deleted", capOfA, func(w *world) { w.source.Delete(newPolicy("web")) }, true},
		{"the CustomResourceDefinition is taken away", capOfA, func(w *world) { w.source.Serve(newPolicy("web"), false) }, true},
		{"another policy is made", capOfA, func(w *world) { w.source.Put(newPolicy("another")) }, false},
		{"a heartbeat", capOfA, func(w *world) {
			w.nodeChanges("a1", func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon) })
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), append(newNodes("a1", "b1", "c1"), web, set)...)
			w.t = t
			w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = true })
			w.eventually("it is closing", func() bool { return len(w.availability(newPod("any", ""))) == 1 })
			waiting := newPod("waiting", "", owned)
			w.podSeen(waiting, false)
			w.settle()
			w.attempt(waiting, test.refused, nil)
			test.change(w)
			if test.wakes { // handlers come after the informer's store
				w.eventually("it is woken", func() bool { return w.wakes("waiting") > 0 })
			}
			w.pass(5 * time.Second)
			require.Equal(t, map[bool]int{true: 1}[test.wakes], w.wakes("waiting"))
		})
	}
}

// TestLookAtNodesAtADeadline: the pods that may go elsewhere from a deadline on are woken, also if something else looks at the policy then,
// before the worker comes to the deadline itself.
func TestLookAtNodesAtADeadline(t *testing.T) {
	p := newPolicy("web")
	w := newWorld(t, crdtest.New(p), newNodes("a1", "b1", "c1")...)
	w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	w.eventually("it is closing", func() bool { return len(w.availability(newPod("any", ""))) == 1 })
	w.attempt(newPod("waiting", ""), skewOfA, nil)
	w.Policies.mu.Lock()
	deadline := w.entries[p.UID].next.At
	w.Policies.mu.Unlock()
	w.pass(deadline.Sub(w.clock.Now()) - 60*time.Millisecond)
	require.Zero(t, w.wakes("waiting"))
	w.schedule(task{kind: observeNodes}, gatherInterval)
	w.clock.Step(60 * time.Millisecond)
	w.settle()
	w.pass(5 * time.Second)
	require.Equal(t, 1, w.wakes("waiting"))
}

// nodeChanges changes a node and waits until that is seen.
func (w *world) nodeChanges(name string, edit func(*v1.Node)) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	node = node.DeepCopy()
	edit(node)
	node.ResourceVersion = w.clock.Now().String()
	_, err = w.client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.eventually("that is seen", func() bool {
		got, err := w.cluster.nodes.Get(name)
		return err == nil && got.ResourceVersion == node.ResourceVersion
	})
}

// TestChangesWhileAPodIsTried: what happens between PreFilter and PostFilter is not lost.
func TestChangesWhileAPodIsTried(t *testing.T) {
	w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1")...)
	waiting, counted := newPod("waiting", ""), newPod("counted", "a1")
	w.exists(waiting)
	inputs := w.Inputs(waiting, w.For(waiting))
	w.podChanged(counted, terminating(counted))
	w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: skewOfA}})
	w.pass(2 * time.Second)
	require.Equal(t, 1, w.wakes("waiting"))
}

// TestPodEndsWhileItIsTried: a pod that is deleted, bound or replaced by one of its name between PreFilter and PostFilter waits for
// nothing, since no event of it is still to come.
func TestPodEndsWhileItIsTried(t *testing.T) {
	waiting := newPod("waiting", "")
	for name, end := range map[string]func(*world){
		"deleted": func(w *world) {
			require.NoError(w.t, w.factory.Core().V1().Pods().Informer().GetStore().Delete(waiting))
			w.podGone(waiting)
		},
		"terminates": func(w *world) {
			w.exists(terminating(waiting))
			w.podChanged(waiting, terminating(waiting))
		},
		"bound": func(w *world) {
			w.exists(newPod("waiting", "a1"))
			w.podChanged(waiting, newPod("waiting", "a1"))
		},
		"replaced": func(w *world) {
			other := newPod("waiting", "", func(pod *v1.Pod) { pod.UID = "other" })
			w.exists(other)
			w.podGone(waiting)
			w.podSeen(other, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy("web")
			w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
			w.exists(waiting)
			w.podSeen(waiting, false)
			inputs := w.Inputs(waiting, w.For(waiting))
			end(w)
			w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: skewOfA}})
			w.Policies.mu.Lock()
			defer w.Policies.mu.Unlock()
			require.Empty(t, w.waiting, "no event would take it away")
			require.Empty(t, w.entries[p.UID].refused)
		})
	}
}

// TestScaledWhileAPodIsTried: more replicas between PreFilter and PostFilter of a pod's first attempt are not lost.
func TestScaledWhileAPodIsTried(t *testing.T) {
	web, set := newDeployment()
	w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), append(newNodes("a1", "b1"), web, set)...)
	waiting := newPod("waiting", "", owned)
	w.exists(waiting)
	inputs := w.Inputs(waiting, w.For(waiting))
	more := web.DeepCopy()
	more.Spec.Replicas = ptr.To[int32](20)
	workloads[*appsv1.Deployment](w.Policies).Update(web, more)
	w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: capOfA, Scaling: policy.Scaling{AtCap: 6}}})
	w.pass(2 * time.Second)
	require.Equal(t, 1, w.wakes("waiting"))
}

// TestPolicyCeasesWhileAPodIsTried: a pod that is refused by a policy that is deleted, broken or no longer served meanwhile is tried again.
func TestPolicyCeasesWhileAPodIsTried(t *testing.T) {
	for name, cease := range map[string]func(*world){
		"deleted": func(w *world) { w.source.Delete(newPolicy("web")) },
		"broken": func(w *world) {
			w.source.Put(newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = -1 }))
		},
		"not served": func(w *world) { w.source.Serve(newPolicy("web"), false) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1")...)
			waiting := newPod("waiting", "")
			w.exists(waiting)
			inputs := w.Inputs(waiting, w.For(waiting))
			cease(w)
			w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: skewOfA}})
			w.pass(2 * time.Second)
			require.Equal(t, 1, w.wakes("waiting"))
			w.Policies.mu.Lock()
			defer w.Policies.mu.Unlock()
			require.Empty(t, w.waiting)
			require.Empty(t, inputs[0].entry.refused)
		})
	}
}

// TestRefusalsOfAPolicyThatCeases: a pod that a policy refused is forgotten if it is bound and deleted while the policy does not apply.
func TestRefusalsOfAPolicyThatCeases(t *testing.T) {
	p := newPolicy("web", percent("40%"))
	for name, cease := range map[string]func(*world){
		"broken": func(w *world) {
			w.source.Put(newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MaxSkew = -1 }))
		},
		"not served": func(w *world) { w.source.Serve(p, false) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
			waiting, bound := newPod("waiting", ""), newPod("waiting", "a1")
			w.attempt(waiting, capOfA, nil)
			cease(w)
			w.podChanged(waiting, bound)
			w.podGone(bound)
			w.source.Serve(p, true)
			w.source.Put(p)
			w.pass(2 * time.Second)
			w.Policies.mu.Lock()
			defer w.Policies.mu.Unlock()
			require.NotNil(t, w.entries[p.UID].applied)
			require.Empty(t, w.waiting)
			require.Empty(t, w.entries[p.UID].refused)
		})
	}
}

// TestHelps: which changes of assigned pods make a hint. That the last state of a pod was terminating makes no difference.
func TestHelps(t *testing.T) {
	w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), newNodes("a1", "b1", "c1")...)
	waiting, calm, unknown := newPod("waiting", ""), newPod("calm", ""), newPod("unknown", "")
	w.attempt(waiting, skewOfA, nil)
	w.attempt(calm, nil, nil)
	ina, inb := newPod("a", "a1"), newPod("b", "b1")
	other := newPod("other", "a1", func(pod *v1.Pod) { pod.Labels["app"] = "other" })
	for _, test := range []struct {
		name    string
		was, is *v1.Pod
		want    bool
	}{
		{"a pod of the zone goes", ina, nil, true},
		{"it had begun to terminate", terminating(ina), nil, true},
		{"a pod of another zone goes", inb, nil, false},
		{"a pod comes to the emptiest zone", nil, inb, true},
		{"a pod comes to the zone that is ahead", nil, ina, false},
		{"a pod that does not count comes and goes", other, other, false},
		{"a pod does not count any more", ina, other, true},
		{"a pod comes that terminates", nil, terminating(inb), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, w.Helps(waiting, test.was, test.is))
			require.False(t, w.Helps(calm, test.was, test.is), "a pod that no policy refused")
			require.True(t, w.Helps(unknown, test.was, test.is), "a pod about which nothing is known")
		})
	}
}
