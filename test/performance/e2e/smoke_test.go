package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"sigs.k8s.io/yaml"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// The smallest workload of one case for each plugin, from an API server's start to the last pod's binding, with
// the plugin in the scheduler: scheduler_perf fails when a pod is not bound.
func TestSmallestWorkloads(t *testing.T) {
	for variant, smoke := range map[string]struct{ name, plugin string }{
		zoneSpread:   {"SpreadPodsBefore", zonespread.Name},
		reserveCache: {"SchedulingBesideHolds", reservecache.Name},
		permitGate:   {"Gangs", permitgate.Name},
		neverGate:    {"Gangs", permitgate.Name},
		zonewise:     {"SchedulingBesideHolds", reservecache.Name},
	} {
		t.Run(variant, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cases.yaml")
			require.NoError(t, os.WriteFile(file, smallest(t, variant, smoke.name), 0o600))
			// In the directory of the package, where the case finds its templates, it must leave no files.
			files := t.TempDir()
			setFlag(t, "data-items-dir", files)
			t.Setenv("ARTIFACTS", t.ArtifactDir())

			built := 0
			plugins := registry()
			factory := plugins[smoke.plugin]
			plugins[smoke.plugin] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
				built++
				return factory(ctx, args, h)
			}
			failed := true
			testing.Benchmark(func(b *testing.B) {
				defer func() { failed = b.Failed() }()
				perf.RunBenchmarkPerfScheduling(b, file, "smoke", plugins, perfOptions(variant, nil)...)
			})
			require.False(t, failed, "what the scheduler logged is in %s", os.Getenv("ARTIFACTS"))
			require.Equal(t, 1, built)

			// It is what the driver reads, too small only for a throughput.
			r := result{series: series{Case: smoke.name, Workload: "5Nodes", Variant: variant}}
			_, err := r.readItems(files)
			require.ErrorContains(t, err, "the workload is too small")
			require.Positive(t, r.Seconds)

			m, err := readMembers(files)
			require.NoError(t, err)
			if smoke.name != "Gangs" {
				require.Nil(t, m)
				return
			}
			require.Equal(t, 2, m.Gangs)
			require.Equal(t, 10, m.Pods)
			require.Positive(t, m.WholeP50)
			require.GreaterOrEqual(t, m.WholeP99, m.WholeP50)
			require.InDelta(t, 1, m.Writes[writeBinding], 0, "%v", m.Writes)
			require.Equal(t, variant == permitGate, m.Writes[writeRehearsal] > 0, "%v", m.Writes)
			require.Positive(t, m.Writes[writePodGroup], "%v", m.Writes)
		})
	}
}

// smallest returns the cases of a variant, cut down to the smallest workload of one case.
func smallest(t *testing.T, variant, name string) []byte {
	t.Helper()
	content, err := casesFor(variant, t.TempDir(), 0)
	require.NoError(t, err)
	var cases []map[string]any
	require.NoError(t, yaml.Unmarshal(content, &cases))
	cases = slices.DeleteFunc(cases, func(c map[string]any) bool { return c["name"] != name })
	require.Len(t, cases, 1)
	workloads := cases[0]["workloads"].([]any)
	require.Equal(t, "5Nodes", workloads[0].(map[string]any)["name"])
	cases[0]["workloads"] = workloads[:1]
	content, err = yaml.Marshal(cases)
	require.NoError(t, err)
	return content
}
