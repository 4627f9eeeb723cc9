package main

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"zonewise.dev/config"
	"zonewise.dev/plugins"
	"zonewise.dev/test/schedulertest"
)

// load reads content as the scheduler reads the file of --config.
func load(t *testing.T, content []byte) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	cfg, err := options.LoadConfigFromFile(klog.FromContext(t.Context()), path)
	if err != nil {
		return nil, err
	}
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, err
	}
	return cfg, nil
}

// build makes the scheduler of a configuration, with the pack in its registry and without an API server:
// plugins decode their args here.
func build(t *testing.T, cfg *schedulerconfig.KubeSchedulerConfiguration) (*scheduler.Scheduler, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	registry := frameworkruntime.Registry{}
	for name, factory := range plugins.NewPack().Factories() {
		require.NoError(t, registry.Register(name, factory))
	}
	client := fake.NewSimpleClientset()
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	recorders := profile.RecorderFactory(func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) })
	return scheduler.New(ctx, client, schedulertest.NewInformerFactory(client), nil, recorders,
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
	)
}

// files returns the names of the configurations that the project ships.
func files(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(config.FS, "*.yaml")
	require.NoError(t, err)
	return names
}

// mustLoad loads one of them.
func mustLoad(t *testing.T, name string) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	content, err := config.FS.ReadFile(name)
	require.NoError(t, err)
	cfg, err := load(t, content)
	require.NoError(t, err)
	return cfg
}

// TestFiles: each configuration makes a scheduler of one profile, which elects a leader by the lease of kube-scheduler,
// or by one of its own if it runs beside that: the lease decides which schedulers exclude each other.
func TestFiles(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(enabledIn)), files(t), "a new file needs its line in the package's documentation and in enabledIn")
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			cfg := mustLoad(t, name)
			sched, err := build(t, cfg)
			require.NoError(t, err)
			require.Len(t, sched.Profiles, 1)
			scheduler, lease := "default-scheduler", "kube-scheduler"
			if name == "second-scheduler.yaml" {
				scheduler, lease = "zonewise-scheduler", "zonewise-scheduler"
			}
			require.Contains(t, sched.Profiles, scheduler)
			election := cfg.LeaderElection
			require.True(t, election.LeaderElect)
			require.Equal(t, "kube-system/"+lease, election.ResourceNamespace+"/"+election.ResourceName)
			require.Greater(t, election.LeaseDuration.Duration, election.RenewDeadline.Duration)
			require.Greater(t, election.RenewDeadline.Duration, 2*election.RetryPeriod.Duration)
		})
	}
}
