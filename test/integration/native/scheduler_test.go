package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	zonewise "zonewise.dev/cmd/scheduler/app"
	"zonewise.dev/config"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests/shipped"
	"zonewise.dev/plugins"
	"zonewise.dev/test/build"
)

// gates are those of the API server, the scheduler and the Job controller.
const gates = "GenericWorkload=true,WorkloadWithJob=true"

// asScheduler, when it is set in the environment, makes the test binary a scheduler: one that can be killed.
const asScheduler = "ZONEWISE_TEST_AS_SCHEDULER"

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(cli.Run(zonewise.NewSchedulerCommand(plugins.NewPack())))
	}
	if err := utilfeature.DefaultMutableFeatureGate.Set(gates); err != nil {
		fmt.Fprintln(os.Stderr, "test/integration/native:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func registry(pack *plugins.Pack) (options []app.Option) {
	for name, factory := range pack.Factories() {
		options = append(options, app.WithPlugin(name, factory))
	}
	return options
}

// patience is far above what anything takes, for loaded machines.
const patience = 2 * time.Minute

// cluster is a control plane that has native gangs, and the scheduler of one test.
type cluster struct {
	t          *testing.T
	admin      kubernetes.Interface
	objects    client.Client // an administrator's, too
	config     *rest.Config  // of both
	kubeconfig string        // of the scheduler, with the permissions that are shipped for it
	namespace  string
	probe      *probe
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	plane, err := controlplane.Start(controlplane.Options{
		Assets: filepath.Join(root, "bin"), Dir: t.TempDir(),
		Flags: map[string]string{"feature-gates": gates, "runtime-config": "scheduling.k8s.io/v1beta1=true"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Stop()) })
	c := &cluster{t: t, admin: kubernetes.NewForConfigOrDie(plane.Config), config: plane.Config}
	c.kubeconfig, err = plane.Kubeconfig("scheduler", shipped.SchedulerUser)
	require.NoError(t, err)
	c.objects, err = client.New(plane.Config, client.Options{Scheme: scheme.Scheme})
	require.NoError(t, err)
	for _, dir := range []string{shipped.SchedulerRoles, "components/native-gangs"} {
		require.NoError(t, shipped.CreatePermissions(t.Context(), c.objects, dir))
	}
	c.create(build.Node("node", "a", "4"))
	return c
}

// run gives a test a namespace and a scheduler with the shipped profile of PermitGate and these args of it.
func (c *cluster) run(name, args string, test func(c *cluster)) {
	c.inNamespace(name, func(c *cluster) {
		c.startScheduler(args)
		test(c)
	})
}

// inNamespace gives a test a namespace.
func (c *cluster) inNamespace(name string, test func(c *cluster)) {
	c.t.Run(name, func(t *testing.T) {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "native-"}}
		c.create(namespace)
		own := *c
		own.t, own.namespace, own.probe = t, namespace.Name, &probe{tried: map[string]int{}}
		t.Cleanup(func() {
			now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
			require.NoError(t, c.admin.CoreV1().Pods(namespace.Name).DeleteCollection(context.Background(), now, metav1.ListOptions{}))
		})
		test(&own)
	})
}

// writeConfig writes the shipped configuration of PermitGate with these args, and returns its path.
func (c *cluster) writeConfig(args string, edit func(*configv1.KubeSchedulerConfiguration)) string {
	c.t.Helper()
	content, err := config.FS.ReadFile("permitgate.yaml")
	require.NoError(c.t, err)
	cfg := &configv1.KubeSchedulerConfiguration{}
	require.NoError(c.t, yaml.UnmarshalStrict(content, cfg))
	cfg.LeaderElection.LeaderElect = ptr.To(false)
	cfg.ClientConnection.Kubeconfig = c.kubeconfig
	cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = 500, 1000
	for i := range cfg.Profiles[0].PluginConfig {
		cfg.Profiles[0].PluginConfig[i].Args = runtime.RawExtension{Raw: []byte(args)}
	}
	edit(cfg)
	cfg.TypeMeta = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	content, err = yaml.Marshal(cfg)
	require.NoError(c.t, err)
	path := filepath.Join(c.t.TempDir(), "config.yaml")
	require.NoError(c.t, os.WriteFile(path, content, 0o600))
	return path
}

// startScheduler starts a scheduler with the shipped profile of PermitGate and these args of it.
func (c *cluster) startScheduler(args string) {
	c.t.Helper()
	o := options.NewOptions()
	o.ConfigFile = c.writeConfig(args, func(cfg *configv1.KubeSchedulerConfiguration) {
		p := cfg.Profiles[0].Plugins
		p.MultiPoint.Enabled = append(p.MultiPoint.Enabled, configv1.Plugin{Name: probeName})
		// Ahead of PermitGate.
		p.PreFilter.Enabled = append(p.PreFilter.Enabled, configv1.Plugin{Name: probeName})
		p.PreBind.Enabled = append(p.PreBind.Enabled, configv1.Plugin{Name: probeName})
	})
	o.SecureServing.BindPort = 0
	ctx, cancel := context.WithCancel(context.Background())
	withProbe := app.WithPlugin(probeName, func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return c.probe, nil })
	pack := plugins.NewPack()
	completed, sched, err := app.Setup(ctx, o, append(registry(pack), withProbe)...)
	if err != nil {
		cancel()
		require.NoError(c.t, err)
	}
	pack.ObserveElection(completed.LeaderElection)
	completed.EventBroadcaster.StartRecordingToSink(ctx.Done())
	completed.InformerFactory.Start(ctx.Done())
	completed.DynInformerFactory.Start(ctx.Done())
	completed.InformerFactory.WaitForCacheSync(ctx.Done())
	completed.DynInformerFactory.WaitForCacheSync(ctx.Done())
	require.NoError(c.t, sched.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
		completed.EventBroadcaster.Shutdown()
		completed.InformerFactory.Shutdown()
		completed.DynInformerFactory.Shutdown()
	})
}

const probeName = "Probe"

// probe is a plugin behind all others, but for PreFilter and PreBind, where it is the first. It counts cycles, and
// fails pods as a test wants.
type probe struct {
	mu      sync.Mutex // guards everything below
	tried   map[string]int
	permit  func(pod string) *fwk.Status
	preBind func(ctx context.Context, pod string) *fwk.Status
}

var (
	_ fwk.PreFilterPlugin = &probe{}
	_ fwk.PermitPlugin    = &probe{}
	_ fwk.PreBindPlugin   = &probe{}
)

// Name implements fwk.Plugin.
func (*probe) Name() string { return probeName }

// PreFilter counts a cycle.
func (p *probe) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried[pod.Name]++
	return nil, nil
}

// PreFilterExtensions returns nil.
func (*probe) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// SignPod signs nothing more.
func (*probe) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }

// Permit does what the test wants.
func (p *probe) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.permit == nil {
		return nil, 0
	}
	return p.permit(pod.Name), 0
}

// PreBindPreFlight has PreBind called.
func (*probe) PreBindPreFlight(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	return nil, nil
}

// PreBind does what the test wants.
func (p *probe) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	p.mu.Lock()
	f := p.preBind
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, pod.Name)
}

// anyCycles reports whether a pod has had one.
func (p *probe) anyCycles() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tried) > 0
}

// cycles returns how many a pod has had.
func (p *probe) cycles(pod string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried[pod]
}
