package leader_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/leader"
)

type clientHandle struct {
	handle

	client kubernetes.Interface
	config *rest.Config
}

func (h clientHandle) ClientSet() kubernetes.Interface { return h.client }
func (h clientHandle) KubeConfig() *rest.Config        { return h.config }

// TestFence: a scheduler's clients, with the elector of client-go and a lease that another process takes away.
func TestFence(t *testing.T) {
	t.Cleanup(legacyregistry.Reset) // the gauge of the elector below
	var mu sync.Mutex               // guards holder and binds
	holder, binds := "me", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			binds++
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
			return
		}
		lease := coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, ptr.To(metav1.NewMicroTime(time.Now()))
		_ = json.NewEncoder(w).Encode(lease)
	}))
	t.Cleanup(server.Close)
	publishElection(t, componentconfig.LeaderElectionConfiguration{
		LeaderElect: ptr.To(true), ResourceNamespace: "kube-system", ResourceName: "kube-scheduler",
		LeaseDuration: metav1.Duration{Duration: time.Hour}, RenewDeadline: metav1.Duration{Duration: time.Second}, RetryPeriod: metav1.Duration{Duration: time.Second},
	})
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	h := clientHandle{newHandle(), client, config}
	require.NoError(t, leader.Fence(t.Context(), h))
	require.NoError(t, leader.Fence(t.Context(), h), "another profile")
	later, err := kubernetes.NewForConfig(h.config)
	require.NoError(t, err)
	elect(t)
	h.factory.Start(t.Context().Done())
	eventually(t, leader.Of(t.Context(), h).Leading())

	bind := func(client kubernetes.Interface) error {
		return client.CoreV1().Pods("shop").Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	}
	// A process that has stood still for a second between an answer and its use is refused once more, with other words.
	both := []kubernetes.Interface{client, later}
	for _, c := range both {
		require.Eventually(t, func() bool { return bind(c) == nil }, time.Minute, 50*time.Millisecond)
	}
	mu.Lock()
	holder = "other"
	require.Equal(t, len(both), binds)
	mu.Unlock()
	for _, c := range both {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			require.ErrorContains(t, bind(c), `another scheduler leads: "other" holds the lease of "me"`)
		}, time.Minute, 50*time.Millisecond)
	}
	mu.Lock()
	holder = "me"
	mu.Unlock()
	require.Eventually(t, func() bool { return bind(client) == nil }, time.Minute, 50*time.Millisecond)
}

// gathered counts how often metrics are gathered.
type gathered struct{ times atomic.Int32 }

func (*gathered) Describe(chan<- *prometheus.Desc) {}

func (g *gathered) Collect(chan<- prometheus.Metric) { g.times.Add(1) }

// TestAStandbyGathersMetricsOnce: what Leader and Fence want to know of the elector, they learn by one look.
func TestAStandbyGathersMetricsOnce(t *testing.T) {
	t.Cleanup(legacyregistry.Reset) // an elector that has ended leaves the gauge at 1
	legacyregistry.Reset()
	publish(t, true)
	count := &gathered{}
	require.NoError(t, legacyregistry.Registerer().Register(count))
	t.Cleanup(func() { legacyregistry.Registerer().Unregister(count) })
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: "127.0.0.1:1"} // a standby does not read the lease
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		h := clientHandle{newHandle(), client, config}
		require.NoError(t, leader.Fence(t.Context(), h))
		h.factory.Start(t.Context().Done())
		h.factory.WaitForCacheSync(t.Context().Done())
		before := count.times.Load()
		time.Sleep(time.Minute)
		require.InDelta(t, 120, count.times.Load()-before, 1)
	})
}

func TestFenceNeedsAnAPIServer(t *testing.T) {
	require.NoError(t, leader.Fence(t.Context(), clientHandle{handle: newHandle()}))
}
