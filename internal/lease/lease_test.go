package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/lease"
)

const own, other = "kube-system/own", "kube-system/other"

// world has the Lease of another scheduler, whose clock is an hour behind.
type world struct {
	*lease.Observer
	t      *testing.T
	clock  *testingclock.FakeClock
	client *fake.Clientset
	reads  int
	fails  bool
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: testingclock.NewFakeClock(time.Now()), client: fake.NewClientset()}
	w.Observer = lease.NewObserver(w.client.CoordinationV1(), w.clock)
	w.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.reads++
		return w.fails, nil, errors.New("the API server is away")
	})
	return w
}

// renew has the other scheduler renew its Lease under an identity.
func (w *world) renew(identity string) {
	w.t.Helper()
	obj := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "other"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(identity), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(w.clock.Now().Add(-time.Hour))),
		},
	}
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	if w.client.Tracker().Update(leases, obj, obj.Namespace) != nil {
		require.NoError(w.t, w.client.Tracker().Add(obj))
	}
}

func (w *world) yields() bool { return w.Yields(context.Background(), own, other) }

// pass lets time pass, and looks every second.
func (w *world) pass(d time.Duration, want bool, promise string) {
	w.t.Helper()
	for range d / time.Second {
		w.clock.Step(time.Second)
		require.Equal(w.t, want, w.yields(), promise)
	}
}

func TestAStatusIsLeftToASchedulerThatRenewsItsLease(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.renew("x")
		w.pass(10*time.Second, true, "the Lease is renewed every 10 s and lasts for 15 s, whatever the other clock says")
	}
	require.LessOrEqual(t, w.reads, 51, "a Lease is read every two seconds at most")
	w.pass(4*time.Second, true, "it lasts for 15 s")
	w.clock.Step(3 * time.Second)
	w.pass(time.Minute, false, "it is not renewed any more")
	w.renew("x")
	w.clock.Step(2 * time.Second)
	require.True(t, w.yields(), "it is renewed again")
}

func TestNoLeaseIsNoSignOfLife(t *testing.T) {
	for name, lease := range map[string]func(w *world){
		"missing":  func(*world) {},
		"released": func(w *world) { w.renew("") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			lease(w)
			require.False(t, w.yields())
		})
	}
	w := newWorld(t)
	w.renew("x")
	for _, leases := range [][2]string{{"", other}, {own, ""}, {own, own}, {other, other}} {
		require.False(t, w.Yields(context.Background(), leases[0], leases[1]), "nothing to yield to: %q", leases)
	}
}

// A read that fails is not the same as a Lease that is missing.
func TestAFailedReadTakesNothingOver(t *testing.T) {
	w := newWorld(t)
	w.fails = true
	require.True(t, w.yields())
	w.pass(time.Minute, true, "nothing is known of the Lease")
	w.fails = false
	w.clock.Step(2 * time.Second)
	require.False(t, w.yields(), "the Lease is missing")
}
