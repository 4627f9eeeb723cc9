package rebalance

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller/parts"
	"zonewise.dev/rebalance"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
)

// running is a cluster that runs in memory: the real scheduler, the Eviction API and controllers that replace pods,
// with a time of its own (package sim). The part moves pods of it.
type running struct {
	*server
	t          *testing.T
	sim        *sim.Sim
	controller *Controller
	lags       *v1alpha1.ZoneRebalance // what is read, if not what is stored
}

func run(t *testing.T, c *clitest.Cluster, r *v1alpha1.ZoneRebalance) *running {
	t.Helper()
	s, err := sim.New(t.Context(), c.Objects(), sim.Options{Now: clitest.Now})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	w := &running{server: &server{stored: r}, t: t, sim: s}
	w.server.evict = s.Evict
	w.restart()
	w.schedule()
	return w
}

// restart replaces the controller by another process.
func (w *running) restart() { w.controller = w.newController() }

func (w *running) newController() *Controller {
	c := New(parts.Shared{Client: w.server, CPUFraction: 1e9, Read: w.readCluster, Wake: func(reconcile.Request) {}}, Options{Seeds: 2, ReadyFor: rebalance.DefaultReadyFor})
	c.now = w.sim.Now
	return c
}

// schedule lets the cluster come to rest.
func (w *running) schedule() {
	w.t.Helper()
	require.NoError(w.t, w.sim.Run(w.t.Context()))
}

// pass lets time pass.
func (w *running) pass(d time.Duration) {
	w.t.Helper()
	require.NoError(w.t, w.sim.PassTime(w.t.Context(), d))
}

// turn gives the part a turn, and returns after how long it wants the next one.
func (w *running) turn() time.Duration {
	w.t.Helper()
	result, err := w.controller.Reconcile(w.t.Context(), parts.Look)
	require.NoError(w.t, err)
	return result.RequeueAfter
}

func (w *running) readCluster() *snapshot.Snapshot {
	s := snapshot.New(w.sim.Now())
	s.Add(w.sim.Objects()...)
	s.Add(cmp.Or(w.lags, w.stored).DeepCopy())
	return s
}

// turns gives the part turns, each when the cluster is at rest and when the part wants it, until a condition holds.
func (w *running) turns(what string, met func() bool) {
	w.t.Helper()
	for range 200 {
		wait := w.turn()
		if met() {
			return
		}
		w.schedule()
		w.pass(max(time.Second, min(wait, time.Minute)))
	}
	w.t.Fatalf("%s; the status is %+v", what, w.stored.Status)
}

func (w *running) put(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		require.NoError(w.t, w.sim.Put(obj))
	}
}

// bound has the number of pods of an application in each zone.
func (w *running) bound(app string) map[string]int {
	out := map[string]int{}
	for _, pod := range sim.List[*v1.Pod](w.sim) {
		if node, ok := sim.Get[*v1.Node](w.sim, "", pod.Spec.NodeName); ok && pod.Labels["app"] == app && pod.DeletionTimestamp == nil {
			out[node.Labels[v1.LabelTopologyZone]]++
		}
	}
	return out
}

// occupant is a pod that uses CPUs of a node.
func occupant(w *running, name, node, cpu string, labels map[string]string) *v1.Pod {
	pod := clitest.New().Pod(name, node, clitest.Plain(cpu, "1Gi"), labels)
	pod.UID, pod.CreationTimestamp = types.UID("uid-of-"+name), metav1.NewTime(w.sim.Now())
	return pod
}

// live gives the part its turns for a while, each when the cluster is at rest and when the part wants it, or a minute
// has passed. each, if not nil, is called before.
func (w *running) live(length time.Duration, each func()) {
	w.t.Helper()
	for end := w.sim.Now().Add(length); w.sim.Now().Before(end); {
		if each != nil {
			each()
		}
		wait := w.turn()
		w.schedule()
		w.pass(max(time.Second, min(wait, time.Minute)))
	}
}

// change changes a pod of the cluster.
func (w *running) change(name string, change func(pod *v1.Pod)) {
	w.t.Helper()
	pod, ok := sim.Get[*v1.Pod](w.sim, clitest.Namespace, name)
	require.True(w.t, ok, name)
	pod = pod.DeepCopy()
	change(pod)
	w.put(pod)
}

// changeAll changes the pods of an application, on one node if it is named.
func (w *running) changeAll(app, node string, change func(pod *v1.Pod)) {
	w.t.Helper()
	for _, pod := range sim.List[*v1.Pod](w.sim) {
		if pod.Labels["app"] == app && (node == "" || pod.Spec.NodeName == node) {
			w.change(pod.Name, change)
		}
	}
}

// loseNode makes a node not ready, with the taints of the node lifecycle controller. The node object stays.
func (w *running) loseNode(name string) {
	w.t.Helper()
	node, ok := sim.Get[*v1.Node](w.sim, "", name)
	require.True(w.t, ok, name)
	node = node.DeepCopy()
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	node.Spec.Taints = []v1.Taint{
		{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}, {Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute},
	}
	w.put(node)
}
