package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"zonewise.dev/config"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/reservecache/ledger"
)

// runningScheduler is a scheduler in the process of the test.
type runningScheduler struct {
	pack  *plugins.Pack
	sched *scheduler.Scheduler
	log   *logBuffer
	stop  func() // ends it and waits until it has ended; may be called again
}

// ledger returns its ledger, or nil when ReserveCache is not enabled.
func (s *runningScheduler) ledger() *ledger.Ledger { return s.pack.ReserveCache().Ledger() }

// schedulerOption changes how a scheduler is started.
type schedulerOption func(*schedulerSetup)

type schedulerSetup struct {
	file  string
	edits []func(*configv1.KubeSchedulerConfiguration)
}

// configured takes one of the configurations of zonewise.dev/config; zonewise.yaml without it.
func configured(file string) schedulerOption {
	return func(s *schedulerSetup) { s.file = file }
}

// edited changes the configuration.
func edited(edit func(*configv1.KubeSchedulerConfiguration)) schedulerOption {
	return func(s *schedulerSetup) { s.edits = append(s.edits, edit) }
}

// startScheduler starts a scheduler and returns when it schedules.
func (w *world) startScheduler(opts ...schedulerOption) *runningScheduler {
	w.t.Helper()
	setup := &schedulerSetup{file: "zonewise.yaml"}
	for _, option := range opts {
		option(setup)
	}
	log := &logBuffer{}
	ctx, cancel := context.WithCancel(w.ctx)
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(4))))
	pack, completed, sched, err := w.setUp(ctx, setup)
	if err != nil {
		cancel()
		require.NoError(w.t, err)
	}
	s := &runningScheduler{pack: pack, sched: sched, log: log}

	// What app.Run does, but for what belongs to a process: configz, serving, the exit at a lost lease.
	completed.EventBroadcaster.StartRecordingToSink(ctx.Done())
	completed.InformerFactory.Start(ctx.Done())
	completed.DynInformerFactory.Start(ctx.Done())
	completed.InformerFactory.WaitForCacheSync(ctx.Done())
	completed.DynInformerFactory.WaitForCacheSync(ctx.Done())
	require.NoError(w.t, sched.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	w.started++
	number := w.started
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		completed.EventBroadcaster.Shutdown()
		completed.InformerFactory.Shutdown()
		completed.DynInformerFactory.Shutdown()
		if w.t.Failed() {
			path := filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("scheduler-%d.log", number))
			require.NoError(w.t, os.WriteFile(path, []byte(log.tail(-1)), 0o600))
			w.t.Logf("the scheduler's log is in %s (kept with go test -artifacts); its end:\n%s", path, log.tail(60))
		}
	})
	w.schedulers = append(w.schedulers, s)
	return s
}

// setUp builds a scheduler as app.NewSchedulerCommand does, with a pack of its own. It runs nothing but
// what the plugins' constructors start, until ctx ends.
func (w *world) setUp(ctx context.Context, setup *schedulerSetup) (*plugins.Pack, *schedulerserverconfig.CompletedConfig, *scheduler.Scheduler, error) {
	w.t.Helper()
	pack := plugins.NewPack()
	var registry []app.Option
	for name, factory := range pack.Factories() {
		registry = append(registry, app.WithPlugin(name, factory))
	}
	o := options.NewOptions()
	o.ConfigFile = w.writeConfig(setup)
	o.SecureServing.BindPort = 0
	completed, sched, err := app.Setup(ctx, o, registry...)
	if err == nil {
		pack.ObserveElection(completed.LeaderElection)
	}
	return pack, completed, sched, err
}

// writeConfig writes the configuration of a scheduler for this control plane. A pod that could not be
// placed is tried again after a second: the tests that wait for it want no more.
func (w *world) writeConfig(setup *schedulerSetup) string {
	w.t.Helper()
	content, err := config.FS.ReadFile(setup.file)
	require.NoError(w.t, err)
	cfg := &configv1.KubeSchedulerConfiguration{}
	require.NoError(w.t, yaml.UnmarshalStrict(content, cfg))
	cfg.LeaderElection.LeaderElect = ptr.To(false)
	cfg.ClientConnection.Kubeconfig = w.cp.schedulerKubeconfig
	cfg.ClientConnection.QPS, cfg.ClientConnection.Burst = 500, 1000
	cfg.PodInitialBackoffSeconds, cfg.PodMaxBackoffSeconds = ptr.To[int64](1), ptr.To[int64](1)
	for i := range cfg.Profiles { // nodes of a few CPUs may have all of them held
		if p := &cfg.Profiles[i]; slices.ContainsFunc(p.Plugins.MultiPoint.Enabled, func(e configv1.Plugin) bool { return e.Name == reservecache.Name }) {
			p.PluginConfig = append(p.PluginConfig, configv1.PluginConfig{Name: reservecache.Name, Args: runtime.RawExtension{Raw: []byte(`{"maxHeldFraction": 1}`)}})
		}
	}
	for _, edit := range setup.edits {
		edit(cfg)
	}
	require.Equal(w.t, w.cp.schedulerKubeconfig, cfg.ClientConnection.Kubeconfig, "no test gives a scheduler more than it is shipped with")
	cfg.TypeMeta = metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}
	content, err = yaml.Marshal(cfg)
	require.NoError(w.t, err)
	path := filepath.Join(w.t.TempDir(), "config.yaml")
	require.NoError(w.t, os.WriteFile(path, content, 0o600))
	return path
}

// stopSchedulers ends all of the test's schedulers.
func (w *world) stopSchedulers() {
	for _, s := range w.schedulers {
		s.stop()
	}
}

// logBuffer keeps a log in memory.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines returns those that contain part.
func (b *logBuffer) lines(part string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for line := range strings.Lines(b.buf.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// tail returns the last n lines, or all when n is negative.
func (b *logBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 {
		return b.buf.String()
	}
	lines := strings.Split(b.buf.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
