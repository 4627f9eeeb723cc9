package framework

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	shipped "zonewise.dev/config"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/leader"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/test/crdtest"
	"zonewise.dev/test/fakeapi"
	"zonewise.dev/test/informertest"
	"zonewise.dev/test/schedulertest"
)

func init() {
	metrics.Register()
	watch.DefaultChanSize = 4096 // a watch of the fake clientset panics when its channel is full
	// The first handler logs, the second slows errors down by a clock that all bubbles would share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	// The scheduler listens for a signal. The first one to do so starts the runtime's listener, which must not be in a
	// bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
}

// The profiles that the project ships.
const (
	allPlugins       = "zonewise.yaml"
	zoneSpreadOnly   = "zonespread.yaml"
	reserveCacheOnly = "reservecache.yaml"
	permitGateOnly   = "permitgate.yaml"
)

// bubble runs a test with a time of its own, beside other tests.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	inBubble(t, test)
}

// runInBubble runs a test by a name as bubble does.
func runInBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

// inBubbles runs a test for each case, by its name, as bubble does.
func inBubbles[T any](t *testing.T, cases map[string]T, test func(t *testing.T, tt T)) {
	t.Helper()
	for name, tt := range cases {
		runInBubble(t, name, func(t *testing.T) { test(t, tt) })
	}
}

// cluster is kube-scheduler on an API server in memory, with a profile that the project ships, twice: as
// default-scheduler and as batch. Its methods belong to the test's goroutine. But for benchmarks, which must not wait
// by its methods, it lives in a bubble.
type cluster struct {
	t            testing.TB
	server       *fakeapi.Server
	client       *fake.Clientset // the server's
	groups       *groups         // all custom resources
	policies     *crdtest.Source // the same
	reservations *reservationAPI // the same
	clock        clock.PassiveClock

	// Of the scheduler that runs, or ran last.
	scheduler *scheduler.Scheduler
	pack      *plugins.Pack
	shared    *reservecache.Shared // of the pack
	mishap    *mishap
	recorder  *recorder
	stop      func()

	// To be set before the scheduler starts.
	profile    string // a file of config
	maxBackoff int64  // of a pod, in seconds
	// reserveArgs are those of ReserveCache: nodes of a few CPUs may have all of them held.
	reserveArgs string
	edit        func(p *config.KubeSchedulerProfile) // changes the profiles
	extender    *config.Extender                     // nil for none
	onFailure   func(pod string)                     // called before the scheduler handles the failure of a pod, whose room is free already
	slow        bool                                 // statuses are written slowly, see slowSource
	jobs        chan struct{}                        // Jobs can be listed when it is closed; nil for at once
	stage       *stage

	created int
	cycles  atomic.Int64 // of all pods
}

// newCluster makes a cluster without a scheduler.
func newCluster(t testing.TB, profile string, objects ...runtime.Object) *cluster {
	t.Helper()
	server := fakeapi.New()
	c := &cluster{
		t: t, server: server, client: server.Client, groups: newGroups(), stage: &stage{}, clock: clock.RealClock{},
		profile: profile, maxBackoff: 10, reserveArgs: `{"maxHeldFraction": 1}`,
	}
	c.policies, c.reservations = c.groups.Source, &reservationAPI{c.groups.Source}
	for _, o := range objects {
		c.add(o)
	}
	return c
}

type option func(*options)

type options struct {
	inTree bool
	args   string
	holds  permitgate.Holds
}

// inTree runs upstream's default profile.
func inTree(o *options) { o.inTree = true }

// withArgs gives PermitGate other args than the profile does.
func withArgs(args string) option { return func(o *options) { o.args = args } }

// withHolds has PermitGate ask somebody else than ReserveCache for what is held.
func withHolds(holds permitgate.Holds) option { return func(o *options) { o.holds = holds } }

// start runs a scheduler until the test ends or stop is called.
func (c *cluster) start(opts ...option) {
	c.t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	var source crd.Source = c.groups
	if c.slow {
		source = slowSource{c.policies}
	}
	c.mishap, c.recorder = &mishap{cycles: &c.cycles}, &recorder{}
	c.pack = plugins.NewPack(
		plugins.WithSource(source), plugins.WithPodBackoff(time.Second, time.Duration(c.maxBackoff)*time.Second), plugins.WithComparisons(),
	)
	c.pack.ZoneSpread().CompareCounts(func(difference string) { c.t.Error(difference) })
	c.shared = c.pack.ReserveCache()
	registry := frameworkruntime.Registry{mishapName: c.mishap.new}
	maps.Copy(registry, c.pack.Factories())
	if o.holds != nil {
		registry[permitgate.Name] = permitgate.NewShared(permitgate.WithSource(source), permitgate.WithHolds(o.holds)).New
	}
	var extenders []config.Extender
	if c.extender != nil {
		extenders = append(extenders, *c.extender)
	}
	batch := c.loadProfile(&o)
	batch.SchedulerName = "batch"
	ctx, cancel := context.WithCancel(context.Background())
	api := c.server.SchedulerClient(fakeapi.Answers{DryRunBind: c.stage.rehearse, Delete: c.stage.askToDelete, Jobs: c.jobs})
	factory := schedulertest.NewInformerFactory(api)
	s, err := scheduler.New(ctx, api, factory, nil,
		func(string) events.EventRecorderLogger { return c.recorder },
		scheduler.WithProfiles(c.loadProfile(&o), batch),
		scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithExtenders(extenders...),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(c.maxBackoff),
	)
	require.NoError(c.t, err)
	c.scheduler = s
	if handle := s.FailureHandler; c.onFailure != nil {
		s.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
			c.onFailure(pod.Pod.Name)
			handle(ctx, profile, pod, status, nominating, start)
		}
	}
	informertest.Start(ctx, c.t, factory, c.client)
	require.NoError(c.t, s.WaitForHandlersSync(ctx))
	leader.Of(ctx, c.mishap.handle).Cycle() // what the leader would find out within half a second
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	c.stop = stop
	c.t.Cleanup(func() { end(stop, s) })
}

// end stops a scheduler and what would outlive it: pods that wait in Permit.
func end(stop func(), s *scheduler.Scheduler) {
	stop()
	for _, profile := range s.Profiles {
		profile.IterateOverWaitingPods(func(pod fwk.WaitingPod) { pod.Reject(mishapName, "the test has ended") })
	}
}

// restart stops the scheduler, and starts another over the same cluster.
func (c *cluster) restart(opts ...option) {
	c.t.Helper()
	c.stop()
	c.start(opts...)
}

// loadProfile returns the profile, in which ZoneSpread has no default constraints, and with the plugin that makes
// mishaps: the last one everywhere but at PreBind, where it is the first.
func (c *cluster) loadProfile(o *options) config.KubeSchedulerProfile {
	c.t.Helper()
	cfg, err := latest.Default()
	require.NoError(c.t, err)
	if !o.inTree {
		content, err := shipped.FS.ReadFile(c.profile)
		require.NoError(c.t, err)
		obj, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
		require.NoError(c.t, err)
		cfg = obj.(*config.KubeSchedulerConfiguration)
	}
	p := cfg.Profiles[0]
	setArgs(&p, zonespread.Name, `{"defaultingType": "List"}`)
	setArgs(&p, reservecache.Name, c.reserveArgs)
	setArgs(&p, permitgate.Name, o.args)
	if o.inTree {
		for i := range p.PluginConfig {
			if args, ok := p.PluginConfig[i].Args.(*config.PodTopologySpreadArgs); ok {
				args.DefaultingType = config.ListDefaulting
			}
		}
	}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, config.Plugin{Name: mishapName})
	p.Plugins.PreBind.Enabled = append(p.Plugins.PreBind.Enabled, config.Plugin{Name: mishapName}) // ahead of multiPoint's
	if c.edit != nil {
		c.edit(&p)
	}
	return p
}

// setArgs replaces the args of a plugin that the profile enables; empty ones leave them.
func setArgs(p *config.KubeSchedulerProfile, plugin, args string) {
	named := func(name string) bool { return name == plugin }
	if args == "" || !slices.ContainsFunc(p.Plugins.MultiPoint.Enabled, func(e config.Plugin) bool { return named(e.Name) }) {
		return
	}
	p.PluginConfig = slices.DeleteFunc(p.PluginConfig, func(pc config.PluginConfig) bool { return named(pc.Name) })
	p.PluginConfig = append(p.PluginConfig, config.PluginConfig{Name: plugin, Args: &runtime.Unknown{Raw: []byte(args)}})
}

const (
	// soonest is within what happens by itself, without a backoff (they last two minutes and more here) or the queue's
	// flush (5 min).
	soonest = time.Minute
	// patience is how long a test waits for what is to happen at some time.
	patience = 2 * time.Hour
	// moment is for what plugins put off by milliseconds.
	moment = 100 * time.Millisecond
)

// pass lets time pass.
func (c *cluster) pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	c.settle()
}

// comeAndGo has other pods bound and deleted, one after the other, with a pause after each.
func (c *cluster) comeAndGo(t *testing.T, others int, pause time.Duration) {
	t.Helper()
	for i := range others {
		name := fmt.Sprint("other-", i)
		c.create(member("", name))
		c.requireBound(name)
		c.delete(name)
		c.pass(pause)
	}
}

// settle waits until every goroutine has done what there is to do at this time.
func (*cluster) settle() { synctest.Wait() }

// quiet waits until all is done that there is to do now, or in a moment.
func (c *cluster) quiet() { c.pass(moment) }

// eventually lets time pass until the condition holds.
func (c *cluster) eventually(what string, condition func() bool) {
	c.t.Helper()
	c.eventuallyWithin(patience, what, condition)
}

// soon lets at most a minute pass until the condition holds.
func (c *cluster) soon(condition func() bool) {
	c.t.Helper()
	c.waitFor(soonest, 25*time.Millisecond, "soon", condition)
}

// eventuallyWithin lets at most so much time pass until the condition holds.
func (c *cluster) eventuallyWithin(limit time.Duration, what string, condition func() bool) {
	c.t.Helper()
	c.waitFor(limit, 250*time.Millisecond, what, condition)
}

// waitFor looks again and again, at a pace, until the condition holds.
func (c *cluster) waitFor(limit, pace time.Duration, what string, condition func() bool) {
	c.t.Helper()
	c.settle()
	for deadline := c.clock.Now().Add(limit); !condition(); c.pass(pace) {
		require.True(c.t, c.clock.Now().Before(deadline), "did not happen: %s; bound: %v", what, c.bound(""))
	}
}
