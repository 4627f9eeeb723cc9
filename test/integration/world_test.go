package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/build"
)

// world is what one test has: a cluster for the time being, in it a namespace, the nodes, the schedulers. Its methods
// end the test when something fails, and belong to the test's goroutine.
type world struct {
	t  *testing.T
	cp *controlPlane
	// ctx lives until the world has been torn down, which is after the end of t.Context().
	ctx        context.Context
	namespace  string
	watcher    *watcher
	schedulers []*runningScheduler // those that run
	started    int                 // how many have been
}

// newWorld makes an empty one, beside those of other tests, and registers its end: the invariants are checked,
// everything that the test made is deleted, and the ledgers of its schedulers must be empty then.
func newWorld(t *testing.T) *world {
	t.Helper()
	cp := takeControlPlane(t)
	ctx, cancel := context.WithCancel(context.Background())
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "it-"}}
	require.NoError(t, cp.client.Create(ctx, namespace))
	w := &world{t: t, cp: cp, ctx: ctx, namespace: namespace.Name}
	w.watcher = startWatcher(ctx, t, cp.kube)
	// Each in a cleanup of its own, the last one first: a test that fails in one leaves nothing behind for the next
	// test.
	t.Cleanup(cancel)
	t.Cleanup(w.stopSchedulers)
	t.Cleanup(func() {
		if !t.Failed() {
			w.assertLedgersEmpty()
		}
	})
	t.Cleanup(w.deleteAll)
	t.Cleanup(func() {
		if !t.Failed() {
			w.assertInvariants()
		}
	})
	return w
}

// deleteAll removes the test's objects and the nodes.
func (w *world) deleteAll() {
	w.t.Helper()
	in := client.InNamespace(w.namespace)
	now := client.GracePeriodSeconds(0)
	// Owners first, so that nothing makes new pods.
	require.NoError(w.t, w.cp.client.DeleteAllOf(w.ctx, &appsv1.Deployment{}, in, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	require.NoError(w.t, w.cp.client.DeleteAllOf(w.ctx, &appsv1.ReplicaSet{}, in, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually("the owners of pods are gone", func() (bool, string) {
		sets := &appsv1.ReplicaSetList{}
		require.NoError(w.t, w.cp.client.List(w.ctx, sets, in))
		return len(sets.Items) == 0, fmt.Sprintf("%d ReplicaSets", len(sets.Items))
	})
	w.eventually("the pods are gone", func() (bool, string) {
		require.NoError(w.t, w.cp.client.DeleteAllOf(w.ctx, &v1.Pod{}, in, now))
		pods := w.pods(nil)
		return len(pods) == 0, fmt.Sprintf("%d pods", len(pods))
	})
	if err := w.cp.client.DeleteAllOf(w.ctx, &schedulingv1alpha1.PodGroup{}, in); !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
	require.NoError(w.t, w.cp.client.DeleteAllOf(w.ctx, &v1.Node{}))
}

// eventually waits until condition holds; its string says how things stood when it did not.
func (w *world) eventually(what string, condition func() (bool, string)) {
	w.t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for {
		ok, state := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(w.t, "did not happen: "+what, state)
		}
		time.Sleep(pollInterval) // between two looks at the condition
	}
}

// eventuallyOfPods is eventually for a condition that changes with pods only: it is looked at again when the watch has
// shown a change.
func (w *world) eventuallyOfPods(what string, condition func() (bool, string)) {
	w.t.Helper()
	w.afterChanges(pollInterval, what, condition)
}

// eventuallySeen waits until the watch has shown the pods as wanted. A pod that is gone never is.
func (w *world) eventuallySeen(what string, pods []*v1.Pod, wanted func(seen []*v1.Pod) (bool, string)) {
	w.t.Helper()
	w.afterChanges(0, what, func() (bool, string) { // which costs nothing to look at
		seen := w.watcher.latest(pods)
		if i := slices.Index(seen, nil); i >= 0 {
			return false, pods[i].Name + " is not there"
		}
		return wanted(seen)
	})
}

// afterChanges looks at a condition after each change of a pod, and lets at least pace pass between two looks.
func (w *world) afterChanges(pace time.Duration, what string, condition func() (bool, string)) {
	w.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		changes := w.watcher.changes() // before the look, so that none is missed
		ok, state := condition()
		if ok {
			return
		}
		time.Sleep(pace) // changes come in crowds
		select {
		case <-changes:
		case <-deadline.C:
			require.FailNow(w.t, "did not happen: "+what, state)
		}
	}
}

// zoneOf names the zone of a node by its first letter: a1, a2 are in zone-a.
func zoneOf(node string) string { return "zone-" + node[:1] }

// addNodes creates nodes with cpu; the first letter of a name is its zone.
func (w *world) addNodes(cpu string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		// The status is stored by a create, as kubelets rely on when they register.
		require.NoError(w.t, w.cp.client.Create(w.ctx, build.Node(name, zoneOf(name), cpu)))
	}
}

// create creates pods; each gets what the API server made of it.
func (w *world) create(pods ...*v1.Pod) []*v1.Pod {
	w.t.Helper()
	for _, pod := range pods {
		pod.Namespace = w.namespace
		require.NoError(w.t, w.cp.client.Create(w.ctx, pod))
	}
	return pods
}

// deletePod deletes a pod at once, whatever is left of its grace period. A pod that is gone is fine.
func (w *world) deletePod(pod *v1.Pod) {
	w.t.Helper()
	err := w.cp.client.Delete(w.ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	require.NoError(w.t, client.IgnoreNotFound(err))
}

// createGroup creates a PodGroup.
func (w *world) createGroup(name string, minMember int32) {
	w.t.Helper()
	require.NoError(w.t, w.cp.client.Create(w.ctx, &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minMember},
	}))
}

// createPriorityClass creates a PriorityClass, which ends with the world, and returns its name.
func (w *world) createPriorityClass(value int32) string {
	w.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.namespace, value)}, Value: value}
	require.NoError(w.t, w.cp.client.Create(w.ctx, class))
	w.t.Cleanup(func() { require.NoError(w.t, w.cp.client.Delete(context.Background(), class)) })
	w.eventually("admission knows the class", func() (bool, string) {
		probe := newPod("probe", "1m", build.PriorityClass(class.Name))
		probe.Namespace = w.namespace
		err := w.cp.client.Create(w.ctx, probe, client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	return class.Name
}

// pods lists the test's pods that have the labels; nil selects all.
func (w *world) pods(matching map[string]string) []v1.Pod {
	w.t.Helper()
	list := &v1.PodList{}
	require.NoError(w.t, w.cp.client.List(w.ctx, list, client.InNamespace(w.namespace),
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(matching)}))
	return list.Items
}

// pod reads a pod again.
func (w *world) pod(pod *v1.Pod) *v1.Pod {
	w.t.Helper()
	got := &v1.Pod{}
	require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(pod), got))
	return got
}

// waitBound waits until all the pods are bound.
func (w *world) waitBound(pods ...*v1.Pod) {
	w.t.Helper()
	w.eventuallySeen("the pods are bound", pods, func(seen []*v1.Pod) (bool, string) {
		for _, pod := range seen {
			if pod.Spec.NodeName == "" {
				return false, fmt.Sprintf("%s: %v", pod.Name, pod.Status.Conditions)
			}
		}
		return true, ""
	})
}

// waitSome waits until the watch has shown n of the pods as wanted; one that is gone is nil. It needs no request, so
// that a test can act in the middle of a scheduler's work on a slow machine, too.
func (w *world) waitSome(n int, what string, pods []*v1.Pod, wanted func(pod *v1.Pod) bool) {
	w.t.Helper()
	w.afterChanges(0, fmt.Sprintf("%d %s", n, what), func() (bool, string) {
		some := 0
		for _, pod := range w.watcher.latest(pods) {
			if wanted(pod) {
				some++
			}
		}
		return some >= n, fmt.Sprint(some)
	})
}

// waitBoundCount waits until n live pods with the labels exist and all of them are bound.
func (w *world) waitBoundCount(n int, matching map[string]string) {
	w.t.Helper()
	w.eventuallyOfPods(fmt.Sprintf("%d pods exist and are bound", n), func() (bool, string) {
		live, bound := 0, 0
		for _, pod := range w.pods(matching) {
			if pod.DeletionTimestamp != nil {
				continue
			}
			live++
			if pod.Spec.NodeName != "" {
				bound++
			}
		}
		return live == n && bound == n, fmt.Sprintf("%d pods, %d bound", live, bound)
	})
}

// waitUnschedulable waits until the scheduler has tried the pods and said that they do not fit, with
// reason in the message.
func (w *world) waitUnschedulable(reason string, pods ...*v1.Pod) {
	w.t.Helper()
	w.eventuallySeen("the pods are unschedulable: "+reason, pods, func(seen []*v1.Pod) (bool, string) {
		for _, pod := range seen {
			if said := unschedulable(pod); pod.Spec.NodeName != "" || !contains(said, reason) {
				return false, fmt.Sprintf("%s: node %q, said %q", pod.Name, pod.Spec.NodeName, said)
			}
		}
		return true, ""
	})
}

// requirePending fails the test if one of the pods is bound.
func (w *world) requirePending(pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		require.Empty(w.t, w.pod(pod).Spec.NodeName, pod.Name)
	}
}

// waitEvent waits for an event about an object that says something.
func (w *world) waitEvent(kind, name, says string) {
	w.t.Helper()
	w.eventually("an event about "+kind+" "+name+" says "+says, func() (bool, string) {
		events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
		require.NoError(w.t, err)
		var seen []string
		for _, event := range events.Items {
			if event.Regarding.Kind == kind && event.Regarding.Name == name {
				if contains(event.Reason+": "+event.Note, says) {
					return true, ""
				}
				seen = append(seen, event.Reason+": "+event.Note)
			}
		}
		return false, fmt.Sprintf("%q", seen)
	})
}

// byZone counts the live, bound pods with the labels in each zone.
func (w *world) byZone(matching map[string]string) map[string]int {
	w.t.Helper()
	counts := map[string]int{}
	for _, pod := range w.pods(matching) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			counts[zoneOf(pod.Spec.NodeName)]++
		}
	}
	return counts
}

// requireSkew fails the test unless the pods are spread over exactly these zones within max.
func (w *world) requireSkew(maxSkew int, matching map[string]string, zones ...string) {
	w.t.Helper()
	counts := w.byZone(matching)
	least, most, total := -1, 0, 0
	for _, zone := range zones {
		n := counts[zone]
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
		total += n
	}
	all := 0
	for _, n := range counts {
		all += n
	}
	require.Equal(w.t, all, total, "pods outside of %v: %v", zones, counts)
	require.LessOrEqual(w.t, most-least, maxSkew, "%v", counts)
}
