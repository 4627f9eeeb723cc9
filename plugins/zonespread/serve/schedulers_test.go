package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/test/crdtest"
)

// TestTwoSchedulersWriteOneStatus: of two schedulers with Leases of their own, the one that the status names writes, as
// long as its Lease is renewed.
func TestTwoSchedulersWriteOneStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Given: two schedulers that lead, and a pod of the first that waits.
		p := newPolicy("web")
		source := crdtest.New(p)
		worlds := map[string]*world{}
		for _, name := range []string{"first", "second"} {
			w := newWorld(t, source, newNodes("a1", "b1", "c1")...)
			w.lease = func() string { return "kube-system/" + name }
			worlds[name] = w
		}
		renews := true
		pass := func(d time.Duration) {
			for ; d > 0; d -= time.Second {
				for _, w := range worlds {
					w.clock.Step(time.Second)
					if renews {
						w.renewLease("first")
					}
				}
				synctest.Wait()
			}
		}
		worlds["first"].lead()
		pass(time.Minute)
		worlds["second"].lead()
		pass(time.Minute)
		require.Equal(t, "kube-system/first", worlds["first"].stored(p).Status.Scheduler)
		waiting := newPod("waiting", "")
		worlds["first"].attempt(waiting, true, fullC)
		pass(time.Minute)
		before := source.Writes()
		// When: time passes.
		pass(10 * time.Minute)
		// Then: nothing is written, and nothing is taken back.
		require.Equal(t, before, source.Writes(), "two schedulers write against each other")
		require.Len(t, worlds["first"].zone(p, "c").Full, 1)
		require.Equal(t, "kube-system/first", worlds["first"].stored(p).Status.Scheduler)
		// When: the first one stops, and does not renew its Lease any more.
		renews = false
		delete(worlds, "first")
		pass(time.Minute)
		// Then: the second writes.
		require.Equal(t, "kube-system/second", worlds["second"].stored(p).Status.Scheduler)
	})
}

// renewLease renews the Lease of a scheduler, as this one sees it.
func (w *world) renewLease(name string) {
	w.t.Helper()
	obj := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(w.clock.Now())),
		},
	}
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	if w.client.Tracker().Update(leases, obj, obj.Namespace) != nil {
		require.NoError(w.t, w.client.Tracker().Add(obj))
	}
}
