package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"zonewise.dev/config"
	"zonewise.dev/internal/controlplane"
)

// Names of the executables.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kwok              = "kwok"
	Scheduler         = "zonewise-scheduler"
)

// AssetsVariable is the environment variable that names a directory with etcd and kube-apiserver, as for envtest.
const AssetsVariable = "KUBEBUILDER_ASSETS"

const (
	loopback = "127.0.0.1"
	// profile is the scheduler's configuration, from package config.
	profile = "zonewise.yaml"
	// planeLog is the log of etcd and kube-apiserver.
	planeLog = "control-plane"
)

// Options describe a cluster.
type Options struct {
	// BinDir has the executables; if Assets is not empty, it has etcd and kube-apiserver instead.
	BinDir, Assets string
	// Self is this executable, which is also started as the guard.
	Self string
	// Port is that of the API server; 0 takes a free one.
	Port int
	// Zones are the zones whose nodes get kubelets.
	Zones []string
	// Scheme has the kinds that Client is used for.
	Scheme *runtime.Scheme
	// Progress is called with the name of what is being started.
	Progress func(step string)
}

// Cluster is a running control plane. Its methods may be called by several goroutines.
type Cluster struct {
	// Dir holds everything: data, certificates, logs. Stop removes it.
	Dir string
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Config reaches the API server as an administrator, and so does Client.
	Config *rest.Config
	Client client.Client

	opts    Options
	guard   *guard
	plane   *controlplane.ControlPlane
	metrics *http.Client
	url     string // of the scheduler's metrics
	kubelet string // the kubeconfig of the kubelets
	ended   chan error

	mu        sync.Mutex // guards what follows
	processes map[string]*process
	stopped   bool
}

// CheckBinaries says which executables are missing, and how to get them.
func CheckBinaries(opts Options) error {
	var missing []string
	for _, name := range []string{Etcd, APIServer, ControllerManager, Kwok, Scheduler} {
		path := opts.binary(name)
		if info, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, path+" (not found)")
		} else if err != nil {
			missing = append(missing, err.Error())
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, path+" (not an executable file)")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %s; run \"make build controlplane\", or point --bin-dir at the binaries", strings.Join(missing, ", "))
	}
	return nil
}

// binary is the path of an executable.
func (o Options) binary(name string) string {
	dir := o.BinDir
	if o.Assets != "" && (name == Etcd || name == APIServer) {
		dir = o.Assets
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return filepath.Join(dir, name) // no working directory: the start will fail with that error
	}
	return path
}

// Start starts a cluster and returns when every component answers. On any error, and when the context ends, everything is
// cleaned up before it returns.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Port != 0 {
		if err := checkPort(opts.Port); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "zonewise-demo-")
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	c := &Cluster{Dir: dir, opts: opts, ended: make(chan error, 16), processes: map[string]*process{}}
	if c.guard, err = startGuard(opts.Self, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// envtest takes no context: it fails soon after its processes and its directory are gone.
	done := make(chan error, 1)
	go func() { done <- c.start(ctx) }()
	select {
	case err = <-done:
	case early := <-c.ended:
		err = early
	case <-ctx.Done():
		if err = context.Cause(ctx); !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("%w; the end of the log of etcd and kube-apiserver:\n%s", err, tail(c.Log(planeLog)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	go c.watchPlane()
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, sub := range []string{"bin", "logs", "pids", "data"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := c.startPlane(); err != nil {
		return err
	}
	if err := install(ctx, c.Config, c.Client); err != nil {
		return err
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	return c.startScheduler(ctx)
}

// startPlane starts etcd and the API server.
func (c *Cluster) startPlane() error {
	c.opts.Progress(Etcd + ", " + APIServer)
	etcd, err := wrap(c.Dir, Etcd, c.opts.binary(Etcd))
	if err != nil {
		return err
	}
	server, err := wrap(c.Dir, APIServer, c.opts.binary(APIServer))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.Log(planeLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c.plane, err = controlplane.Start(controlplane.Options{
		Dir: c.Dir, Data: filepath.Join(c.Dir, "data"), Etcd: etcd, APIServer: server, Port: c.opts.Port, Scheme: c.opts.Scheme, Output: log,
		Flags: map[string]string{
			"enable-priority-and-fairness": "false", // a handful of trusted clients; queues would only add work
			"max-requests-inflight":        "0", "max-mutating-requests-inflight": "0",
			// Five minutes by default: the pods of an unreachable node are deleted after that.
			"default-unreachable-toleration-seconds": "2", "default-not-ready-toleration-seconds": "2",
			"profiling": "false",
		},
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, tail(c.Log(planeLog)))
	}
	c.Kubeconfig, c.Config = c.plane.Admin, rest.CopyConfig(c.plane.Config)
	c.Config.QPS, c.Config.UserAgent = -1, "zonewise-demo"
	c.Client, err = client.New(c.Config, client.Options{Scheme: c.opts.Scheme})
	return err
}

// controllers are those that the demo's workload needs, and those that users expect in a cluster that they keep.
const controllers = "daemonset-controller,deployment-controller,disruption-controller,garbage-collector-controller,job-controller," +
	"namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,replicaset-controller,statefulset-controller," +
	"taint-eviction-controller"

// startControllers starts kube-controller-manager and the kubelets.
func (c *Cluster) startControllers() error {
	c.opts.Progress(ControllerManager)
	identity, err := c.plane.Kubeconfig(ControllerManager, envtest.User{Name: "system:kube-controller-manager"})
	if err != nil {
		return err
	}
	_, err = c.run(ControllerManager, c.opts.binary(ControllerManager),
		"--kubeconfig="+identity, "--secure-port=0", "--use-service-account-credentials=true",
		"--controllers="+controllers, "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10", "--concurrent-statefulset-syncs=10",
		// The simulated kubelets report rarely, to leave the CPUs to the scheduler. The loss of a zone is still noticed at
		// once, see the demo's documentation. Its nodes are then tainted without a rate limit.
		"--node-monitor-grace-period=20m", "--node-monitor-period=1s",
		"--node-eviction-rate=1000", "--secondary-node-eviction-rate=1000", "--large-cluster-size-threshold=1",
		"--profiling=false")
	if err != nil {
		return err
	}
	c.opts.Progress(Kwok)
	if c.kubelet, err = c.plane.Kubeconfig(Kwok, envtest.User{Name: "zonewise-demo:kubelets"}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "kwok.yaml"), kwokYAML, 0o600); err != nil {
		return err
	}
	for _, zone := range c.opts.Zones {
		if err := c.StartKubelets(zone); err != nil {
			return err
		}
	}
	return nil
}

// StartKubelets starts the simulated kubelets of a zone.
func (c *Cluster) StartKubelets(zone string) error {
	_, err := c.run(Kwok+"-"+zone, c.opts.binary(Kwok),
		"--config="+filepath.Join(c.Dir, "kwok.yaml"), "--kubeconfig="+c.kubelet,
		"--manage-nodes-with-label-selector=topology.kubernetes.io/zone="+zone,
		"--node-lease-duration-seconds=0", // the status reports suffice
		"--node-ip="+loopback, "--cidr=10.128.0.0/14")
	return err
}

// StopKubelets kills the simulated kubelets of a zone.
func (c *Cluster) StopKubelets(zone string) {
	c.mu.Lock()
	p := c.processes[Kwok+"-"+zone]
	c.mu.Unlock()
	if p != nil {
		p.kill()
		_ = os.Remove(pidFile(c.Dir, p.name)) // the number may become another process's
	}
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	c.opts.Progress(Scheduler)
	identity, err := schedulerKubeconfig(ctx, c.Dir, c.Config, c.Client)
	if err != nil {
		return err
	}
	base, err := config.FS.ReadFile(profile)
	if err != nil {
		return err
	}
	adapted, err := adaptProfile(base, identity)
	if err != nil {
		return err
	}
	file, certs := filepath.Join(c.Dir, "scheduler.yaml"), filepath.Join(c.Dir, "data")
	if err := os.WriteFile(file, adapted, 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	c.url = "https://" + net.JoinHostPort(loopback, strconv.Itoa(port)) + "/metrics"
	p, err := c.run(Scheduler, c.opts.binary(Scheduler),
		"--config="+file, "--bind-address="+loopback, "--secure-port="+strconv.Itoa(port), "--cert-dir="+certs,
		"--authentication-kubeconfig="+identity, "--authorization-kubeconfig="+identity, "-v=2")
	if err != nil {
		return err
	}
	// The server answers before it has read who may get metrics.
	return p.await(ctx, func(ctx context.Context) error {
		if c.metrics == nil {
			var err error
			if c.metrics, err = c.metricsClient(filepath.Join(certs, "kube-scheduler.crt")); err != nil {
				return err
			}
		}
		_, err := c.SchedulerMetrics(ctx)
		return err
	})
}

// metricsClient returns a client of a user who may only read metrics. It trusts the scheduler's self-signed certificate.
func (c *Cluster) metricsClient(certificate string) (*http.Client, error) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	user, err := c.plane.Env.AddUser(envtest.User{Name: "zonewise-demo:metrics"}, nil)
	if err != nil {
		return nil, err
	}
	identity, err := tls.X509KeyPair(user.Config().CertData, user.Config().KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{identity}},
		// A connection stays anonymous if it is older than the server's knowledge of the client CA.
		DisableKeepAlives: true,
	}}, nil
}

// SchedulerMetrics reads the scheduler's metrics.
func (c *Cluster) SchedulerMetrics(ctx context.Context) ([]byte, error) {
	body, err := get(ctx, c.metrics, c.url)
	if err != nil {
		return nil, fmt.Errorf("scheduler metrics: %w", err)
	}
	return body, nil
}

func get(ctx context.Context, web *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := web.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		line, _, _ := strings.Cut(string(body), "\n")
		return nil, fmt.Errorf("%s: %s", response.Status, line)
	}
	return body, nil
}

// run starts a component and reports its end.
func (c *Cluster) run(name, path string, args ...string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the cluster is stopped")
	}
	file, err := wrap(c.Dir, name, path)
	if err != nil {
		return nil, err
	}
	p, err := startProcess(name, file, c.Log(name), args...)
	if err != nil {
		return nil, err
	}
	c.processes[name] = p
	go func() {
		<-p.exited
		if !p.stopping.Load() {
			c.ended <- p.exitError()
		}
	}()
	return p, nil
}

// watchPlane reports when etcd or the API server, which envtest runs, no longer serve.
func (c *Cluster) watchPlane() {
	const every, patience = 2 * time.Second, 30 * time.Second
	web, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		c.ended <- err
		return
	}
	last := time.Now()
	for !c.isStopped() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := get(ctx, web, "https://"+hostOf(c.Config)+"/readyz")
		cancel()
		if err == nil {
			last = time.Now()
		} else if !c.isStopped() && (errors.Is(err, syscall.ECONNREFUSED) || time.Since(last) > patience) {
			c.ended <- &ExitError{Component: Etcd + " or " + APIServer, Log: tail(c.Log(planeLog)), Err: err}
			return
		}
		time.Sleep(every)
	}
}

func (c *Cluster) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// hostOf returns the address of an API server; config has its URL or a part of it.
func hostOf(config *rest.Config) string {
	return strings.TrimSuffix(strings.TrimPrefix(config.Host, "https://"), "/")
}

// Log is the path of a component's log.
func (c *Cluster) Log(component string) string { return filepath.Join(c.Dir, "logs", component+".log") }

// LogTail is the end of a component's log.
func (c *Cluster) LogTail(component string) string { return tail(c.Log(component)) }

// Ended receives an *ExitError for each component that ends by itself.
func (c *Cluster) Ended() <-chan error { return c.ended }

// Stop ends every process and removes the directory. It may be called more than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	// The data in etcd is thrown away, so no process gets time to write.
	for _, p := range c.processes {
		p.kill()
	}
	err := sweep(c.Dir)
	c.guard.dismiss()
	return err
}

// freePort returns a port of the loopback address that is free now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("no free port on %s: %w", loopback, err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// checkPort returns an error if the port cannot be listened on.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d on %s is in use by another process; choose another", port, loopback)
	}
	if err != nil {
		return fmt.Errorf("port %d on %s: %w", port, loopback, err)
	}
	return l.Close()
}
