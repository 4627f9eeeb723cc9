package sim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/plugins"
	"zonewise.dev/sim"
	"zonewise.dev/sim/kinds"
)

// waitTimeout bounds every wait, far above what any of them takes.
const waitTimeout = 2 * time.Minute

// backoff is that of every pod after every attempt.
const backoff = time.Second

// lanes are the schedulers of all tests, one beside the other.
var lanes []*lane

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		*clusters = min(*clusters, 6)
	}
	if err := flag.Set("test.parallel", strconv.Itoa(*beside)); err != nil { // lanes wait more than they compute
		fmt.Fprintln(os.Stderr, "test/sim:", err)
		return 1
	}
	sim.UseOneProcessor()
	klog.SetLogger(logr.Discard())
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.Set("OpportunisticBatching=false"))
	ctrllog.SetLogger(logr.Discard())
	if err := startLanes(); err != nil {
		fmt.Fprintln(os.Stderr, "test/sim:", err)
		return 1
	}
	code := m.Run()
	for _, l := range lanes {
		l.stop()
	}
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "test/sim: stop:", err)
		return 1
	}
	return code
}

var env *envtest.Environment

// startLanes starts the API server, and the schedulers on it.
func startLanes() error {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	env = &envtest.Environment{
		BinaryAssetsDirectory:    filepath.Join(root, "bin"), // for those who run go test by hand; KUBEBUILDER_ASSETS goes first
		ControlPlaneStartTimeout: waitTimeout, ControlPlaneStopTimeout: time.Minute,
		CRDInstallOptions: envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, "manifests", "crds")}, ErrorIfPathMissing: true},
	}
	// There is no kubelet to report nodes ready, and no controller to lift the taint of new nodes or to know priority
	// classes and service accounts.
	env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "TaintNodesByCondition", "ServiceAccount", "Priority")
	config, err := env.Start()
	if err != nil {
		return fmt.Errorf("no control plane: make controlplane builds it: %w", err)
	}
	for i := range *beside {
		l := &lane{name: fmt.Sprintf("lane-%d", i), done: make(chan struct{}), nominated: map[string][]string{}, tried: map[string]int64{}}
		if err := l.connect(config); err != nil {
			return err
		}
		if err := l.startScheduler(); err != nil {
			return err
		}
		lanes = append(lanes, l)
	}
	return nil
}

// laneLabel is the label of all objects of a lane.
const laneLabel = "zonewise.dev/lane"

// lane is a scheduler that can be held up between two cycles, and a client. Both are connected to the API server by a
// proxy that shows them the objects of the lane only. So several clusters are there at the same time.
type lane struct {
	client.Client
	name      string
	proxy     *httptest.Server
	dir       string
	configYML []byte // of the scheduler
	scheduler *scheduler.Scheduler
	pack      *plugins.Pack
	cancel    context.CancelFunc
	done      chan struct{}

	// gate is held while the scheduler must not go on; it has a plug in its hand then.
	gate    sync.Mutex
	plugged atomic.Bool
	// taken is how many pods were taken from the queue.
	taken atomic.Int64

	lister corelisters.PodLister

	mu sync.Mutex // guards what follows
	// order is the pods in the order in which they were taken.
	order []string
	// tried has, for each pod, how many were taken up to its last time.
	tried map[string]int64
	// nominated is the nodes that preemption has chosen for a pod, one after the other.
	nominated map[string][]string
}

// Create implements client.Client: what is made belongs to the lane.
func (l *lane) Create(ctx context.Context, obj client.Object, options ...client.CreateOption) error {
	metadata := metav1.ObjectMeta{Labels: obj.GetLabels()}
	metav1.SetMetaDataLabel(&metadata, laneLabel, l.name)
	obj.SetLabels(metadata.Labels)
	return l.Client.Create(ctx, obj, options...)
}

// connect starts the proxy, and makes the client.
func (l *lane) connect(config *rest.Config) error {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	requests := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		info, err := requests.NewRequestInfo(r.In)
		shared := info != nil && (info.Resource == "deviceclasses" || info.Resource == "storageclasses")
		if err != nil || shared || !sets.New("list", "watch", "deletecollection").Has(info.Verb) {
			return // classes are for all
		}
		query := r.Out.URL.Query()
		query.Set("labelSelector", strings.TrimPrefix(query.Get("labelSelector")+","+laneLabel+"="+l.name, ","))
		r.Out.URL.RawQuery = query.Encode()
	}, ErrorLog: log.New(io.Discard, "", 0)}
	l.proxy = httptest.NewServer(proxy)
	l.Client, err = client.New(&rest.Config{Host: l.proxy.URL, QPS: -1}, client.Options{Scheme: kinds.Scheme})
	return err
}

// startScheduler starts the shipped configuration on the API server.
func (l *lane) startScheduler() (err error) {
	if l.dir, err = os.MkdirTemp("", "zonewise-sim-"); err != nil {
		return err
	}
	content, err := config.FS.ReadFile("zonewise.yaml")
	if err != nil {
		return err
	}
	cfg := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.UnmarshalStrict(content, cfg); err != nil {
		return err
	}
	cfg.LeaderElection.LeaderElect = ptr.To(false)
	cfg.PodInitialBackoffSeconds, cfg.PodMaxBackoffSeconds = ptr.To(int64(backoff.Seconds())), ptr.To(int64(backoff.Seconds()))
	cfg.ClientConnection.Kubeconfig = filepath.Join(l.dir, "kubeconfig")
	cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = 1000, 2000
	if l.configYML, err = yaml.Marshal(cfg); err != nil {
		return err
	}
	// The scheduler itself is also the other one, as a copy imagines it, which is given no such profile.
	cfg.Profiles = append(cfg.Profiles, configv1.KubeSchedulerProfile{SchedulerName: ptr.To(elsewhere)})
	both, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	file := filepath.Join(l.dir, "config.yaml")
	if err := os.WriteFile(file, both, 0o600); err != nil {
		return err
	}
	kubeconfig := fmt.Sprintf("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}", l.proxy.URL)
	if err := os.WriteFile(cfg.ClientConnection.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	l.pack = plugins.NewPack(plugins.WithoutElection())
	var registry []app.Option
	for name, factory := range l.pack.Factories() {
		registry = append(registry, app.WithPlugin(name, factory))
	}
	o := options.NewOptions()
	o.ConfigFile = file
	o.SecureServing.BindPort = 0
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	completed, sched, err := app.Setup(ctx, o, registry...)
	if err != nil {
		return err
	}
	l.scheduler = sched
	for name, f := range sched.Profiles {
		sched.Profiles[name] = &observed{f, l}
	}
	l.watchQueue()
	l.lister = completed.InformerFactory.Core().V1().Pods().Lister()
	completed.EventBroadcaster.StartRecordingToSink(ctx.Done())
	completed.InformerFactory.Start(ctx.Done())
	completed.DynInformerFactory.Start(ctx.Done())
	completed.InformerFactory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return err
	}
	go func() {
		defer close(l.done)
		sched.Run(ctx)
	}()
	return nil
}

// pop notes that the scheduler has taken something from its queue: a pod, or nil for what is none.
func (l *lane) pop(pod *framework.QueuedPodInfo) {
	if pod != nil && strings.HasPrefix(pod.Pod.Name, "plug-") {
		l.plugged.Store(true)
		l.gate.Lock()
		l.gate.Unlock() //nolint:staticcheck // it is a gate
	}
	l.taken.Add(1)
	if pod != nil {
		l.mu.Lock()
		l.order = append(l.order, pod.Pod.Name)
		l.tried[pod.Pod.Name] = l.taken.Load()
		l.mu.Unlock()
	}
}

func (l *lane) stop() {
	l.cancel()
	<-l.done
	l.proxy.CloseClientConnections()
	l.proxy.Close()
	_ = os.RemoveAll(l.dir)
}

// observed is a profile that keeps for whose pods which node was chosen by preemption.
type observed struct {
	framework.Framework
	lane *lane
}

// RunPostFilterPlugins implements framework.Framework.
func (o *observed) RunPostFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := o.Framework.RunPostFilterPlugins(ctx, state, pod, statuses)
	if status.IsSuccess() && result != nil && result.NominatingInfo != nil {
		o.lane.mu.Lock()
		o.lane.nominated[pod.Name] = append(o.lane.nominated[pod.Name], result.NominatedNodeName)
		o.lane.mu.Unlock()
	}
	return result, status
}
