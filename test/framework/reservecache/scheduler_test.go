package reservecache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/internal/informer/informertest"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/reservecache/ledger"
)

// cluster is kube-scheduler with two profiles that have ReserveCache, over a fake API server whose bind
// calls can be made to fail.
type cluster struct {
	client    *fake.Clientset
	scheduler *scheduler.Scheduler
	shared    *reservecache.Shared
	// reservations is the API server's part that has ZoneReservations.
	reservations *reservationAPI
	// stop ends the scheduler.
	stop func()
	// cycles counts the scheduling attempts.
	cycles atomic.Int64

	mu sync.Mutex // guards attempts
	// attempts counts the bind calls of each pod.
	attempts map[string]int
}

// outcome says what becomes of a bind call: whether it binds, and whether the caller hears of it.
type outcome struct{ binds, answers bool }

// startCluster starts the scheduler. bind decides the outcome of the nth bind call of a pod, counted from
// 1.
func startCluster(t *testing.T, bind func(pod string, attempt int) outcome, options ...scheduler.Option) *cluster {
	t.Helper()
	api := newReservationAPI()
	c := &cluster{client: fake.NewClientset(), reservations: api, attempts: map[string]int{}}
	pods := v1.SchemeGroupVersion.WithResource("pods")
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		c.mu.Lock()
		c.attempts[binding.Name]++
		outcome := bind(binding.Name, c.attempts[binding.Name])
		c.mu.Unlock()
		if outcome.binds {
			object, err := c.client.Tracker().Get(pods, binding.Namespace, binding.Name)
			if err != nil {
				return true, nil, err
			}
			pod := object.(*v1.Pod).DeepCopy()
			if pod.Spec.NodeName != "" {
				return true, nil, fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
			}
			pod.Spec.NodeName = binding.Target.Name
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}}
			if err := c.client.Tracker().Update(pods, pod, pod.Namespace); err != nil {
				return true, nil, err
			}
		}
		if !outcome.answers {
			return true, nil, errors.New("the connection was lost")
		}
		return true, binding, nil
	})

	c.run(t, options...)
	t.Cleanup(func() { c.stop() })
	return c
}

// run starts a scheduler that knows nothing yet.
func (c *cluster) run(t *testing.T, options ...scheduler.Option) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := scheduler.NewInformerFactory(c.client, 0, nil)
	c.shared = reservecache.NewShared(reservecache.WithSource(c.reservations))
	args := &runtime.Unknown{Raw: []byte(`{"driftSettle":"100ms"}`)}
	one, two := profileWithArgs(t, "default-scheduler", args), profileWithArgs(t, "batch", args)
	var err error
	c.scheduler, err = scheduler.New(ctx, c.client, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		append([]scheduler.Option{
			scheduler.WithProfiles(one, two),
			scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{reservecache.Name: c.shared.New, counterName: c.newCounter}),
			scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1),
		}, options...)...,
	)
	require.NoError(t, err)
	informertest.Start(ctx, t, factory, c.client)
	require.NoError(t, c.scheduler.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.scheduler.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
		factory.Shutdown()
	}
}

// restart stops the scheduler, and starts another over the same cluster.
func (c *cluster) restart(t *testing.T) {
	t.Helper()
	c.stop()
	c.run(t)
}

// counter counts the scheduling attempts of all pods.
type counter struct{ cluster *cluster }

const counterName = "Counter"

func (c *cluster) newCounter(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &counter{c}, nil
}

func (*counter) Name() string { return counterName }

// PreFilter implements fwk.PreFilterPlugin.
func (c *counter) PreFilter(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c.cluster.cycles.Add(1)
	return nil, fwk.NewStatus(fwk.Skip)
}

func (*counter) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// SignPod implements fwk.SignPlugin: pods are batched as without it.
func (*counter) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

func profileWithArgs(t *testing.T, name string, args runtime.Object) config.KubeSchedulerProfile {
	p := profile(t, name)
	p.Plugins.PreFilter.Enabled = append(p.Plugins.PreFilter.Enabled, config.Plugin{Name: counterName})
	p.PluginConfig = append(p.PluginConfig, config.PluginConfig{Name: reservecache.Name, Args: args})
	return p
}

func (c *cluster) createNode(t *testing.T, name, zone string) {
	t.Helper()
	n := st.MakeNode().Name(name).UID(name).Label(v1.LabelTopologyZone, zone).Label(v1.LabelHostname, name).
		Capacity(map[v1.ResourceName]string{"cpu": "64", "memory": "256Gi", "pods": "200", "example.com/gpu": "8"}).Obj()
	_, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (c *cluster) createPod(t *testing.T, pod *v1.Pod) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (c *cluster) deletePod(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// nodeOf returns where the API server has a pod.
func (c *cluster) nodeOf(t *testing.T, name string) string {
	t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod.Spec.NodeName
}

// requireSettled waits until the ledger holds what the API server says and nothing else, and until a
// scheduling cycle that came after has compared it with the scheduler's snapshot and found no difference.
func (c *cluster) requireSettled(t *testing.T) {
	t.Helper()
	l := c.shared.Ledger()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
		require.NoError(ct, err)
		bound := map[string]string{}
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" {
				bound[string(pod.UID)] = pod.Spec.NodeName
			}
		}
		got := map[string]string{}
		for uid, p := range l.Dump().Pods() {
			require.Equal(ct, ledger.Added, p.State, "pod %s", uid)
			got[string(uid)] = p.Node
		}
		require.Equal(ct, bound, got)
	}, time.Minute, 20*time.Millisecond)

	before := c.shared.Drift().Checks
	for i := 0; ; i++ {
		probe := podOf(fmt.Sprintf("probe-%d-%d", before, i), "default-scheduler")
		c.createPod(t, probe)
		require.EventuallyWithT(t, func(ct *assert.CollectT) {
			require.NotEmpty(ct, c.nodeOf(t, probe.Name))
		}, time.Minute, 5*time.Millisecond)
		drift := c.shared.Drift()
		require.Empty(t, drift.Nodes)
		if drift.Checks >= before+2 && drift.Unsettled == 0 {
			return
		}
	}
}

// requireSameAsSchedulerCache compares the ledger with kube-scheduler's own cache, node by node.
func (c *cluster) requireSameAsSchedulerCache(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		want := map[string]string{}
		for name, info := range c.scheduler.Cache.Dump().Nodes {
			want[name] = fmt.Sprintf("%d pods, %d CPU, %d bytes, %d GPU", len(info.Pods), info.Requested.MilliCPU, info.Requested.Memory, info.Requested.ScalarResources["example.com/gpu"])
		}
		got := map[string]string{}
		for _, n := range c.shared.Ledger().Dump().Nodes {
			got[n.Name] = fmt.Sprintf("%d pods, %d CPU, %d bytes, %d GPU", n.Requested.Pods, n.Requested.MilliCPU, n.Requested.Memory, n.Requested.Scalar["example.com/gpu"])
		}
		require.Equal(ct, want, got)
	}, time.Minute, 20*time.Millisecond)
}

func podOf(name, schedulerName string) *v1.Pod {
	return st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName(schedulerName).
		Req(map[v1.ResourceName]string{"cpu": "100m", "memory": "64Mi"}).Obj()
}

// TestLedgerFollowsTheScheduler schedules pods of two profiles while bind calls fail before and after they
// have bound, pods are deleted at every stage, and a node comes and goes.
func TestLedgerFollowsTheScheduler(t *testing.T) {
	const pods = 120
	c := startCluster(t, func(pod string, attempt int) outcome {
		var n int
		if _, err := fmt.Sscanf(pod, "pod-%d", &n); err != nil || attempt > 1 {
			return outcome{binds: true, answers: true}
		}
		return outcome{binds: n%5 != 0, answers: n%5 > 1}
	})
	for i := range 6 {
		c.createNode(t, fmt.Sprintf("n%d", i), string(rune('a'+i%3)))
	}
	for i := range pods {
		pod := podOf(fmt.Sprintf("pod-%d", i), []string{"default-scheduler", "batch"}[i%2])
		if i%10 == 3 {
			pod.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}
		c.createPod(t, pod)
		if i%7 == 0 {
			// At whatever stage of its scheduling it is by now.
			c.deletePod(t, fmt.Sprintf("pod-%d", i/7*4))
		}
	}
	c.requireSettled(t)
	c.requireSameAsSchedulerCache(t)
	require.Zero(t, c.shared.Ledger().Stats().Ghosts)

	require.NoError(t, c.client.CoreV1().Nodes().Delete(t.Context(), "n0", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return c.shared.Ledger().Stats().Nodes == 5 }, time.Minute, time.Millisecond)
	require.Equal(t, 1, c.shared.Ledger().Stats().Ghosts, "its pods are still there")
	c.createNode(t, "n0", "c")
	c.requireSettled(t)
	c.requireSameAsSchedulerCache(t)
	require.Zero(t, c.shared.Ledger().Stats().Ghosts)
}

// TestAFailedBindingIsUndone: the ledger is as before once the bind call has failed for good.
func TestAFailedBindingIsUndone(t *testing.T) {
	refused := make(chan struct{}, 1)
	c := startCluster(t, func(pod string, _ int) outcome {
		if pod == "doomed" {
			select {
			case refused <- struct{}{}:
			default:
			}
			return outcome{}
		}
		return outcome{binds: true, answers: true}
	})
	c.createNode(t, "n0", "a")
	doomed := podOf("doomed", "default-scheduler")
	c.createPod(t, doomed)
	<-refused
	require.Eventually(t, func() bool { return c.shared.Ledger().Stats() == ledger.Stats{Nodes: 1} }, time.Minute, time.Millisecond)
	c.deletePod(t, "doomed")
	c.requireSettled(t)
}
