package sim

import (
	"context"
	"reflect"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file tries what the package knows about private parts of upstream. Each test fails with a sentence that says
// what to change.

// doorman has every pod wait in Permit.
type doorman struct{}

func (doorman) Name() string { return "Doorman" }

func (doorman) Permit(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Wait), time.Minute
}

// TestUpstreamWaitingPodsTellWhetherTheyAreDecided: permitWait.isDecided reads fields of the framework's waitingPod.
func TestUpstreamWaitingPodsTellWhetherTheyAreDecided(t *testing.T) {
	const changed = "the framework's waitingPod has changed (pkg/scheduler/framework/runtime/waiting_pods_map.go): " +
		"permitWait.isDecided must find out in another way whether a pod that waits in Permit has been allowed or rejected"
	cfg, err := DefaultConfig()
	require.NoError(t, err)
	cfg.Profiles[0].Plugins.Permit.Enabled = append(cfg.Profiles[0].Plugins.Permit.Enabled, config.Plugin{Name: "Doorman"})
	s, err := New(t.Context(), []client.Object{
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{"pods": resource.MustParse("1")}}},
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod"}, Spec: v1.PodSpec{SchedulerName: "default-scheduler"}},
	}, Options{Config: cfg, Registry: frameworkruntime.Registry{"Doorman": func(context.Context, apiruntime.Object, fwk.Handle) (fwk.Plugin, error) {
		return doorman{}, nil
	}}})
	require.NoError(t, err)
	defer s.Close()
	require.True(t, s.scheduleNext())
	for { // the binding cycle is on its way to the door
		s.inFlight.mu.Lock()
		pod, ok := s.inFlight.waiting["pod"]
		s.inFlight.mu.Unlock()
		if !ok {
			runtime.Gosched()
			continue
		}
		fields := reflect.TypeOf(pod.WaitingPod).Elem()
		mu, hasMutex := fields.FieldByName("mu")
		done, hasDone := fields.FieldByName("done")
		require.True(t, hasMutex && hasDone && mu.Type == reflect.TypeFor[sync.RWMutex]() && done.Type.Kind() == reflect.Bool, changed)
		require.False(t, pod.isDecided(), changed)
		pod.Reject("Doorman", "no")
		require.True(t, pod.isDecided(), changed)
		break
	}
	require.NoError(t, s.settle(t.Context()))
}

// TestTheRuntimeTellsWhetherGoroutinesRest: waitUntilIdle reads metrics of the Go runtime.
func TestTheRuntimeTellsWhetherGoroutinesRest(t *testing.T) {
	const changed = "the Go runtime's metrics do not tell any more how many goroutines run or could: waitUntilIdle must find out in another way, " +
		"or the same seed does not give the same result"
	samples := idleSamples()
	metrics.Read(samples)
	for i := range samples {
		require.Equal(t, metrics.KindUint64, samples[i].Value.Kind(), changed)
	}
	for !waitUntilIdle(time.Second) { // other tests may end yet
	}
	stop, done := atomic.Bool{}, make(chan struct{})
	go func() {
		defer close(done)
		for {
			if stop.Load() {
				return
			}
		}
	}()
	idle := waitUntilIdle(20 * time.Millisecond)
	stop.Store(true)
	<-done
	require.False(t, idle, changed)
}

// TestUpstreamRegistersItsHandlersWhereItDid: registrationOrigin knows the scheduler's own handlers, which come last,
// by the function that registers them.
func TestUpstreamRegistersItsHandlersWhereItDid(t *testing.T) {
	s, err := New(t.Context(), nil, Options{})
	require.NoError(t, err)
	defer s.Close()
	pods := kindFor[*v1.Pod](s.store)
	require.NotEmpty(t, pods.registrations)
	require.True(t, strings.HasPrefix(pods.registrations[len(pods.registrations)-1].origin, "~"),
		"the scheduler does not register its handlers in addAllEventHandlers any more: registrationOrigin must find out in another way which handlers are its own, "+
			"or a pod is woken before the plugins know of the event")
}
