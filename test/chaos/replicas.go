package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/internal/controlplane"
)

// schedulerName is that of the profile in config/second-scheduler.yaml.
const schedulerName = "zonewise-scheduler"

// lease is short, so that a run sees many leaders.
var lease = struct{ duration, renew, retry time.Duration }{5 * time.Second, 4 * time.Second, 500 * time.Millisecond}

// schedulerQPS is how many requests a second a scheduler sends: few, so that a leader that is stopped has binds
// waiting.
const schedulerQPS = 20

// replicas are two schedulers. What ends is started again, under another name.
type replicas struct {
	program, dir string
	kubeconfig   string

	mu      sync.Mutex // guards what follows
	number  int
	since   map[string]time.Time // the start of each that there was
	running map[*replica]bool

	wait sync.WaitGroup
}

// replica is the process of a scheduler.
type replica struct {
	name    string // the first word of its user agent
	address string
	cmd     *exec.Cmd
}

// startReplicas starts two, until ctx ends and stopped is called. Their files are in dir.
func startReplicas(ctx context.Context, c *cluster, program, dir string) (*replicas, error) {
	rs := &replicas{program: program, dir: dir, kubeconfig: c.kubeconfig, running: map[*replica]bool{}, since: map[string]time.Time{}}
	content, err := config.FS.ReadFile("second-scheduler.yaml")
	if err != nil {
		return nil, err
	}
	cfg := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.UnmarshalStrict(content, cfg); err != nil {
		return nil, err
	}
	cfg.TypeMeta = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	cfg.ClientConnection.Kubeconfig = c.kubeconfig
	cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = schedulerQPS, schedulerQPS
	cfg.LeaderElection.LeaderElect = ptr.To(true)
	cfg.LeaderElection.LeaseDuration = metav1.Duration{Duration: lease.duration}
	cfg.LeaderElection.RenewDeadline = metav1.Duration{Duration: lease.renew}
	cfg.LeaderElection.RetryPeriod = metav1.Duration{Duration: lease.retry}
	if content, err = yaml.Marshal(cfg); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	for range 2 {
		rs.wait.Go(func() { rs.keep(ctx, file) })
	}
	return rs, nil
}

// keep starts a scheduler whenever there is none, as a kubelet does, until ctx ends.
func (rs *replicas) keep(ctx context.Context, config string) {
	for ctx.Err() == nil {
		if err := rs.run(ctx, config); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
		_ = pause(ctx, time.Second)
	}
}

// run runs a scheduler to its end.
func (rs *replicas) run(ctx context.Context, config string) error {
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	rs.mu.Lock()
	rs.number++
	r := &replica{name: fmt.Sprintf("replica-%d", rs.number), address: address}
	rs.since[r.name] = time.Now()
	rs.mu.Unlock()
	log, err := os.Create(filepath.Join(rs.dir, r.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	r.cmd = exec.CommandContext(ctx, rs.program,
		"--config="+config, "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--authentication-kubeconfig="+rs.kubeconfig, "--authorization-kubeconfig="+rs.kubeconfig,
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics,/debug/*", "-v=3", "--feature-gates="+nativeGates)
	r.cmd.Args[0] = r.name
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		return err
	}
	rs.mu.Lock()
	rs.running[r] = true
	rs.mu.Unlock()
	_ = r.cmd.Wait() // its log says why
	rs.mu.Lock()
	delete(rs.running, r)
	rs.mu.Unlock()
	return nil
}

// stopped waits until all have ended, when the ctx that they were started with has.
func (rs *replicas) stopped() { rs.wait.Wait() }

// started returns the start of each that there was, by its name.
func (rs *replicas) started() map[string]time.Time {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return maps.Clone(rs.since)
}

// all lists those that run.
func (rs *replicas) all() (out []*replica) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.running {
		out = append(out, r)
	}
	return out
}

// leader waits for the replica that leads.
func (rs *replicas) leader(ctx context.Context) (*replica, error) {
	var leader *replica
	err := persist(ctx, func() error {
		for _, r := range rs.all() {
			if metrics, err := r.metrics(ctx); err == nil && metrics["leader_election_master_status"] == 1 {
				leader = r
				return nil
			}
		}
		return errors.New("no replica leads")
	})
	return leader, err
}

// signal sends a signal, unless the process has ended by itself.
func (r *replica) signal(sig syscall.Signal) error {
	if err := r.cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// scraper asks replicas, whose certificates are their own.
var scraper = &http.Client{
	Timeout:   2 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// metrics are a replica's gauges and counters, summed up over labels.
func (r *replica) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := scraper.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	out := make(map[string]float64, len(families))
	for name, family := range families {
		for _, m := range family.GetMetric() {
			out[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out, nil
}
