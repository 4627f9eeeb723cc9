package policies

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
)

// TestStatusIsTheLeaders: a standby writes nothing, the leader writes what is new and then falls silent.
func TestStatusIsTheLeaders(t *testing.T) {
	nodes := newNodes("a1", "b1")
	w := newWorld(t, asObjects(nodes)...)
	obj := newPolicy("web")
	w.add(obj)
	w.createPod(newPod("p", "a1"))
	for range 60 {
		w.settle()
	}
	require.Zero(t, w.api.count(), "a standby")

	close(w.leads)
	w.eventually("the status is complete", func() bool {
		s := w.api.stored(obj.UID).Status
		return s.Pods == 1 && s.Replicas == 1 && len(s.Zones) == 2 && conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionSatisfied).Status == metav1.ConditionTrue
	})
	require.EqualValues(t, 1, w.api.stored(obj.UID).Status.ObservedGeneration)
	w.waitSeen(obj)
	written := w.api.count()
	for range 60 {
		w.settle()
	}
	require.Equal(t, written, w.api.count(), "nothing is new")

	// A burst of changes is gathered.
	for _, name := range []string{"1", "2", "3", "4", "5"} {
		w.createPod(newPod(name, "b1"))
	}
	w.eventually("the pods are shown", func() bool { return w.api.stored(obj.UID).Status.Pods == 6 })
	require.LessOrEqual(t, w.api.count()-written, 3)
	require.EqualValues(t, 4, w.api.stored(obj.UID).Status.Skew)
	require.Equal(t, v1alpha1.ReasonSkewExceeded, conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionSatisfied).Reason)
}

// TestStatusShowsWhoWaits: pods that the policy refused when they were last tried.
func TestStatusShowsWhoWaits(t *testing.T) {
	nodes := newNodes("a1", "b1")
	w := newWorld(t, asObjects(nodes)...)
	close(w.leads)
	obj := newPolicy("web", declaring("a", "b", "c")) // c has no node yet
	w.add(obj)
	a, b := w.createPod(newPod("1", "a1")), w.createPod(newPod("2", "b1"))
	waiting := w.createPod(newPod("waiting", ""))
	infos := snapshot(nodes, a, b)
	w.Attempt(waiting, w.Judge(waiting, Direct{Nodes: infos}, false), infos, statuses{of: map[string]*fwk.Status{"a1": refusedBy("ZoneSpread"), "b1": refusedBy("ZoneSpread")}})
	w.eventually("one waits", func() bool {
		return conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionSatisfied).Reason == v1alpha1.ReasonPodsWaiting
	})
	require.Equal(t, v1alpha1.ReasonZonesWithoutNodes, conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionAccepted).Reason)
	waiting.Spec.NodeName = "a1"
	_, err := w.client.CoreV1().Pods("shop").Update(t.Context(), waiting, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("none waits", func() bool {
		return conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionSatisfied).Reason == v1alpha1.ReasonSkewExceeded
	})
}

// TestStatusIsTriedAgain: a conflict or an API server that is away costs nothing but time.
func TestStatusIsTriedAgain(t *testing.T) {
	w := newWorld(t, asObjects(newNodes("a1"))...)
	close(w.leads)
	w.api.mu.Lock()
	w.api.fail = errors.New("conflict")
	w.api.mu.Unlock()
	obj := newPolicy("web")
	w.add(obj)
	w.eventually("it is tried twice", func() bool { return w.api.count() >= 2 })
	for until := start.Add(time.Minute); w.clock.Now().Before(until); {
		w.settle()
	}
	require.Less(t, w.api.count(), 20, "in a minute")
	require.True(t, w.Selects(newPod("p", "")), "the policy applies all the same")
	w.api.mu.Lock()
	w.api.fail = nil
	w.api.mu.Unlock()
	w.eventually("it is written", func() bool { return len(w.api.stored(obj.UID).Status.Zones) == 1 })
}

// TestRestart: what the status remembers is all that a new process needs, also one that was a standby meanwhile.
func TestRestart(t *testing.T) {
	nodes := newNodes("a1", "b1", "c1")
	first := newWorld(t, asObjects(nodes)...)
	standby := newWorld(t, asObjects(nodes)...)
	close(first.leads)
	obj := newPolicy("web")
	first.add(obj)
	standby.add(obj)
	waiting := first.createPod(newPod("waiting", ""))
	infos := snapshot(nodes, newPod("1", "a1"), newPod("2", "b1"))
	first.Attempt(waiting, first.Judge(waiting, Direct{Nodes: infos}, false), infos, statuses{of: map[string]*fwk.Status{"c1": refusedBy("NodeResourcesFit")}})
	first.eventually("the refusal is remembered", func() bool {
		for _, z := range first.api.stored(obj.UID).Status.Zones {
			if z.Name == "c" && z.Failover != nil {
				return true
			}
		}
		return false
	})
	remembered := first.api.stored(obj.UID)

	standby.api.handler.OnUpdate(obj, remembered)
	restarted := newWorldAt(t, start.Add(4*time.Minute), asObjects(nodes)...)
	restarted.add(remembered)
	for name, w := range map[string]*world{"standby": standby, "restarted": restarted} {
		w.createPod(waiting.DeepCopy())
		close(w.leads)
		w.settle()
		woken := w.wakes("waiting")
		w.clock.SetTime(start.Add(5*time.Minute - 10*time.Second))
		require.NotNil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]), name)
		w.eventually(name+" wakes the pod at the same moment", func() bool { return w.wakes("waiting") > woken })
		require.Nil(t, w.Judge(waiting, Direct{Nodes: infos}, false).Check(nodes[0]), name)
		require.WithinDuration(t, start.Add(5*time.Minute), w.clock.Now(), 15*time.Second)
	}
}

// TestBeforeNodesAreKnown: an informer that has not synced must not look like the loss of every zone.
func TestBeforeNodesAreKnown(t *testing.T) {
	w := newWorldUnstarted(t, start)
	obj := newPolicy("web")
	obj.Status.Zones = []v1alpha1.ZoneStatus{{Name: "a", State: v1alpha1.ZoneAvailable}, {Name: "b", State: v1alpha1.ZoneAvailable}}
	w.add(obj)
	w.observeNodes()
	v := w.Judge(newPod("p", ""), Direct{Nodes: snapshot(newNodes("a1", "b1"), newPod("1", "a1"))}, false)
	require.NotNil(t, v.Check(newNode("a1")), "b is waited for")

	w.startInformers()
	w.observeNodes()
	v = w.Judge(newPod("p", ""), Direct{Nodes: snapshot(newNodes("a1", "b1"), newPod("1", "a1"))}, false)
	require.Nil(t, v.Check(newNode("a1")), "without any node both are down, so that nothing holds a back")
}

// TestNodeEventsThatMatter: heartbeats cost nothing.
func TestNodeEventsThatMatter(t *testing.T) {
	w := newWorld(t)
	before := newNode("a1")
	for name, c := range map[string]struct {
		edit func(*v1.Node)
		want bool
	}{
		"heartbeat":  {func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start) }, false},
		"resources":  {func(n *v1.Node) { n.Status.Allocatable = v1.ResourceList{} }, false},
		"not ready":  {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown }, true},
		"other zone": {func(n *v1.Node) { n.Labels[zoneLabel] = "b" }, true},
		"other node": {func(n *v1.Node) { n.UID = "new" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			c.edit(after)
			require.Equal(t, c.want, tellsOfZones(before, after))
		})
	}
	w.nodeUpdated(before, "nonsense")
}

// waitSeen waits until the policies know the stored status.
func (w *world) waitSeen(obj *v1alpha1.ZoneSpreadPolicy) {
	w.t.Helper()
	w.eventually("the watch has caught up", func() bool {
		stored := w.api.stored(obj.UID)
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		return w.entries[obj.UID].obj.ResourceVersion == stored.ResourceVersion
	})
}
