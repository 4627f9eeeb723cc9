package permitgate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/informer/informertest"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
)

const (
	// soon bounds the wait for what the plugin does at once. The machine may be busy; what would come by
	// the next backoff (they last two minutes and more here) or by the queue's flush (5 min) is not soon.
	soon = 60 * time.Second
	tick = 2 * time.Millisecond
	// quietFor is how long nothing has to be going on for a scheduler to have done all that it does without the clock's moving on.
	quietFor = 100 * time.Millisecond
)

func init() {
	metrics.Register()
	watch.DefaultChanSize = 100_000 // a watch of the fake clientset panics when its channel is full
}

// cluster is kube-scheduler with two profiles that have PermitGate, over a fake API server.
//
// Its clock runs as the machine's does, and can be put forward by pass.
type cluster struct {
	client    *fake.Clientset
	clock     *clocktesting.FakeClock
	groups    *groups
	mishap    *mishap
	stage     *stage
	recorder  *recorder
	shared    *permitgate.Shared
	scheduler *scheduler.Scheduler
	stop      func()

	versions atomic.Int64
	patches  atomic.Int64
	frozen   atomic.Bool  // the clock moves by pass only
	cycles   atomic.Int64 // of all pods
	graceful atomic.Bool  // a deleted pod terminates until finish is called

	// edit changes the profiles before the scheduler starts.
	edit func(p *config.KubeSchedulerProfile)
	// pack adds the other plugins of the pack.
	pack bool
	// extender is one of the scheduler's, nil for none.
	extender *config.Extender

	standby   func()           // called before the scheduler leads
	onFailure func(pod string) // called before the scheduler handles the failure of a pod, whose room is free already

	mu        sync.Mutex // guards everything below
	binds     []string
	onBind    func(pod string) error // called before a pod is bound, may refuse it
	evictions []string
	onEvict   func(pod string) error // called before a pod is evicted, may refuse it
}

// startCluster starts a scheduler with nodes of so many CPUs each, on a new API server.
func startCluster(t testing.TB, args string, cpus ...int) *cluster {
	t.Helper()
	c := newCluster(t, cpus...)
	c.start(t, args)
	return c
}

// newCluster makes a cluster without a scheduler.
func newCluster(t testing.TB, cpus ...int) *cluster {
	t.Helper()
	c := &cluster{client: fake.NewClientset(), groups: newGroups(), stage: &stage{}, clock: clocktesting.NewFakeClock(time.Now())}
	// The scheduler tells updates from repetitions by versions, which the fake clientset does not count.
	c.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := action.(clienttesting.CreateAction); ok { // updates are, too
			c.version(a.GetObject())
			if o, err := meta.Accessor(a.GetObject()); err == nil && o.GetName() == "" && o.GetGenerateName() != "" {
				o.SetName(o.GetGenerateName() + o.GetResourceVersion())
				o.SetUID(types.UID(o.GetName()))
			}
		}
		return false, nil, nil
	})
	// What a watch begins with, the fake clientset does not copy, and informers change it.
	c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		a := action.(clienttesting.WatchActionImpl)
		w, err := c.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.ListOptions)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			e.Object = e.Object.DeepCopyObject()
			return e, true
		}), nil
	})
	pods := v1.SchemeGroupVersion.WithResource("pods")
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetSubresource() {
		case "binding":
		case "eviction":
			return true, nil, c.evict(action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction))
		default:
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.onBind != nil {
			if err := c.onBind(binding.Name); err != nil {
				return true, nil, err
			}
		}
		object, err := c.client.Tracker().Get(pods, binding.Namespace, binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := object.(*v1.Pod).DeepCopy()
		if pod.UID != binding.UID || pod.Spec.NodeName != "" {
			return true, nil, fmt.Errorf("pod %s cannot be bound", pod.Name)
		}
		pod.Spec.NodeName = binding.Target.Name
		c.version(pod)
		c.binds = append(c.binds, pod.Name)
		return true, binding, c.client.Tracker().Update(pods, pod, pod.Namespace)
	})
	c.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteActionImpl)
		if len(a.DeleteOptions.DryRun) > 0 {
			return true, nil, nil
		}
		if !c.graceful.Load() {
			return false, nil, nil
		}
		object, err := c.client.Tracker().Get(pods, a.Namespace, a.Name)
		if err != nil {
			return true, nil, err
		}
		pod := object.(*v1.Pod).DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: c.clock.Now()}
		c.version(pod)
		return true, nil, c.client.Tracker().Update(pods, pod, pod.Namespace)
	})
	react := clienttesting.ObjectReaction(c.client.Tracker())
	c.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		var fields map[string]any
		if err := json.Unmarshal(patch.Patch, &fields); err != nil {
			return true, nil, err
		}
		metadata, _ := fields["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			fields["metadata"] = metadata
		}
		metadata["resourceVersion"] = strconv.FormatInt(c.versions.Add(1), 10)
		var err error
		if patch.Patch, err = json.Marshal(fields); err != nil {
			return true, nil, err
		}
		c.patches.Add(1)
		return react(patch)
	})
	for i, cpu := range cpus {
		c.addNode(t, fmt.Sprintf("node-%d", i), cpu)
	}
	c.runClock(t)
	return c
}

// runClock has the clock run until the test ends.
func (c *cluster) runClock(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		for last := time.Now(); ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
			now := time.Now()
			if !c.frozen.Load() {
				c.clock.Step(now.Sub(last))
			}
			last = now
		}
	}()
}

// freeze has the clock stand still, but for pass.
func (c *cluster) freeze() {
	c.frozen.Store(true)
	for before := c.clock.Now().Add(-1); !before.Equal(c.clock.Now()); { // a step may be under way
		before = c.clock.Now()
		time.Sleep(10 * tick)
	}
}

// pass puts the clock forward.
func (c *cluster) pass(d time.Duration) { c.clock.Step(d) }

func (c *cluster) version(o runtime.Object) {
	if accessor, err := meta.Accessor(o); err == nil {
		accessor.SetResourceVersion(strconv.FormatInt(c.versions.Add(1), 10))
	}
}

// evict deletes a pod as its eviction does.
func (c *cluster) evict(eviction *policyv1.Eviction) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onEvict != nil {
		if err := c.onEvict(eviction.Name); err != nil {
			return err
		}
	}
	c.evictions = append(c.evictions, eviction.Name)
	return c.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), eviction.Namespace, eviction.Name)
}

// start runs a scheduler on the cluster until stop is called or the test ends.
func (c *cluster) start(t testing.TB, args string, options ...permitgate.Option) {
	t.Helper()
	c.mishap, c.recorder = &mishap{cycles: &c.cycles}, &recorder{}
	c.shared = permitgate.NewShared(append(options, permitgate.WithSource(c.groups), permitgate.WithClock(c.clock))...)
	registry := frameworkruntime.Registry{permitgate.Name: c.shared.New, mishapName: c.mishap.new}
	if c.pack {
		pack := plugins.NewPack(plugins.WithSource(c.groups), plugins.WithClock(c.clock))
		c.shared = pack.PermitGate()
		maps.Copy(registry, pack.Factories())
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory := scheduler.NewInformerFactory(c.client, 0, nil)
	profiles := []config.KubeSchedulerProfile{profile(t, "default-scheduler", args), profile(t, "batch", args)}
	for i := range profiles {
		if c.pack {
			usePack(&profiles[i])
		}
		if c.edit != nil {
			c.edit(&profiles[i])
		}
	}
	var extenders []config.Extender
	if c.extender != nil {
		extenders = append(extenders, *c.extender)
	}
	s, err := scheduler.New(ctx, rehearsingClient{c.client, c.stage}, factory, nil,
		func(string) events.EventRecorderLogger { return c.recorder },
		scheduler.WithProfiles(profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithExtenders(extenders...),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(2), scheduler.WithClock(c.clock),
	)
	require.NoError(t, err)
	c.scheduler = s
	if handle := s.FailureHandler; c.onFailure != nil {
		s.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
			c.onFailure(pod.Pod.Name)
			handle(ctx, profile, pod, status, nominating, start)
		}
	}
	informertest.Start(ctx, t, factory, c.client)
	require.NoError(t, s.WaitForHandlersSync(ctx))
	if c.standby != nil {
		c.standby()
	}
	leader.Of(ctx, c.mishap.handle).Cycle() // what the leader would find out within half a second
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	t.Cleanup(c.stop)
}

// finish takes pods away, as the kubelet does at the end of their grace period.
func (c *cluster) finish(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", name))
	}
}

// booked returns how many pods a node is kept for when another pod is tried there.
func (c *cluster) booked(node string) int {
	probe := member("", "look").Priority(-1000).NodeSelector(map[string]string{"no": "such-node"})
	if _, err := c.client.CoreV1().Pods("default").Create(context.Background(), probe.Obj(), metav1.CreateOptions{}); err != nil {
		panic(err)
	}
	for c.mishap.tried("look") == 0 {
		time.Sleep(tick)
	}
	n := c.nominated(node)
	if err := c.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", "look"); err != nil {
		panic(err)
	}
	c.mishap.forget("look")
	return n
}

// requireBooked waits until a node is kept for so many pods.
func (c *cluster) requireBooked(t *testing.T, node string, pods int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.booked(node) == pods }, soon, tick, node)
}

// nominated returns how many pods the scheduler keeps room for on a node.
func (c *cluster) nominated(node string) int {
	return len(c.scheduler.Profiles["default-scheduler"].NominatedPodsForNode(node))
}

// quiet waits until the scheduler has nothing to do for as long as the clock is not put forward.
func (c *cluster) quiet(t testing.TB) {
	t.Helper()
	since, done := time.Now(), c.cycles.Load()+c.patches.Load()
	require.Eventually(t, func() bool {
		queue := c.scheduler.SchedulingQueue
		if now := c.cycles.Load() + c.patches.Load(); now != done || !c.shared.Idle() || len(queue.PodsInActiveQ())+len(queue.InFlightPods()) > len(c.mishap.waiting()) {
			since, done = time.Now(), now
		}
		return time.Since(since) > quietFor
	}, soon, tick)
}

// profile is the default profile with PermitGate, ahead of DefaultPreemption in PostFilter, and with the
// plugin that makes mishaps behind it.
func profile(t testing.TB, name, args string) config.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	require.NoError(t, err)
	p := cfg.Profiles[0]
	p.SchedulerName = name
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, config.Plugin{Name: permitgate.Name}, config.Plugin{Name: mishapName})
	p.Plugins.PostFilter.Enabled = append([]config.Plugin{{Name: permitgate.Name}}, p.Plugins.PostFilter.Enabled...)
	p.Plugins.PreBind.Enabled = append(p.Plugins.PreBind.Enabled, config.Plugin{Name: mishapName}) // ahead of multiPoint's
	p.PluginConfig = append(p.PluginConfig, config.PluginConfig{Name: permitgate.Name, Args: &runtime.Unknown{Raw: []byte(args)}})
	return p
}

func (c *cluster) addNode(t testing.TB, name string, cpu int) {
	t.Helper()
	n := st.MakeNode().Name(name).UID(name).Label(v1.LabelHostname, name).
		Capacity(map[v1.ResourceName]string{"cpu": fmt.Sprint(cpu), "memory": "256Gi", "pods": "200"}).Obj()
	_, err := c.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	require.NoError(t, err)
}

// member returns a pod of a gang that requests one CPU, or as many as are given; gang "" makes a pod of
// none.
func member(gang, name string, cpu ...int) *st.PodWrapper {
	if len(cpu) == 0 {
		cpu = []int{1}
	}
	p := st.MakePod().Namespace("default").Name(name).UID(name + "-uid").SchedulerName("default-scheduler").
		Req(map[v1.ResourceName]string{"cpu": fmt.Sprint(cpu[0])})
	if gang != "" {
		p = p.Label(v1alpha1.PodGroupLabel, gang)
	}
	return p
}

func (c *cluster) create(t testing.TB, pods ...*st.PodWrapper) {
	t.Helper()
	for _, p := range pods {
		p := p.Obj()
		if p.CreationTimestamp.IsZero() {
			p.CreationTimestamp = metav1.Time{Time: c.clock.Now()}
		}
		_, err := c.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// createGang creates the PodGroup and as many members as its quorum, and returns their names.
func (c *cluster) createGang(t testing.TB, name string, size int) []string {
	t.Helper()
	c.groups.set(name, int32(size))
	names := make([]string, size)
	for i := range size {
		names[i] = fmt.Sprintf("%s-%d", name, i)
		c.create(t, member(name, names[i]))
	}
	return names
}

// update replaces a pod.
func (c *cluster) update(t *testing.T, p *st.PodWrapper) {
	t.Helper()
	pod := p.Obj()
	pod.Generation++
	_, err := c.client.CoreV1().Pods("default").Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (c *cluster) delete(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

func (c *cluster) refuseBinds(f func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onBind = f
}

// bound lists the bound pods among names.
func (c *cluster) bound(t require.TestingT, names ...string) []string {
	list, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	var bound []string
	for _, pod := range list.Items {
		if pod.Spec.NodeName != "" && slices.Contains(names, pod.Name) {
			bound = append(bound, pod.Name)
		}
	}
	return bound
}

// requireBound waits until all of names are bound, and returns how long that took.
func (c *cluster) requireBound(t *testing.T, names ...string) time.Duration {
	t.Helper()
	start := time.Now()
	require.EventuallyWithT(t, func(ct *assert.CollectT) {
		require.ElementsMatch(ct, names, c.bound(ct, names...))
	}, soon, tick)
	return time.Since(start)
}

// requireUnbound makes sure that none of names is bound when the scheduler has nothing to do.
func (c *cluster) requireUnbound(t *testing.T, names ...string) {
	t.Helper()
	c.quiet(t)
	require.Empty(t, c.bound(t, names...))
}

// requireRoomFor binds and removes a pod of so many CPUs: nobody holds them.
func (c *cluster) requireRoomFor(t *testing.T, cpu int) {
	t.Helper()
	c.create(t, member("", "probe", cpu))
	c.requireBound(t, "probe")
	c.delete(t, "probe")
}

func (c *cluster) exists(t require.TestingT, name string) bool {
	pods, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	return slices.ContainsFunc(pods.Items, func(p v1.Pod) bool { return p.Name == name })
}
