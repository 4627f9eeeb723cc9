package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options describe a cluster.
type Options struct {
	// Binaries are the executables.
	Binaries Binaries
	// Self is this executable, which is started again as the guard.
	Self string
	// Port is that of the API server; 0 takes a free one.
	Port int
	// Manifests hold the definitions and roles to create, as YAML files in
	// the directories (or at the paths) ManifestPaths. They are applied in
	// that order; a later object of the same name replaces an earlier one,
	// as an overlay does.
	Manifests     fs.FS
	ManifestPaths []string
	// Profile is the scheduler's configuration; its connection is replaced.
	Profile []byte
	// Scheme knows the kinds that Client is asked for.
	Scheme *runtime.Scheme
	// Progress is told what is being started.
	Progress func(step string)
}

// Cluster is a running control plane. Its methods may be called by several
// goroutines.
type Cluster struct {
	// Dir holds everything: data, certificates, logs. Stop removes it.
	Dir string
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Config reaches the API server as an administrator.
	Config *rest.Config
	// Client does too.
	Client client.Client

	opts  Options
	at    ports
	certs *pki
	guard *guard
	web   *http.Client // for the scheduler's metrics

	mu        sync.Mutex // guards the two fields below
	processes []*process
	stopped   bool

	ended chan error
}

// Start starts a cluster and returns when every component answers. On any
// error, and when the context ends, everything is cleaned up before it
// returns.
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
	c := &Cluster{Dir: dir, opts: opts, ended: make(chan error, len(opts.Binaries))}
	if c.guard, err = startGuard(opts.Self, dir); err == nil {
		err = c.startWatched(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			err = cause // what failed did so because of it
		}
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// startWatched gives the start up as soon as a component ends by itself.
func (c *Cluster) startWatched(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		watch sync.WaitGroup
		early error
	)
	watch.Go(func() {
		select {
		case early = <-c.ended:
			cancel(early)
		case <-ctx.Done():
		}
	})
	err := c.start(ctx)
	cancel(nil)
	watch.Wait()
	if early != nil {
		return early
	}
	return err
}

func (c *Cluster) start(ctx context.Context) error {
	free, err := freePorts(5)
	if err != nil {
		return err
	}
	c.at = ports{etcd: free[0], etcdPeer: free[1], apiServer: free[2], controllerManager: free[3], scheduler: free[4]}
	if c.opts.Port != 0 {
		c.at.apiServer = c.opts.Port
	}
	for _, sub := range []string{"logs", "pki", "etcd"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	if c.certs, err = newPKI(filepath.Join(c.Dir, "pki")); err != nil {
		return err
	}
	c.web = webClient(c.certs)
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	if err := c.grantAccess(ctx); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// startAPI starts etcd and the API server.
func (c *Cluster) startAPI(ctx context.Context) error {
	c.opts.Progress(Etcd)
	if _, err := c.run(Etcd, etcdArgs(c.Dir, c.at, c.certs)); err != nil {
		return err
	}
	c.opts.Progress(APIServer)
	// It retries until etcd answers, so there is no need to wait first.
	api, err := c.run(APIServer, apiServerArgs(filepath.Join(c.Dir, "pki"), c.at, c.certs))
	if err != nil {
		return err
	}
	c.Config = adminConfig(c.certs, c.at.apiServer)
	admin, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	if err := c.await(ctx, api, admin, "https://"+address(c.at.apiServer)+"/readyz"); err != nil {
		return err
	}
	if c.Kubeconfig, err = c.kubeconfig("admin", withCertificate(c.certs.admin)); err != nil {
		return err
	}
	c.Client, err = client.New(c.Config, client.Options{Scheme: c.opts.Scheme, HTTPClient: admin})
	return err
}

// grantAccess creates definitions and roles.
func (c *Cluster) grantAccess(ctx context.Context) error {
	objects, err := decodeObjects("access.yaml", accessYAML)
	if err != nil {
		return err
	}
	for _, root := range c.opts.ManifestPaths {
		more, err := readObjects(c.opts.Manifests, root)
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		objects = append(objects, more...)
	}
	return apply(ctx, c.Client, objects)
}

// startControllers starts what works through the API server.
func (c *Cluster) startControllers(ctx context.Context) error {
	c.opts.Progress(ControllerManager)
	identity, err := c.kubeconfig(ControllerManager, withCertificate(c.certs.controllerManager))
	if err != nil {
		return err
	}
	manager, err := c.run(ControllerManager, controllerManagerArgs(c.at, c.certs, identity))
	if err != nil {
		return err
	}

	c.opts.Progress(Kwok)
	if identity, err = c.kubeconfig(Kwok, withCertificate(c.certs.kubelets)); err != nil {
		return err
	}
	stages := filepath.Join(c.Dir, "kwok.yaml")
	if err := os.WriteFile(stages, kwokYAML, 0o600); err != nil {
		return err
	}
	if _, err := c.run(Kwok, kwokArgs(stages, identity)); err != nil {
		return err
	}

	c.opts.Progress(Scheduler)
	token, err := schedulerToken(ctx, c.Client)
	if err != nil {
		return err
	}
	if identity, err = c.kubeconfig(Scheduler, &clientcmdapi.AuthInfo{Token: token}); err != nil {
		return err
	}
	config, err := adaptProfile(c.opts.Profile, identity)
	if err != nil {
		return err
	}
	file := filepath.Join(c.Dir, "scheduler.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	scheduler, err := c.run(Scheduler, schedulerArgs(c.at, c.certs, file, identity))
	if err != nil {
		return err
	}
	if err := c.await(ctx, manager, c.web, "https://"+address(c.at.controllerManager)+"/healthz"); err != nil {
		return err
	}
	if err := c.await(ctx, scheduler, c.web, "https://"+address(c.at.scheduler)+"/readyz"); err != nil {
		return err
	}
	// It answers probes before it has read who may ask it for metrics.
	return c.await(ctx, scheduler, c.web, c.metricsURL())
}

// run starts a component and watches over it.
func (c *Cluster) run(name string, args []string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the cluster is stopped")
	}
	p, err := startProcess(name, c.opts.Binaries[name], c.Log(name), args...)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	pgid := p.cmd.Process.Pid
	c.guard.watch(pgid)
	go func() {
		<-p.exited
		c.guard.forget(pgid)
		if !p.stopping.Load() {
			c.ended <- p.exitError()
		}
	}()
	return p, nil
}

// Log is the path of a component's log.
func (c *Cluster) Log(component string) string {
	return filepath.Join(c.Dir, "logs", component+".log")
}

// LogTail is the end of a component's log.
func (c *Cluster) LogTail(component string) string { return tail(c.Log(component), tailLines) }

// Ended delivers an *ExitError for each component that ends by itself.
func (c *Cluster) Ended() <-chan error { return c.ended }

// SchedulerMetrics reads the scheduler's metrics, over TLS and as a user who
// may read metrics and nothing else.
func (c *Cluster) SchedulerMetrics(ctx context.Context) ([]byte, error) {
	body, err := get(ctx, c.web, c.metricsURL())
	if err != nil {
		return nil, fmt.Errorf("scheduler metrics: %w", err)
	}
	return body, nil
}

func (c *Cluster) metricsURL() string { return "https://" + address(c.at.scheduler) + "/metrics" }

// Stop ends every process and removes the directory. It may be called more
// than once.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	// What is left in etcd is thrown away, so nobody is given time to
	// write it.
	var all sync.WaitGroup
	for _, p := range c.processes {
		all.Go(func() { p.stop(0) })
	}
	all.Wait()
	err := removeAll(c.Dir)
	if c.guard != nil {
		c.guard.dismiss()
	}
	return err
}

func (c *Cluster) kubeconfig(name string, user *clientcmdapi.AuthInfo) (string, error) {
	return writeKubeconfig(c.Dir, name, c.certs.authority.pem, c.at.apiServer, user)
}

func (c *Cluster) await(ctx context.Context, p *process, web *http.Client, url string) error {
	return p.await(ctx, func(ctx context.Context) error {
		_, err := get(ctx, web, url)
		return err
	})
}

func webClient(certs *pki) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(certs.authority.cert)
	identity, err := tls.X509KeyPair(certs.metrics.cert, certs.metrics.key)
	if err != nil {
		panic(err) // the pair was made by this process a moment ago
	}
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{identity}},
			// A connection from before the server knew the client
			// authority stays anonymous.
			DisableKeepAlives: true,
		},
	}
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
		return nil, fmt.Errorf("%s: %s", response.Status, firstLine(body))
	}
	return body, nil
}

func firstLine(body []byte) string {
	for i, b := range body {
		if b == '\n' || i == 200 {
			return string(body[:i])
		}
	}
	return string(body)
}
