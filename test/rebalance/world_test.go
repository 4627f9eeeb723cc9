package rebalance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/controller"
	"zonewise.dev/internal/pods"
	"zonewise.dev/internal/shipped"
	"zonewise.dev/sim/kinds"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/internal/apiserver"
	"zonewise.dev/test/internal/program"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// limit is the bound of every wait, far above what any of them takes.
const limit = 5 * time.Minute

// evictedByAPI is the reason of the condition DisruptionTarget that the API server writes into a pod before it evicts it.
const evictedByAPI = "EvictionByEvictionAPI"

// world is a cluster whose pods are watched from outside.
type world struct {
	*apiserver.Server
	t *testing.T
	// zones has the zone of each node.
	zones    map[string]string
	services []clitest.Service

	podEvents, rebalanceEvents watch.Interface
	// pods are those that there are, and last has each that there ever was as it was seen last.
	pods, last map[types.UID]*corev1.Pod
	// evicted are the pods that were evicted, in order.
	evicted []*corev1.Pod
	// leastReady is how few pods of the services were ready at a time.
	leastReady int
	// onPod and onRebalance, if not nil, are called after a change.
	onPod       func(before, after *corev1.Pod)
	onRebalance func(r *v1alpha1.ZoneRebalance)

	program    string
	kubeconfig string // the controller's
	controller *exec.Cmd
}

// start makes a cluster with the objects of a snapshot, and waits until its pods run. Its controllers have not decided anything meanwhile.
func start(t *testing.T, c *clitest.Cluster, services []clitest.Service) *world {
	t.Helper()
	w := &world{
		Server: apiserver.StartEmpty(t), t: t, zones: map[string]string{}, services: services, pods: map[types.UID]*corev1.Pod{}, last: map[types.UID]*corev1.Pod{},
	}
	w.InstallAPIs(t)
	w.StartKubelets(t)
	w.StartScheduler(t)
	w.put(c)
	w.startWatches()
	w.watchUntil("all pods run", func() bool { return w.ready() == w.replicas() })
	w.StartControllers(t)
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, limit, true, w.budgetsAreCounted), "the budgets are counted")
	w.leastReady = w.ready()
	return w
}

// put creates the objects of a snapshot. The API server gives them other UIDs.
func (w *world) put(c *clitest.Cluster) {
	w.t.Helper()
	uids := map[types.UID]types.UID{}
	create := func(obj client.Object) {
		w.t.Helper()
		before := obj.GetUID()
		owners := obj.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = uids[owners[i].UID]
		}
		obj.SetUID("")
		obj.SetOwnerReferences(owners)
		obj.SetCreationTimestamp(metav1.Time{})
		w.Make(w.t, obj)
		uids[before] = obj.GetUID()
	}
	for _, node := range snapshot.List[*corev1.Node](c.Snapshot) {
		w.zones[node.Name] = node.Labels[corev1.LabelTopologyZone]
		node.Status.Conditions = nil
		create(node)
	}
	require.NoError(w.t, wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, limit, true, w.nodesHaveKubelets), "the nodes have kubelets")
	for _, policy := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](c.Snapshot) {
		create(policy)
	}
	for _, reservation := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
		create(reservation)
		w.awaitSlots(reservation)
	}
	for _, group := range snapshot.List[*schedulingv1alpha1.PodGroup](c.Snapshot) {
		create(group)
	}
	for _, d := range snapshot.List[*appsv1.Deployment](c.Snapshot) {
		withImage(&d.Spec.Template.Spec)
		create(d)
	}
	for _, set := range snapshot.List[*appsv1.ReplicaSet](c.Snapshot) {
		set.Labels = set.Spec.Template.Labels // by which its Deployment knows it
		withImage(&set.Spec.Template.Spec)
		create(set)
	}
	for _, pod := range c.Pods() {
		withImage(&pod.Spec)
		create(pod)
	}
	for _, budget := range snapshot.List[*policyv1.PodDisruptionBudget](c.Snapshot) {
		create(budget)
	}
}

func withImage(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		spec.Containers[i].Image = "none"
	}
}

// awaitSlots waits until the slots of a reservation are held, before there are pods in their place.
func (w *world) awaitSlots(r *v1alpha1.ZoneReservation) {
	w.t.Helper()
	events := w.watch(&v1alpha1.ZoneReservationList{})
	defer events.Stop()
	for e := range events.ResultChan() {
		now, ok := e.Object.(*v1alpha1.ZoneReservation)
		require.True(w.t, ok, "%v", e)
		if now.UID == r.UID && now.Status.Slots.Desired > 0 && now.Status.Slots.Held == now.Status.Slots.Desired {
			return
		}
	}
	w.t.Fatal("the watch of reservations has ended")
}

func (w *world) startWatches() {
	w.t.Helper()
	w.podEvents, w.rebalanceEvents = w.watch(&corev1.PodList{}), w.watch(&v1alpha1.ZoneRebalanceList{})
	w.t.Cleanup(w.podEvents.Stop)
	w.t.Cleanup(w.rebalanceEvents.Stop)
}

// watch begins with what there is.
func (w *world) watch(list client.ObjectList) watch.Interface {
	w.t.Helper()
	c, err := client.NewWithWatch(w.Env.Config, client.Options{Scheme: kinds.Scheme})
	require.NoError(w.t, err)
	events, err := c.Watch(context.Background(), list)
	require.NoError(w.t, err)
	return events
}

// watchUntil takes what is seen of the cluster until a condition holds.
func (w *world) watchUntil(what string, met func() bool) {
	w.t.Helper()
	w.takeUntil(what, w.rebalanceEvents.ResultChan(), met)
}

// watchPodsUntil takes what is seen of the pods alone: two watches have no order, and what a status speaks of may be still to come.
func (w *world) watchPodsUntil(what string, met func() bool) {
	w.t.Helper()
	w.takeUntil(what, nil, met)
}

func (w *world) takeUntil(what string, rebalances <-chan watch.Event, met func() bool) {
	w.t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	for !met() {
		select {
		case e, ok := <-w.podEvents.ResultChan():
			require.True(w.t, ok, "the watch of pods has ended")
			pod, ok := e.Object.(*corev1.Pod)
			require.True(w.t, ok, "%v", e)
			w.seePod(pod, e.Type == watch.Deleted)
		case e, ok := <-rebalances:
			require.True(w.t, ok, "the watch of ZoneRebalances has ended")
			r, ok := e.Object.(*v1alpha1.ZoneRebalance)
			require.True(w.t, ok, "%v", e)
			if w.onRebalance != nil && e.Type != watch.Deleted {
				w.onRebalance(r)
			}
		case <-end.C:
			w.t.Fatal(what + ": has not come in time")
		}
	}
}

// seePod takes a change of a pod.
func (w *world) seePod(pod *corev1.Pod, deleted bool) {
	before := w.last[pod.UID]
	w.last[pod.UID], w.pods[pod.UID] = pod, pod
	if deleted {
		delete(w.pods, pod.UID)
	}
	if isEvicted(pod) && (before == nil || !isEvicted(before)) {
		w.evicted = append(w.evicted, pod)
	}
	w.leastReady = min(w.leastReady, w.ready())
	if w.onPod != nil {
		w.onPod(before, pod)
	}
}

// isOver reports whether there is nothing left to move, in the last spec. Pods that have just become ready stay for a minute, and those of a
// budget until the disruption controller has counted the pod in place of the last one.
func isOver(r *v1alpha1.ZoneRebalance) bool {
	passing := slices.ContainsFunc(r.Status.Stays, func(s v1alpha1.RebalanceStay) bool {
		return strings.Contains(s.Why, "ready for less than") || strings.Contains(s.Why, "allows no eviction now")
	})
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionBalanced)
	return c != nil && !passing && c.ObservedGeneration == r.Generation && (c.Reason == v1alpha1.ReasonBalanced || c.Reason == v1alpha1.ReasonNothingToMove) &&
		meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady)
}

// isEvicted reports whether a pod ends by an eviction. The API server writes the condition before it deletes the pod: when the client is killed in
// between, the pod has the condition and runs on.
func isEvicted(pod *corev1.Pod) bool {
	c := pods.Condition(pod, corev1.DisruptionTarget)
	return pod.DeletionTimestamp != nil && c != nil && c.Status == corev1.ConditionTrue && c.Reason == evictedByAPI
}

// running are the pods that were not evicted.
func (w *world) running() (out []*corev1.Pod) {
	for _, pod := range w.pods {
		if !isEvicted(pod) {
			out = append(out, pod)
		}
	}
	return out
}

func (w *world) replicas() (n int) {
	for i := range w.services {
		n += w.services[i].Replicas
	}
	return n
}

// ready is how many pods of the services are ready.
func (w *world) ready() int {
	n := w.replicas()
	for i := range w.services {
		n -= w.services[i].Missing(w.running())
	}
	return n
}

// nodesHaveKubelets reports whether kwok has made all nodes ready: what it does for pods that are older than that is another matter.
func (w *world) nodesHaveKubelets(ctx context.Context) (bool, error) {
	var nodes corev1.NodeList
	if err := w.List(ctx, &nodes); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}), nil
}

// budgetsAreCounted reports whether the disruption controller has seen all pods of the budgets.
func (w *world) budgetsAreCounted(ctx context.Context) (bool, error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := w.List(ctx, &budgets); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(budgets.Items, func(b policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration < b.Generation || b.Status.CurrentHealthy < b.Status.ExpectedPods
	}), nil
}

// startController runs the program with the roles of its ServiceAccount. It is killed when the test ends.
func (w *world) startController() {
	w.t.Helper()
	if w.program == "" {
		var err error
		w.program, err = program.Scheduler(w.Root)
		require.NoError(w.t, err)
		for _, roles := range []string{shipped.ControllerRoles, shipped.RebalanceRoles, shipped.EvictRoles} {
			require.NoError(w.t, shipped.CreatePermissions(w.t.Context(), w.Client, roles))
		}
		w.kubeconfig = w.Account(w.t, "controller", shipped.ControllerUser)
		w.t.Cleanup(func() {
			w.endController()
			if w.t.Failed() {
				log, _ := os.ReadFile(w.controllerLog())
				w.t.Log(string(log[max(0, len(log)-5000):]))
			}
		})
	}
	w.controller = w.runController("--kubeconfig=" + w.kubeconfig)
}

// startSecondController runs another one, which knows nothing of the first one's lease, until the test ends.
func (w *world) startSecondController() {
	w.t.Helper()
	kubeconfig := w.Write(w.t, "second.kubeconfig", w.Env.KubeConfig)
	second := w.runController("--kubeconfig="+kubeconfig, "--lease-namespace="+metav1.NamespaceDefault)
	w.t.Cleanup(func() {
		_ = second.Process.Kill() // it may have ended
		_ = second.Wait()
	})
}

func (w *world) runController(flags ...string) *exec.Cmd {
	w.t.Helper()
	log, err := os.OpenFile(w.controllerLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	defer log.Close()
	cmd := exec.Command(w.program, append([]string{"controller", "--rebalance", "--address=", "--cpu-fraction=64", "--settle-time=100ms"}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(w.t, cmd.Start())
	return cmd
}

func (w *world) controllerLog() string { return filepath.Join(w.Dir, "controller.log") }

func (w *world) endController() {
	_ = w.controller.Process.Kill() // it may have ended
	_ = w.controller.Wait()
}

// killController kills the controller, and starts it again. Its lease, which no process has now, does not have to run out.
func (w *world) killController() {
	w.t.Helper()
	w.endController()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: controller.LeaseName}}
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), lease)))
	w.startController()
}
