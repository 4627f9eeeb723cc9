package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// setFlag sets a flag of the test binary until the end of the test.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	require.NotNil(t, f, name)
	before := f.Value.String()
	require.NoError(t, f.Value.Set(value))
	t.Cleanup(func() { require.NoError(t, f.Value.Set(before)) })
}

func TestRoundsInterleave(t *testing.T) {
	base := series{Case: "TopologySpreading", Workload: large, Variant: inTree}
	ours := series{Case: "TopologySpreading", Workload: large, Variant: zoneSpread}
	nobody := series{Case: "TopologySpreading", Workload: large, Variant: unspread}
	sel := selection{cases: []string{"TopologySpreading"}}
	require.Equal(t, []series{base, ours, nobody, ceiling}, sel.round(0))
	require.Equal(t, []series{ours, base, nobody, ceiling}, sel.round(1))
	require.Zero(t, sel.roundsIn(nil))
	require.Equal(t, 2, sel.roundsIn([]result{{series: base}, {series: ours}, {series: base}}), "results add up")
	base.Workload, ours.Workload, nobody.Workload = "500Nodes", "500Nodes", "500Nodes"
	sel.workload = "500Nodes"
	require.Equal(t, []series{base, ours, nobody, sel.ceiling()}, sel.round(0))

	for _, sel := range []selection{{}, {workload: "500Nodes"}} {
		seen := map[series]bool{}
		for _, s := range sel.round(0) {
			require.False(t, seen[s], "%v twice in a round", s)
			seen[s] = true
		}
		require.True(t, seen[sel.ceiling()])
	}
}

// sample is one entry of a profile: the functions on the stack, the innermost first, and nanoseconds.
func sample(p *profile.Profile, nanos int64, stack ...string) {
	s := &profile.Sample{Value: []int64{nanos / 1e7, nanos}}
	for _, name := range stack {
		f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
		l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		s.Location = append(s.Location, l)
	}
	p.Sample = append(p.Sample, s)
}

func TestReadsWhatSchedulerPerfWrites(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "BenchmarkScheduling_in-tree_benchmark_in-tree_2026-01-02T03:04:05Z.json"), []byte(`{"version": "v1", "dataItems": [
		{"data": {"Average": 250.5, "Perc50": 260}, "unit": "pods/s", "labels": {"Metric": "SchedulingThroughput"}},
		{"data": {"Average": 3}, "unit": "ms", "labels": {"Metric": "scheduler_scheduling_attempt_duration_seconds"}},
		{"data": {"Duration": 12.5}, "unit": "s", "labels": {"Metric": "SchedulingDuration"}}]}`), 0o600))
	r := result{series: selection{workload: "500Nodes"}.ceiling()}
	pods, err := r.readItems(dir)
	require.NoError(t, err)
	require.InDelta(t, 1000, pods, 0)
	require.InDelta(t, 250.5, r.PodsPerSecond, 0)
	require.InDelta(t, 12.5, r.Seconds, 0)

	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
	}
	sample(p, 30e6, "runtime.mallocgc", "k8s.io/kubernetes/pkg/scheduler/framework/runtime.(*frameworkImpl).RunFilterPlugins")
	sample(p, 20e6, "zonewise.dev/plugins/zonespread.(*ZoneSpread).Filter", "k8s.io/client-go/util/workqueue.ParallelizeUntil")
	sample(p, 990e6, "runtime.mallocgc", "k8s.io/apiserver/pkg/endpoints/handlers.CreateResource")
	f, err := os.Create(filepath.Join(dir, "case-cpu.prof"))
	require.NoError(t, err)
	require.NoError(t, p.Write(f))
	require.NoError(t, f.Close())
	all, scheduler, pack, err := cpuTimes(dir)
	require.NoError(t, err)
	require.Equal(t, 1040*time.Millisecond, all)
	require.Equal(t, 50*time.Millisecond, scheduler)
	require.Equal(t, 20*time.Millisecond, pack)
}

func TestResultsAccumulate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.jsonl")
	results, err := readResults(file)
	require.NoError(t, err)
	require.Empty(t, results)
	first := result{
		series: ceiling, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Commit: "abc",
		PodsPerSecond: 200, Seconds: 15, CPUMillis: 9, SchedulerCPUMillis: 1.5, Machine: machine{Cores: 2, Load: 1, Others: 0.25},
	}
	second := first
	second.PodsPerSecond = 220
	require.NoError(t, appendResult(file, first))
	require.NoError(t, appendResult(file, second))
	results, err = readResults(file)
	require.NoError(t, err)
	require.Equal(t, []result{first, second}, results)

	require.NoError(t, os.WriteFile(file, []byte("{}\nnonsense\n"), 0o600))
	_, err = readResults(file)
	require.ErrorContains(t, err, "results.jsonl: line 2: ")
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 3, median([]float64{9, 3, 1}), 0)
	require.InDelta(t, 2, median([]float64{9, 1, 3, 1}), 0)
}

func TestTable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	measured := func(c, variant string, rate, cpu, load float64) result {
		return result{
			series: series{Case: c, Workload: large, Variant: variant}, Time: at, Commit: "abc",
			PodsPerSecond: rate, Seconds: 10, CPUMillis: 8, SchedulerCPUMillis: cpu, PackCPUMillis: cpu / 10, Machine: machine{Cores: 2, Load: load, Others: 0.1},
		}
	}
	small := measured("TopologySpreading", zoneSpread, 9999, 1, 1)
	small.Workload = "500Nodes"
	results := []result{
		measured("SchedulingBasic", inTree, 210, 1, 0.5),
		measured("TopologySpreading", inTree, 190, 3, 1),
		measured("TopologySpreading", zoneSpread, 180, 1, 1),
		measured("TopologySpreading", inTree, 210, 2, 2),
		measured("TopologySpreading", zoneSpread, 200, 2, 4),
		measured("SpreadPodsBefore", zoneSpread, 200, 2, 4), // has nothing to be compared with yet
		small,
	}
	var out bytes.Buffer
	writeTables(&out, results, selection{})
	require.Equal(t, `ZoneSpread in the place of PodTopologySpread: pods/s, median (least-most)

| case | baseline | pods/s | ours | pods/s | ours/baseline | ours/SchedulingBasic | CPU ms per pod | the scheduler's | our functions | runs |
|---|---|---|---|---|---|---|---|---|---|---|
| TopologySpreading, 5000Nodes | in-tree | 200 (190-210) | zonespread | 190 (180-200) | 0.95 below (0.97) | 0.90 ok (0.90) | 8.00, 8.00: 1.00 | 2.50, 1.50: 0.60 | 1.9% | 2 |

4 runs from 2026-01-02 03:04 to 03:04 at abc, on 2 cores; load average before a run 1.5 (1.0-4.0), share of the cores that other processes took during it 10 (10-10) %.
`, out.String())
	out.Reset()
	writeTables(&out, results, selection{workload: "500Nodes"})
	require.Equal(t, "no results to compare yet\n", out.String())
}
