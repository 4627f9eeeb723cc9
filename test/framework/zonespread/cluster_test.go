package zonespread

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/crd/crdtest"
	"zonewise.dev/internal/informer/informertest"
)

const (
	// patience is how long a test waits for what is to happen.
	patience = 2 * time.Hour
	// pace is how often it looks.
	pace = 250 * time.Millisecond
)

func init() {
	metrics.Register()
	watch.DefaultChanSize = 100_000 // a watch of the fake clientset panics when its channel is full
	// The first handler logs, the second slows errors down by a clock that all bubbles would share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	// The scheduler listens for a signal. The first one to do so starts the runtime's listener, which must not be in a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
}

var pods, nodes = v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithResource("nodes")

// cluster is kube-scheduler on an API server in memory. Its methods belong to the test's goroutine.
type cluster struct {
	t        testing.TB
	client   *fake.Clientset
	policies *crdtest.Source
	clock    clock.WithTicker // of the bubble
	slow     bool             // statuses are written slowly, see slowSource
	jobs     chan struct{}    // Jobs can be listed when it is closed; nil for at once
	plugin   *plugin
	stop     func()

	created  int
	versions atomic.Int64
	attempts atomic.Int64 // scheduling cycles
	graceful atomic.Bool  // a deleted pod terminates until finish is called

	mu    sync.Mutex // guards tried
	tried map[string]int
}

type option func(*options)

type options struct{ plugin string }

// inTree runs PodTopologySpread in ZoneSpread's place.
func inTree(o *options) { o.plugin = names.PodTopologySpread }

// newCluster makes a cluster without a scheduler.
func newCluster(t testing.TB, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{
		t: t, client: fake.NewClientset(), policies: crdtest.New(), tried: map[string]int{},
		clock: clock.RealClock{},
	}
	// The scheduler tells updates from repetitions by versions, which the fake clientset does not count.
	c.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := action.(clienttesting.CreateAction); ok { // updates are, too
			c.version(a.GetObject())
		}
		return false, nil, nil
	})
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		return true, binding, c.editPod(binding.Namespace, binding.Name, func(pod *v1.Pod) { pod.Spec.NodeName = binding.Target.Name })
	})
	c.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteAction)
		if !c.graceful.Load() {
			return false, nil, nil
		}
		return true, nil, c.editPod(a.GetNamespace(), a.GetName(), func(pod *v1.Pod) {
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: c.clock.Now()}
			}
		})
	})
	for _, o := range objects {
		c.add(o)
	}
	return c
}

func (c *cluster) version(o runtime.Object) {
	if accessor, err := meta.Accessor(o); err == nil {
		accessor.SetResourceVersion(strconv.FormatInt(c.versions.Add(1), 10))
	}
}

// add puts an object into the API server.
func (c *cluster) add(o runtime.Object) {
	c.t.Helper()
	c.version(o)
	require.NoError(c.t, c.client.Tracker().Add(o))
}

func (c *cluster) editPod(namespace, name string, edit func(*v1.Pod)) error {
	o, err := c.client.Tracker().Get(pods, namespace, name)
	if err != nil {
		return err
	}
	pod := o.(*v1.Pod).DeepCopy()
	edit(pod)
	c.version(pod)
	return c.client.Tracker().Update(pods, pod, namespace)
}

// editNode changes a node and waits until that is seen: pods come by another watch.
func (c *cluster) editNode(name string, edit func(*v1.Node)) {
	c.t.Helper()
	o, err := c.client.Tracker().Get(nodes, "", name)
	require.NoError(c.t, err)
	node := o.(*v1.Node).DeepCopy()
	edit(node)
	c.version(node)
	require.NoError(c.t, c.client.Tracker().Update(nodes, node, ""))
	c.settle()
}

// finish takes pods away, as the kubelet does at the end of their grace period.
func (c *cluster) finish(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.Tracker().Delete(pods, "default", name))
	}
}

// delete asks for the deletion of pods.
func (c *cluster) delete(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.NoError(c.t, c.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

// start runs a scheduler until the test ends or stop is called.
func (c *cluster) start(opts ...option) {
	c.t.Helper()
	o := options{plugin: pluginName}
	for _, option := range opts {
		option(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	source := crd.Source(c.policies)
	if c.slow {
		source = slowSource{c.policies}
	}
	c.plugin = newPlugin(source, c.clock)
	registry := frameworkruntime.Registry{attemptCounter: c.countAttempts}
	if o.plugin == pluginName {
		registry[pluginName] = c.plugin.new
	}
	api := lateJobs{c.client, c.jobs}
	factory := scheduler.NewInformerFactory(api, 0, nil)
	sched, err := scheduler.New(ctx, api, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(o.profile(c.t)), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(10), scheduler.WithClock(c.clock),
	)
	require.NoError(c.t, err)
	informertest.Start(ctx, c.t, factory, c.client)
	require.NoError(c.t, sched.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	c.t.Cleanup(c.stop)
}

// profile is the default profile with the plugin in PodTopologySpread's place, and the counter of attempts.
func (o *options) profile(t testing.TB) config.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	require.NoError(t, err)
	p := cfg.Profiles[0]
	if o.plugin != names.PodTopologySpread {
		for i := range p.Plugins.MultiPoint.Enabled {
			if e := &p.Plugins.MultiPoint.Enabled[i]; e.Name == names.PodTopologySpread {
				e.Name = o.plugin
			}
		}
		p.Plugins.PostFilter.Enabled = append([]config.Plugin{{Name: o.plugin}}, p.Plugins.PostFilter.Enabled...)
		p.PluginConfig = append(p.PluginConfig, config.PluginConfig{Name: o.plugin, Args: &runtime.Unknown{Raw: []byte(`{"defaultingType":"List"}`)}})
	}
	for i := range p.PluginConfig {
		if args, ok := p.PluginConfig[i].Args.(*config.PodTopologySpreadArgs); ok {
			args.DefaultingType = config.ListDefaulting
		}
	}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, config.Plugin{Name: attemptCounter})
	return p
}

const attemptCounter = "AttemptCounter"

// countAttempts makes a plugin that counts scheduling cycles.
func (c *cluster) countAttempts(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &counter{c}, nil
}

type counter struct{ c *cluster }

func (*counter) Name() string { return attemptCounter }

func (p *counter) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.c.attempts.Add(1)
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.tried[pod.Name]++
	return nil, nil
}

func (*counter) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (*counter) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

// triedTimes is how often a pod was tried.
func (c *cluster) triedTimes(pod string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tried[pod]
}

// pass lets time pass.
func (c *cluster) pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	c.settle()
}

// settle waits until every goroutine has done what there is to do at this time.
func (*cluster) settle() { synctest.Wait() }

// eventually lets time pass until condition holds.
func (c *cluster) eventually(what string, condition func() bool) {
	c.t.Helper()
	c.settle()
	for deadline := c.clock.Now().Add(patience); !condition(); c.pass(pace) {
		require.True(c.t, c.clock.Now().Before(deadline), "did not happen: %s; %v", what, c.byZone(""))
	}
}

// eventuallyWithin is eventually with a limit by the cluster's clock.
func (c *cluster) eventuallyWithin(limit time.Duration, what string, condition func() bool) {
	c.t.Helper()
	start := c.clock.Now()
	c.eventually(what, condition)
	require.LessOrEqual(c.t, c.clock.Since(start), limit, what)
}

// addNodes adds nodes with room; the first letter of a name is its zone.
func (c *cluster) addNodes(cpu string, names ...string) {
	c.t.Helper()
	for _, name := range names {
		node := st.MakeNode().Name(name).UID(name).Label(v1.LabelHostname, name).Label(v1.LabelTopologyZone, name[:1]).
			Capacity(map[v1.ResourceName]string{"cpu": cpu, "memory": "64Gi", "pods": "110"}).Obj()
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.clock.Now())}}
		c.add(node)
	}
}

// newPod makes a pod of the app web.
func newPod(name, cpu string, edit ...func(*v1.Pod)) *v1.Pod {
	pod := st.MakePod().Namespace("default").Name(name).UID(name).SchedulerName("default-scheduler").Label("app", "web").
		Req(map[v1.ResourceName]string{"cpu": cpu}).Obj()
	for _, e := range edit {
		e(pod)
	}
	return pod
}

func (c *cluster) create(pods ...*v1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		c.created++
		pod.CreationTimestamp = metav1.NewTime(c.clock.Now().Add(time.Duration(c.created) * time.Nanosecond))
		c.add(pod)
	}
}

// newPods makes n pods that are alike.
func newPods(n int, name, cpu string, edit ...func(*v1.Pod)) []*v1.Pod {
	list := make([]*v1.Pod, n)
	for i := range list {
		list[i] = newPod(fmt.Sprintf("%s-%d", name, i), cpu, edit...)
	}
	return list
}

func labelled(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Labels[key] = value }
}

// bound maps the pods of a name that begins so, and that count, to their nodes; all for an empty name.
func (c *cluster) bound(name string) map[string]string {
	on := map[string]string{}
	for _, pod := range c.list(name) {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			on[pod.Name] = pod.Spec.NodeName
		}
	}
	return on
}

// list returns the pods of all namespaces with a name that begins so.
func (c *cluster) list(name string) []v1.Pod {
	o, err := c.client.Tracker().List(pods, v1.SchemeGroupVersion.WithKind("Pod"), metav1.NamespaceAll)
	require.NoError(c.t, err)
	var list []v1.Pod
	for _, pod := range o.(*v1.PodList).Items {
		if strings.HasPrefix(pod.Name, name) {
			list = append(list, pod)
		}
	}
	return list
}

func (c *cluster) byZone(name string) map[string]int {
	counts := map[string]int{}
	for _, node := range c.bound(name) {
		counts[node[:1]]++
	}
	return counts
}

func (c *cluster) waitZones(name string, want map[string]int) {
	c.t.Helper()
	c.eventually(fmt.Sprint(want), func() bool { return maps.Equal(want, c.byZone(name)) })
}

func (c *cluster) waitBound(name string, n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d of %s are bound", n, name), func() bool { return len(c.bound(name)) == n })
}

// newPolicy is policy default/web for the app web.
func newPolicy(edit ...func(*v1alpha1.ZoneSpreadPolicySpec)) *v1alpha1.ZoneSpreadPolicy {
	p := &v1alpha1.ZoneSpreadPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       v1alpha1.ZoneSpreadPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	for _, e := range edit {
		e(&p.Spec)
	}
	return p
}

func failover(downAfter, fullAfter time.Duration) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.UnavailableZones.DownAfter, s.UnavailableZones.FullAfter = &metav1.Duration{Duration: downAfter}, &metav1.Duration{Duration: fullAfter}
	}
}

func declaring(names ...string) func(*v1alpha1.ZoneSpreadPolicySpec) {
	return func(s *v1alpha1.ZoneSpreadPolicySpec) {
		for _, name := range names {
			s.Zones = append(s.Zones, v1alpha1.ZoneSpreadZone{Name: name})
		}
	}
}

// status returns the policy's status, as the API server has it.
func (c *cluster) status() v1alpha1.ZoneSpreadPolicyStatus {
	p, _ := crdtest.Get(c.policies, newPolicy())
	return p.Status
}

func matching(s *v1alpha1.ZoneSpreadPolicySpec) { s.Replicas = ptr.To(intstr.FromString("Matching")) }

// overZones is a hard constraint over zones for the app web.
func overZones() v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
}
