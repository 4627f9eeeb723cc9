package serve

import (
	"context"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/test/crdtest"
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1")...)
		waiting, counted := newPod("waiting", ""), newPod("counted", "a1")
		for i, backoff := range []time.Duration{1, 2, 4, 8, 10, 10} {
			w.attempt(waiting, true, nil)
			w.podChanged(counted, terminating(counted))
			w.podChanged(counted, terminating(counted))
			w.pass(backoff*time.Second - 10*time.Millisecond)
			require.Equal(t, i, w.wakes("waiting"), "after %d attempts", i+1)
			w.pass(wakeInterval + 10*time.Millisecond)
			require.Equal(t, i+1, w.wakes("waiting"))
		}
		w.pass(time.Minute)
		require.Equal(t, 6, w.wakes("waiting"))
		w.attempt(waiting, true, nil)
		w.Bound(waiting, &w.Inputs(waiting, w.For(waiting))[0], "a1")
		w.podChanged(counted, terminating(counted))
		w.pass(time.Minute)
		require.Equal(t, 6, w.wakes("waiting"), "it waits no more")
	})
}

// newSet returns a ReplicaSet of the Deployment web, which wants so many replicas.
func newSet(replicas int) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "web-1", Annotations: map[string]string{"deployment.kubernetes.io/desired-replicas": strconv.Itoa(replicas)},
			OwnerReferences: controller("apps/v1", "Deployment", "web"),
		},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
}

// owned makes a pod one of that ReplicaSet.
func owned(pod *v1.Pod) { pod.OwnerReferences = controller("apps/v1", "ReplicaSet", "web-1") }

// TestWhoIsWoken: which changes wake a pod that a policy refused.
func TestWhoIsWoken(t *testing.T) {
	other := func(pod *v1.Pod) { pod.Labels["app"] = "other" }
	end := func(node string, edit ...func(*v1.Pod)) func(*world) {
		return func(w *world) {
			pod := newPod("counted", node, edit...)
			w.podChanged(pod, terminating(pod))
		}
	}
	scale := func(replicas int) func(*world) {
		return func(w *world) {
			_, err := w.client.AppsV1().ReplicaSets("shop").Update(context.Background(), newSet(replicas),
				metav1.UpdateOptions{})
			require.NoError(w.t, err)
			w.eventually("that is seen", func() bool {
				workload, _ := w.cluster.workload("shop", ownerOf(newPod("any", "", owned)))
				return workload.Replicas == int64(replicas)
			})
		}
	}
	for _, test := range []struct {
		name    string
		refused bool
		change  func(*world)
		wakes   bool
	}{
		{"a pod that counts terminates", true, end("a1"), true},
		{"a pod that does not count terminates", true, end("a1", other), false},
		{"nothing refused: a pod terminates", false, end("a1"), false},
		{"more replicas", true, scale(20), true},
		{"fewer replicas", true, scale(2), true},
		{"nothing refused: more replicas", false, scale(20), false},
		{"a zone that nobody declared loses its last node", true, func(w *world) {
			require.NoError(w.t, w.client.CoreV1().Nodes().Delete(context.Background(), "c1", metav1.DeleteOptions{}))
		}, true},
		{"a zone is open again", true, func(w *world) {
			w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = false })
		}, true},
		{"a zone is closed", true, func(w *world) { w.pass(3 * time.Minute) }, true},
		{"the policy is changed", true, func(w *world) { w.source.Put(newPolicy("web", percent("41%"))) }, true},
		{"the policy is broken", true, func(w *world) {
			w.source.Put(newPolicy("web", selectsNothing))
		}, true},
		{"the policy is deleted", true, func(w *world) { w.source.Delete(newPolicy("web")) }, true},
		{
			"the CustomResourceDefinition is taken away", true, func(w *world) { w.source.Serve(newPolicy("web"), false) },
			true,
		},
		{"another policy is made", true, func(w *world) { w.source.Put(newPolicy("another")) }, false},
		{"a heartbeat", true, func(w *world) {
			w.nodeChanges("a1", func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon) })
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))),
					append(newNodes("a1", "b1", "c1"), newSet(11))...)
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
		})
	}
}

// TestUnknownOwner: a pod waits for the ReplicaSet that controls it, for as long as that may be on its way, and is
// woken when it comes.
func TestUnknownOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), newNodes("a1", "b1")...)
		waiting := newPod("waiting", "", owned, func(pod *v1.Pod) { pod.CreationTimestamp = metav1.NewTime(noon) })
		missing := func() bool { return w.Inputs(waiting, w.For(waiting))[0].OwnerMissing }
		require.True(t, missing())
		w.attempt(waiting, true, nil)
		w.pass(10 * time.Second)
		require.Zero(t, w.wakes("waiting"))
		_, err := w.client.AppsV1().ReplicaSets("shop").Create(context.Background(), newSet(11), metav1.CreateOptions{})
		require.NoError(t, err)
		w.eventually("it is woken", func() bool { return w.wakes("waiting") == 1 })
		require.False(t, missing())

		// One that never comes does not keep the pod for ever.
		lost := newPod("lost", "", func(pod *v1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(w.clock.Now())
			pod.OwnerReferences = controller("apps/v1", "StatefulSet", "lost")
		})
		w.attempt(lost, true, nil)
		w.pass(ownerLimit + time.Second)
		require.Equal(t, 1, w.wakes("lost"))
		require.False(t, w.Inputs(lost, w.For(lost))[0].OwnerMissing)

		// A kind of the same name in another API group is not known at all.
		other := newPod("other", "", owned, func(pod *v1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(w.clock.Now())
			pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].UID = "apps.example.com/v1", "other"
		})
		require.False(t, w.Inputs(other, w.For(other))[0].OwnerMissing)
	})
}

// slowNodes is a lister of nodes that answers when it is allowed to.
type slowNodes struct {
	corelisters.NodeLister

	asked, answer chan struct{}
}

func (l slowNodes) List(selector labels.Selector) ([]*v1.Node, error) {
	l.asked <- struct{}{}
	<-l.answer
	return l.NodeLister.List(selector)
}

// TestNoWakeWaitsForNodes: a pod is woken at its time, however long a look at all nodes takes.
func TestNoWakeWaitsForNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given: a pod that waits, and a look at the nodes that does not end.
		w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), append(newNodes("a1", "b1", "c1"), newSet(11))...)
		slow := slowNodes{w.cluster.nodes, make(chan struct{}), make(chan struct{})}
		w.cluster.nodes = slow
		defer close(slow.answer)
		w.attempt(newPod("waiting", "", owned), true, nil)
		w.nodeGone(newNode("c1"))
		w.clock.Step(gatherInterval)
		<-slow.asked
		// When: its cap is raised.
		w.rescaled("shop", &policy.Workload{UID: "web", Replicas: 20})
		w.clock.Step(time.Second + wakeInterval)
		// Then: it is woken.
		require.Eventually(t, func() bool { return w.wakes("waiting") == 1 }, patience, time.Millisecond,
			"a wake waits for the nodes")
	})
}

// TestOneWakeForAClosingZone: a pod that may go elsewhere once a zone is closed is woken then, and once.
func TestOneWakeForAClosingZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1", "c1")...)
		w.nodeChanges("c1", func(n *v1.Node) { n.Spec.Unschedulable = true })
		w.eventually("it is closing", func() bool { return len(w.availability(newPod("any", ""))) == 1 })
		w.attempt(newPod("waiting", ""), true, nil)
		w.pass(2*time.Minute - time.Second)
		require.Zero(t, w.wakes("waiting"))
		w.schedule(task{kind: observeNodes}, 0)
		w.pass(time.Minute)
		require.Equal(t, 1, w.wakes("waiting"))
	})
}

// TestRunsWakeTheirOwn: the grace period of a full zone wakes the pods of its own workload, and no others.
func TestRunsWakeTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crdtest.New(newPolicy("web")), newNodes("a1", "b1", "c1")...)
		of := func(owner string) func(*v1.Pod) {
			return func(pod *v1.Pod) { pod.OwnerReferences = controller("example.com/v1", "Workflow", owner) }
		}
		w.attempt(newPod("first", "", of("first")), true, fullC)
		w.pass(time.Minute)
		w.attempt(newPod("second", "", of("second")), true, fullC)
		w.pass(4*time.Minute + 30*time.Second)
		require.Equal(t, []int{1, 0}, []int{w.wakes("first"), w.wakes("second")}, "5 minutes after its own first refusal")
		w.attempt(newPod("first", "", of("first")), true, fullC)
		w.pass(10 * time.Second)
		require.Equal(t, []int{2, 0}, []int{w.wakes("first"), w.wakes("second")}, "the zone is full for the first")
		w.pass(time.Minute)
		require.Equal(t, []int{2, 1}, []int{w.wakes("first"), w.wakes("second")})
	})
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

// TestPodEndsWhileItIsTried: a pod that is deleted, bound or replaced by one of its name between PreFilter and
// PostFilter waits for nothing, since no event of it is still to come.
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
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy("web")
				w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
				w.exists(waiting)
				w.podSeen(waiting, false)
				inputs := w.Inputs(waiting, w.For(waiting))
				end(w)
				w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: true}})
				w.Policies.mu.Lock()
				defer w.Policies.mu.Unlock()
				require.Empty(t, w.waiting, "no event would take it away")
				require.Empty(t, w.entries[p.UID].refused)
			})
		})
	}
}

// ceasing are the ways in which the policy web comes to apply no more.
var ceasing = map[string]func(*world){
	"deleted":    func(w *world) { w.source.Delete(newPolicy("web")) },
	"broken":     func(w *world) { w.source.Put(newPolicy("web", selectsNothing)) },
	"not served": func(w *world) { w.source.Serve(newPolicy("web"), false) },
}

// TestChangesWhileAPodIsTried: what happens between PreFilter and PostFilter of a pod's first attempt is not lost. A pod
// that was refused by a policy which has ceased waits for nothing any more.
func TestChangesWhileAPodIsTried(t *testing.T) {
	changes := maps.Clone(ceasing)
	changes["a pod that counts terminates"] = func(w *world) {
		counted := newPod("counted", "a1")
		w.podChanged(counted, terminating(counted))
	}
	changes["more replicas"] = func(w *world) { w.rescaled("shop", &policy.Workload{UID: "web", Replicas: 20}) }
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, crdtest.New(newPolicy("web", percent("40%"))), append(newNodes("a1", "b1"), newSet(11))...)
				waiting := newPod("waiting", "", owned)
				w.exists(waiting)
				inputs := w.Inputs(waiting, w.For(waiting))
				change(w)
				w.Attempted(waiting, []Attempt{{Input: inputs[0], Refused: true}})
				w.pass(2 * time.Second)
				require.Equal(t, 1, w.wakes("waiting"))
				if ceasing[name] != nil {
					w.Policies.mu.Lock()
					defer w.Policies.mu.Unlock()
					require.Empty(t, w.waiting)
					require.Empty(t, inputs[0].entry.refused)
				}
			})
		})
	}
}

// TestRefusalsOfAPolicyThatCeases: a pod that a policy refused is forgotten if it is bound and deleted while the policy
// does not apply.
func TestRefusalsOfAPolicyThatCeases(t *testing.T) {
	p := newPolicy("web", percent("40%"))
	for name, cease := range ceasing {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, crdtest.New(p), newNodes("a1", "b1")...)
				waiting, bound := newPod("waiting", ""), newPod("waiting", "a1")
				w.attempt(waiting, true, nil)
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
		})
	}
}
