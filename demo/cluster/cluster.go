package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/internal/controlplane"
	"zonewise.dev/manifests/shipped"
	"zonewise.dev/sim/kinds"
)

// Names of the executables.
const (
	etcd        = "etcd"
	apiServer   = "kube-apiserver"
	controllers = "controllers" // some of kube-controller-manager's
	kwok        = "kwok"
	scheduler   = "zonewise-scheduler"
)

// controller is the name of the controller beside the scheduler, which the scheduler's executable runs.
const controller = "zonewise-controller"

const (
	loopback = "127.0.0.1"
	// profile is the scheduler's configuration, from package config.
	profile = "zonewise.yaml"
	// planeLog is the log of etcd and kube-apiserver.
	planeLog = "control-plane"
	// startLimit bounds the start, which takes a few seconds on an idle machine.
	startLimit = 2 * time.Minute
)

// kwokYAML says how the simulated kubelets behave.
//
//go:embed kwok.yaml
var kwokYAML []byte

// Options describe a cluster.
type Options struct {
	// BinDir is the absolute path of the directory of the executables.
	BinDir string
	// Port is that of the API server; 0 takes a free one.
	Port int
	// Zones are the zones whose nodes get kubelets.
	Zones []string
	// Controller are flags of the controller.
	Controller []string
	// Progress is called with the name of what is being started.
	Progress func(step string)
}

// Cluster is a running control plane.
type Cluster struct {
	// Dir holds everything: data, certificates, logs. Stop removes it.
	Dir string
	// Config reaches the API server as an administrator, and so does Client.
	Config *rest.Config
	Client client.Client

	opts      Options
	plane     *controlplane.ControlPlane
	scheduler rest.Interface    // the scheduler's secure port
	kubelet   string            // the kubeconfig of the kubelets
	kill      map[string]func() // by component
	ended     context.CancelCauseFunc
}

// CheckBinaries says which executables are missing, and how to get them.
func CheckBinaries(opts Options) error {
	var missing []string
	for _, name := range []string{etcd, apiServer, controllers, kwok, scheduler} {
		if _, err := exec.LookPath(opts.binary(name)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, opts.binary(name)+" (not found)")
		} else if err != nil {
			missing = append(missing, opts.binary(name)+" (not an executable file)")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %s; run \"make build controlplane\", or point --bin-dir at the binaries", strings.Join(missing, ", "))
	}
	return nil
}

// binary is the path of an executable.
func (o Options) binary(name string) string { return filepath.Join(o.BinDir, name) }

// Start starts a cluster and returns when every component answers. The returned context ends with ctx, and when a
// component ends by itself; its cause then names the component and has the end of its log. On any error, and when the
// context ends, everything is cleaned up before Start returns, once etcd and the API server have started.
func Start(ctx context.Context, opts Options) (*Cluster, context.Context, error) {
	if err := controlplane.IsFree(opts.Port); err != nil {
		return nil, nil, fmt.Errorf("--port: %w: choose another, or 0 for a free one", err)
	}
	dir, err := os.MkdirTemp("", "zonewise-demo-")
	if err != nil {
		return nil, nil, fmt.Errorf("temporary directory: %w", err)
	}
	c := &Cluster{Dir: dir, opts: opts, kill: map[string]func(){}}
	ctx, c.ended = context.WithCancelCause(ctx)
	if err := c.start(ctx); err != nil {
		return nil, nil, errors.Join(err, c.Stop())
	}
	return c, ctx, nil
}

func (c *Cluster) start(running context.Context) error {
	ctx, cancel := context.WithTimeout(running, startLimit)
	defer cancel()
	for _, sub := range []string{"logs", "data"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	for _, start := range []func(context.Context) error{c.startPlane, c.install, c.startControllers, c.startScheduler, c.startBeside} {
		err := start(ctx)
		switch {
		case running.Err() != nil:
			return context.Cause(running)
		case ctx.Err() != nil:
			return fmt.Errorf("not ready after %s; the end of the log of etcd and kube-apiserver:\n%s", startLimit, lastLines(c.Log(planeLog)))
		case err != nil:
			return err
		}
	}
	return c.watchPlane(running)
}

// startPlane starts etcd and the API server. envtest takes no context.
func (c *Cluster) startPlane(context.Context) error {
	c.opts.Progress(etcd + ", " + apiServer)
	log, err := os.OpenFile(c.Log(planeLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c.plane, err = controlplane.Start(controlplane.Options{
		Dir: c.Dir, Data: c.data(), Etcd: c.opts.binary(etcd), APIServer: c.opts.binary(apiServer), Port: c.opts.Port, Scheme: kinds.Scheme, Output: log,
		Flags: map[string]string{
			"enable-priority-and-fairness": "false", // a handful of trusted clients; queues would only add work
			"max-requests-inflight":        "0", "max-mutating-requests-inflight": "0",
			// Five minutes by default: the pods of an unreachable node are deleted after that.
			"default-unreachable-toleration-seconds": "2", "default-not-ready-toleration-seconds": "2",
			"profiling": "false",
		},
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastLines(c.Log(planeLog)))
	}
	c.Config = rest.CopyConfig(c.plane.Config)
	c.Config.QPS, c.Config.UserAgent = -1, "zonewise-demo"
	c.Client, err = client.New(c.Config, client.Options{Scheme: kinds.Scheme})
	return err
}

// watchPlane reports, until ctx ends, when etcd or the API server, which envtest runs, no longer serve.
func (c *Cluster) watchPlane(ctx context.Context) error {
	web, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return err
	}
	// On a machine that is short of CPU etcd may be slow for a long time.
	const interval, patience = 2 * time.Second, 2 * time.Minute
	last := time.Now()
	go func() {
		_ = wait.PollUntilContextCancel(ctx, interval, false, func(ctx context.Context) (bool, error) {
			_, err := web.RESTClient().Get().AbsPath("/readyz").Timeout(patience).DoRaw(ctx)
			if err == nil {
				last = time.Now()
			}
			gone := err != nil && ctx.Err() == nil && (utilnet.IsConnectionRefused(err) || time.Since(last) >= patience)
			if gone {
				c.ended(exitError(etcd+" or "+apiServer, c.Log(planeLog), err))
			}
			return gone, nil
		})
	}()
	return nil
}

// install creates the custom resources, and the roles.
func (c *Cluster) install(ctx context.Context) error {
	definitions, err := shipped.Definitions()
	if err != nil {
		return err
	}
	if _, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{CRDs: definitions, MaxTime: startLimit}); err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	for _, roles := range []string{shipped.SchedulerRoles, shipped.ControllerRoles, shipped.RebalanceRoles, shipped.EvictRoles} {
		if err := shipped.CreatePermissions(ctx, c.Client, roles); err != nil {
			return err
		}
	}
	return nil
}

// started are the controllers that the demo's workload needs, and those that users expect in a cluster that they keep.
// Those of nodes treat the simulated ones as hack/controlplane/kubernetes/controllers says: kubelets report rarely, to
// leave the CPUs to the scheduler, and the loss of a zone is noticed at once.
const started = "daemonset-controller,deployment-controller,disruption-controller,garbage-collector-controller,job-controller," +
	"namespace-controller,node-lifecycle-controller,replicaset-controller,statefulset-controller,taint-eviction-controller"

// startControllers starts Kubernetes' controllers and the kubelets.
func (c *Cluster) startControllers(context.Context) error {
	c.opts.Progress(controllers)
	if err := c.run(controllers, controllers, "--kubeconfig="+c.plane.Admin, "--controllers="+started); err != nil {
		return err
	}
	c.opts.Progress(kwok)
	kubelets := envtest.User{Name: "zonewise-demo:kubelets", Groups: []string{"system:masters"}} // of the demo's own nodes
	var err error
	c.kubelet, err = c.plane.Kubeconfig(kwok, kubelets)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.kwokFile(), kwokYAML, 0o600); err != nil {
		return err
	}
	for _, zone := range c.opts.Zones {
		if err := c.StartKubelets(zone); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) kwokFile() string { return filepath.Join(c.Dir, "kwok.yaml") }

// StartKubelets starts the simulated kubelets of a zone.
func (c *Cluster) StartKubelets(zone string) error {
	return c.run(kwok+"-"+zone, kwok,
		"--config="+c.kwokFile(), "--kubeconfig="+c.kubelet,
		"--manage-nodes-with-label-selector=topology.kubernetes.io/zone="+zone,
		"--node-lease-duration-seconds=0", // the status reports suffice
		"--node-ip="+loopback, "--cidr=10.128.0.0/14")
}

// StopKubelets kills the simulated kubelets of a zone.
func (c *Cluster) StopKubelets(zone string) {
	c.kill[kwok+"-"+zone]()
}

// startScheduler starts the scheduler under the name of its ServiceAccount, with the API server's serving certificate.
func (c *Cluster) startScheduler(ctx context.Context) error {
	c.opts.Progress(scheduler)
	identity, err := c.plane.Kubeconfig(scheduler, shipped.SchedulerUser)
	if err != nil {
		return err
	}
	base, err := config.FS.ReadFile(profile)
	if err != nil {
		return err
	}
	connected, err := withConnection(base, identity)
	if err != nil {
		return err
	}
	file := filepath.Join(c.Dir, "scheduler.yaml")
	if err := os.WriteFile(file, connected, 0o600); err != nil {
		return err
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	err = c.run(scheduler, scheduler,
		"--config="+file, "--bind-address="+loopback, "--secure-port="+strconv.Itoa(port),
		"--tls-cert-file="+filepath.Join(c.data(), "pki", "apiserver.crt"),
		"--tls-private-key-file="+filepath.Join(c.data(), "pki", "apiserver.key"),
		"--authentication-kubeconfig="+identity, "--authorization-kubeconfig="+identity,
		// The server answers before it has read who may get metrics.
		"--authorization-always-allow-paths=/metrics", "-v=2")
	if err != nil {
		return err
	}
	secure := rest.CopyConfig(c.Config)
	secure.Host = "https://" + net.JoinHostPort(loopback, strconv.Itoa(port))
	web, err := discovery.NewDiscoveryClientForConfig(secure)
	if err != nil {
		return err
	}
	c.scheduler = web.RESTClient()
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.SchedulerMetrics(ctx)
		return err == nil, nil
	})
}

// startBeside starts the controller beside the scheduler under the name of its ServiceAccount, with the scheduler's
// shipped profile.
func (c *Cluster) startBeside(context.Context) error {
	c.opts.Progress(controller)
	identity, err := c.plane.Kubeconfig(controller, shipped.ControllerUser)
	if err != nil {
		return err
	}
	return c.run(controller, scheduler, append([]string{"controller", "--survival", "--rebalance", "--kubeconfig=" + identity, "--address="}, c.opts.Controller...)...)
}

// SchedulerMetrics reads the scheduler's metrics.
func (c *Cluster) SchedulerMetrics(ctx context.Context) ([]byte, error) {
	text, err := c.scheduler.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("scheduler metrics: %w", err)
	}
	return text, nil
}

// withConnection returns the scheduler configuration with the connection of this cluster and without leader election,
// since there is one scheduler. Everything else stays as it is.
func withConnection(profile []byte, kubeconfig string) ([]byte, error) {
	var config map[string]any
	if err := yaml.UnmarshalStrict(profile, &config); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	// With upstream's default of 50 requests a second the limiter would dominate.
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 500, "burst": 1000}
	return yaml.Marshal(config)
}

// run starts a component.
func (c *Cluster) run(component, binary string, args ...string) error {
	kill, err := startProcess(component, c.opts.binary(binary), c.Log(component), c.ended, args...)
	if err == nil {
		c.kill[component] = kill
	}
	return err
}

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.plane.Admin }

// Log is the path of a component's log.
func (c *Cluster) Log(component string) string { return filepath.Join(c.Dir, "logs", component+".log") }

// SchedulerLog is the end of the scheduler's log.
func (c *Cluster) SchedulerLog() string { return lastLines(c.Log(scheduler)) }

// data is the directory of data and certificates.
func (c *Cluster) data() string { return filepath.Join(c.Dir, "data") }

// Stop ends every process and removes the directory.
func (c *Cluster) Stop() error {
	c.ended(nil)
	for _, kill := range c.kill {
		kill()
	}
	var err error
	if c.plane != nil {
		err = c.plane.Stop()
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}
