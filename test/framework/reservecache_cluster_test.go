package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/test/build"
	"zonewise.dev/test/crdtest"
)

// startHoldCluster starts a scheduler with ReserveCache.
func startHoldCluster(t testing.TB, opts ...option) *cluster {
	t.Helper()
	c := newCluster(t, reserveCacheOnly)
	c.maxBackoff = 1
	c.start(opts...)
	return c
}

// reservationAPI is the API server's part that has ZoneReservations.
type reservationAPI struct{ *crdtest.Source }

// apply makes a reservation, or changes its spec.
func (r *reservationAPI) apply(obj *v1alpha1.ZoneReservation) {
	obj = obj.DeepCopy()
	if old, exists := crdtest.Get(r.Source, obj); exists {
		old.Spec = obj.Spec
		obj = old
	}
	r.Put(obj)
}

func (r *reservationAPI) delete(name string) {
	r.Delete(&v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// status returns the stored status of a reservation.
func (r *reservationAPI) status(name string) v1alpha1.ZoneReservationStatus {
	obj, _ := crdtest.Get(r.Source, &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: name}})
	return obj.Status
}

// requireSlots waits until a reservation's status has that many slots.
func (c *cluster) requireSlots(name string, held, used int64) {
	c.t.Helper()
	c.soonEqual([2]int64{held, used}, func() any {
		slots := c.reservations.status(name).Slots
		return [2]int64{slots.Held, slots.Used}
	})
}

// requireCondition waits for a condition with that status and reason, and returns its message.
func (c *cluster) requireCondition(name, kind string, status metav1.ConditionStatus, reason string) string {
	c.t.Helper()
	message := ""
	c.soonEqual([2]string{string(status), reason}, func() any {
		condition := meta.FindStatusCondition(c.reservations.status(name).Conditions, kind)
		if condition == nil {
			return nil
		}
		message = condition.Message
		return [2]string{string(condition.Status), condition.Reason}
	})
	return message
}

// soonEqual lets at most a minute pass until got returns what is wanted.
func (c *cluster) soonEqual(want any, got func() any) {
	c.t.Helper()
	c.settle()
	for deadline := c.clock.Now().Add(soonest); c.clock.Now().Before(deadline) && !assert.ObjectsAreEqual(want, got()); c.pass(25 * time.Millisecond) {
	}
	require.Equal(c.t, want, got())
}

// reservation holds slots of one CPU each for the pods with the label app: APP.
func reservation(name, app string, slots int32, change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second))},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	if change != nil {
		change(r)
	}
	return r
}

func cpus(amount string) *resource.Quantity {
	q := resource.MustParse(amount)
	return &q
}

// smallNode makes a node of some CPUs.
func (c *cluster) smallNode(name, zone, cpu string, change func(*v1.Node)) {
	c.t.Helper()
	n := newNode(name, zone, cpu)
	if change != nil {
		change(n)
	}
	c.add(n)
}

// pod makes a pod of an app that asks for some CPU.
func (c *cluster) pod(name, app, cpu string, change func(*v1.Pod)) {
	c.t.Helper()
	p := build.Pod(name, cpu, build.App(app))
	if change != nil {
		change(p)
	}
	c.createPods(p)
}

// nodeOf returns where the API server has a pod.
func (c *cluster) nodeOf(name string) string { return c.getPod(name).Spec.NodeName }

// waitNode waits until a pod has a node, and returns it.
func (c *cluster) waitNode(name string) string {
	c.t.Helper()
	c.soon(func() bool { return c.nodeOf(name) != "" })
	return c.nodeOf(name)
}

// refused waits until a pod has been tried and found no node, and returns why.
func (c *cluster) refused(name string) string {
	c.t.Helper()
	c.soon(func() bool { return refusal(c.getPod(name)) != "" })
	require.Empty(c.t, c.nodeOf(name))
	return refusal(c.getPod(name))
}

// zonesOfApp counts the pods of an app by zone, and those without a node. Nodes are named after their zones.
func (c *cluster) zonesOfApp(app string) map[string]int {
	zones := map[string]int{}
	for _, pod := range c.listPods("") {
		if pod.Labels["app"] == app {
			zones[pod.Spec.NodeName[:min(1, len(pod.Spec.NodeName))]]++
		}
	}
	return zones
}

func priority(value int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &value } }

// requireSettled waits until the ledger holds what the API server says and nothing else, and until a
// scheduling cycle that came after has compared it with the scheduler's snapshot and found no difference.
func (c *cluster) requireSettled() {
	c.t.Helper()
	bound := map[string]string{}
	c.soonEqual(true, func() any {
		clear(bound)
		for _, pod := range c.listPods("") {
			if pod.Spec.NodeName != "" {
				bound[string(pod.UID)] = pod.Spec.NodeName
			}
		}
		got := map[string]string{}
		for uid, p := range c.shared.Ledger().Dump().Pods() {
			if p.State == ledger.Added {
				got[string(uid)] = p.Node
			} else {
				got[string(uid)] = p.State.String()
			}
		}
		return assert.ObjectsAreEqual(bound, got)
	})
	before := c.shared.Comparison().Count
	probe := build.Pod(fmt.Sprintf("probe-%d", before), "0", build.Scheduler("default-scheduler")) // it fits, whatever is held
	c.createPods(probe)
	c.waitNode(probe.Name)
	compared := c.shared.Comparison()
	require.Greater(c.t, compared.Count, before)
	require.Empty(c.t, compared.Differences, "the ledger equals the scheduler's snapshot once events have settled")
}

// requireSameAsSchedulerCache compares the ledger with kube-scheduler's own cache, node by node.
func (c *cluster) requireSameAsSchedulerCache() {
	c.t.Helper()
	c.settle()
	want := map[string]string{}
	for name, info := range c.scheduler.Cache.Dump().Nodes {
		want[name] = fmt.Sprintf("%d pods, %d CPU, %d bytes, %d GPU", len(info.Pods), info.Requested.MilliCPU, info.Requested.Memory, info.Requested.ScalarResources["example.com/gpu"])
	}
	got := map[string]string{}
	for _, n := range c.shared.Ledger().Dump().Nodes {
		got[n.Name] = fmt.Sprintf("%d pods, %d CPU, %d bytes, %d GPU", n.Requested.Pods, n.Requested.MilliCPU, n.Requested.Memory, n.Requested.Scalar["example.com/gpu"])
	}
	require.Equal(c.t, want, got)
}

func podOf(name, schedulerName string) *v1.Pod {
	return build.Pod(name, "100m", build.Request(v1.ResourceMemory, "64Mi"), build.Scheduler(schedulerName))
}
