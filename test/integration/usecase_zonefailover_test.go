package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
)

// applyExample creates the object in a file of examples/zone-failover, in the test's namespace.
func (w *world) applyExample(file string, edit func(*unstructured.Unstructured)) {
	w.t.Helper()
	root, err := repository()
	require.NoError(w.t, err)
	content, err := os.ReadFile(filepath.Join(root, "examples", "zone-failover", file))
	require.NoError(w.t, err)
	obj := &unstructured.Unstructured{}
	require.NoError(w.t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(content), "namespace: shop", "namespace: "+w.namespace)), &obj.Object))
	if edit != nil {
		edit(obj)
	}
	require.NoError(w.t, w.cp.client.Create(w.ctx, obj))
}

// withoutConstraints leaves the spreading of a Deployment to a policy.
func withoutConstraints(obj *unstructured.Unstructured) {
	unstructured.RemoveNestedField(obj.Object, "spec", "template", "spec", "topologySpreadConstraints")
}

// loseZone makes the nodes of a zone unreachable and deletes their pods, as the taint eviction controller does.
func (w *world) loseZone(nodes ...string) {
	w.t.Helper()
	lost := map[string]bool{}
	for _, name := range nodes {
		lost[name] = true
		w.editNode(name, v1.ConditionUnknown, []v1.Taint{
			{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule},
			{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute},
		})
	}
	for _, pod := range w.pods(nil) {
		if lost[pod.Spec.NodeName] {
			require.NoError(w.t, client.IgnoreNotFound(w.cp.client.Delete(w.ctx, &pod)))
		}
	}
}

// runningOn maps the bound pods of an app to their nodes.
func (w *world) runningOn(app string) map[types.UID]string {
	w.t.Helper()
	on := map[types.UID]string{}
	for _, pod := range w.pods(labelled(app)) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			on[pod.UID] = pod.Spec.NodeName
		}
	}
	return on
}

// waitRunning waits until n pods of an app run.
func (w *world) waitRunning(app string, n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d pods of %s run", n, app), func() (bool, string) {
		got := len(w.runningOn(app))
		return got == n, fmt.Sprint(got)
	})
}

// refusedOnce lists the pods of an app that the scheduler has sent back at least once.
func (w *world) refusedOnce(uids map[types.UID]string) []string {
	w.t.Helper()
	events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	var refused []string
	for _, event := range events.Items {
		if _, ok := uids[event.Regarding.UID]; ok && event.Reason == "FailedScheduling" {
			refused = append(refused, event.Regarding.Name+": "+event.Note)
		}
	}
	return refused
}

// TestZoneFailover is the walk-through of docs/reservecache.md: a service of 30 over three zones has headroom of five
// slots in each zone, batch work fills everything else, a rolling update leaves the headroom as it was, a zone is lost,
// and its ten replicas run in the other two at once; no pod is evicted. Without the reservation they wait.
func TestZoneFailover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		reserved, policed bool
	}{
		{name: "reserved", reserved: true},
		{name: "reserved, spread by a policy", reserved: true, policed: true},
		{name: "not reserved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newReservationWorld(t)
			w.needControllers()
			zoneC := []string{"c1", "c2", "c3"}
			w.addNodes("8", "a1", "a2", "a3", "b1", "b2", "b3")
			w.addNodes("8", zoneC...)
			w.startScheduler()
			r := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: "shop-failover"}}
			batchFits := 72 - 30
			if c.reserved {
				w.applyExample("reservation.yaml", nil)
				w.waitReady(r, 15)
				batchFits -= 15
			}
			if c.policed {
				w.applyExample("policy.yaml", nil)
				w.applyExample("service.yaml", withoutConstraints)
			} else {
				w.applyExample("service.yaml", nil)
			}
			w.waitBoundCount(30, labelled("web"))
			w.requireSkew(0, labelled("web"), "zone-a", "zone-b", "zone-c")
			if c.reserved {
				w.waitSlots(r, 15, 0)
			}
			w.applyExample("batch.yaml", nil)
			w.waitRunning("batch", batchFits)

			if c.reserved {
				web := &appsv1.Deployment{}
				require.NoError(t, w.cp.client.Get(w.ctx, types.NamespacedName{Namespace: w.namespace, Name: "web"}, web))
				batch := w.runningOn("batch")
				w.rollOut(web)
				w.waitReady(r, 15)
				require.Equal(t, batch, w.runningOn("batch"), "the rolling update gave room of the headroom away")
				w.requireSkew(0, labelled("web"), "zone-a", "zone-b", "zone-c")
			}

			before, batch := w.runningOn("web"), w.runningOn("batch")
			w.loseZone(zoneC...)
			if !c.reserved {
				w.eventually("the pods of the lost zone are gone", func() (bool, string) {
					counts := w.byZone(nil)
					return counts["zone-c"] == 0, fmt.Sprint(counts)
				})
				w.waitRunning("web", 20)
				w.eventually("ten wait for room", func() (bool, string) {
					waiting := w.waiting()
					for _, pod := range waiting {
						if !contains(unschedulable(pod), "Insufficient cpu") {
							return false, pod.Name + ": " + unschedulable(pod)
						}
					}
					return len(waiting) == 10, fmt.Sprint(len(waiting))
				})
				return
			}

			w.eventually("the service is whole again", func() (bool, string) {
				counts := w.byZone(labelled("web"))
				return counts["zone-a"] == 15 && counts["zone-b"] == 15, fmt.Sprint(counts)
			})
			displaced := w.runningOn("web")
			for uid := range before {
				delete(displaced, uid)
			}
			require.Len(t, displaced, 10)
			w.requireNoPreemption()
			after := w.runningOn("batch")
			for uid, node := range batch {
				if zoneOf(node) != "zone-c" {
					require.Equal(t, node, after[uid], "a batch pod of a zone that is there")
				}
			}
			if !c.policed { // a policy looks at a zone for downAfter before it gives it up
				require.Empty(t, w.refusedOnce(displaced), "the displaced replicas were bound at the first try")
			}
			w.waitReservation(r, "all slots are taken", func(s *v1alpha1.ZoneReservationStatus) bool { return s.Slots.Held == 0 })
		})
	}
}
