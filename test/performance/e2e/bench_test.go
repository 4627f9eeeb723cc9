package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	zonewisev1alpha1 "zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() error {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = "../../../bin"
	}
	assets, err := filepath.Abs(assets)
	if err != nil {
		return err
	}
	// scheduler_perf looks for etcd there.
	if err := os.Setenv("PATH", assets+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	if err := showSources(); err != nil {
		return err
	}
	perf.PluginNames = append(perf.PluginNames, zonespread.Name, reservecache.Name, permitgate.Name)
	if err := perf.InitTests(); err != nil {
		return err
	}
	// Which case runs is said by the name of the benchmark.
	perf.PerfSchedulingLabelFilter = ""
	return nil
}

// showSources says where the module cache is, in the manner of Bazel: the API server that scheduler_perf starts looks
// for files of its own beside its sources, whose paths -trimpath makes relative to that cache.
func showSources() error {
	if _, file, _, _ := goruntime.Caller(0); filepath.IsAbs(file) {
		return nil
	}
	output, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOMODCACHE: %w", err)
	}
	above, cache := filepath.Split(strings.TrimSpace(string(output)))
	return errors.Join(os.Setenv("TEST_SRCDIR", above), os.Setenv("TEST_WORKSPACE", cache))
}

// BenchmarkScheduling is what the driver runs a part of, in a process for each variant:
// BenchmarkScheduling/variant/case/workload.
func BenchmarkScheduling(b *testing.B) {
	taker, err := takerFromEnv()
	require.NoError(b, err)
	for variant, config := range schedulerConfigs {
		b.Run(variant, func(b *testing.B) {
			content, err := casesInTurns(configOf(b, variant, config), taker.turns)
			require.NoError(b, err)
			file := filepath.Join(b.TempDir(), "cases.yaml")
			require.NoError(b, os.WriteFile(file, content, 0o600))
			perf.RunBenchmarkPerfScheduling(b, file, variant, registry(),
				perf.WithPrepareFn(installCRDs), perf.WithNodeUpdateFn(taker.afterNodes))
		})
	}
}

// configOf is the file with a variant's configuration: that of neverGate is the one of PermitGate, but for one argument.
func configOf(b *testing.B, variant, config string) string {
	b.Helper()
	if variant != neverGate {
		return config
	}
	content, err := os.ReadFile(config)
	require.NoError(b, err)
	const first = "\n          scheduleTimeout:"
	require.Contains(b, string(content), first)
	file := filepath.Join(b.TempDir(), "never.yaml")
	require.NoError(b, os.WriteFile(file, []byte(strings.Replace(string(content), first, "\n          bindRehearsal: Never"+first, 1)), 0o600))
	return file
}

// registry returns the pack's plugins, as cmd/scheduler registers them.
func registry() frameworkruntime.Registry {
	r := frameworkruntime.Registry{}
	maps.Copy(r, plugins.NewPack(plugins.WithoutElection()).Factories())
	return r
}

// installCRDs gives every variant, the in-tree one too, an API server with the pack's resources.
func installCRDs(tCtx ktesting.TContext) error {
	_, err := envtest.InstallCRDs(tCtx.RESTConfig(), envtest.CRDInstallOptions{
		Paths: []string{"../../../manifests/crds"}, ErrorIfPathMissing: true, MaxTime: time.Minute,
	})
	return err
}

// waitForHolds waits until all reservations, if ReserveCache keeps any, hold what they ask for, and nothing has been
// written to a reservation for a while.
func waitForHolds(tCtx ktesting.TContext, s *scheduler.Scheduler) error {
	if !slices.Contains(s.Profiles[v1.DefaultSchedulerName].ListPlugins().Names(), reservecache.Name) {
		return nil
	}
	const rest = 5 // polls
	var all, ready, equal int
	var seen []string
	reservations := tCtx.Dynamic().Resource(zonewisev1alpha1.SchemeGroupVersion.WithResource("zonereservations"))
	err := wait.PollUntilContextTimeout(tCtx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := reservations.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		all, ready = len(list.Items), 0
		var versions []string
		for i := range list.Items {
			r := &zonewisev1alpha1.ZoneReservation{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, r); err != nil {
				return false, err
			}
			if meta.IsStatusConditionTrue(r.Status.Conditions, zonewisev1alpha1.ConditionReady) {
				ready++
			}
			versions = append(versions, r.ResourceVersion)
		}
		if equal++; !slices.Equal(versions, seen) {
			seen, equal = versions, 0
		}
		return all == 0 || ready == all && equal >= rest, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d reservations are ready, and nothing was written about them for %d seconds: %w", ready, all, equal, err)
	}
	return nil
}
