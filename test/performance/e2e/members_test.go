package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriteKinds(t *testing.T) {
	for want, all := range map[string][]map[string]string{
		writeBinding:   {{"verb": "POST", "resource": "pods", "subresource": "binding"}},
		writeRehearsal: {{"verb": "POST", "resource": "pods", "subresource": "binding", "dry_run": "All"}},
		writePodStatus: {{"verb": "PATCH", "resource": "pods", "subresource": "status"}, {"verb": "PUT", "resource": "pods", "subresource": "status"}},
		writePodGroup:  {{"verb": "PATCH", "resource": "podgroups", "subresource": "status"}, {"verb": "APPLY", "resource": "podgroups"}},
		writeEvent:     {{"verb": "POST", "resource": "events"}, {"verb": "PATCH", "resource": "events"}},
		writeOther:     {{"verb": "PATCH", "resource": "pods"}, {"verb": "DELETE", "resource": "pods"}, {"verb": "POST", "resource": "pods", "subresource": "eviction"}},
		"": {
			{"verb": "POST", "resource": "pods"},
			{"verb": "POST", "resource": "podgroups"},
			{"verb": "LIST", "resource": "pods"},
			{"verb": "WATCH", "resource": "events"},
			{"verb": "PATCH", "resource": "nodes", "subresource": "status"},
		},
	} {
		for _, labels := range all {
			require.Equal(t, want, writeKind(labels), "%v", labels)
		}
	}
}

func TestSummaryOfGangs(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gangs := map[string]*gang{}
	for i, millis := range []time.Duration{400, 100, 300} {
		gangs[string(rune('a'+i))] = &gang{created: 4, bound: 4, lastCreated: at, lastBound: at.Add(millis * time.Millisecond)}
	}
	m, err := summary(gangs, map[string]float64{writeBinding: 12, writeEvent: 18})
	require.NoError(t, err)
	require.Equal(t, members{
		Gangs: 3, Pods: 12, WholeP50: 300, WholeP99: 400,
		Writes: map[string]float64{writeBinding: 1, writeEvent: 1.5},
	}, m)

	gangs["b"].bound = 3
	_, err = summary(gangs, nil)
	require.EqualError(t, err, "3 of 4 members of b were seen bound")
	_, err = summary(nil, nil)
	require.EqualError(t, err, "no member of a gang was seen")
}

func TestPercentile(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[len(values)-1-i] = float64(i + 1)
	}
	require.InDelta(t, 100, percentile(values, 50), 0)
	require.InDelta(t, 198, percentile(values, 99), 0)
	require.InDelta(t, 7, percentile([]float64{7}, 99), 0)
}

func TestReadsWhatTheRecorderWrites(t *testing.T) {
	dir := t.TempDir()
	m, err := readMembers(dir)
	require.NoError(t, err)
	require.Nil(t, m)
	require.NoError(t, os.WriteFile(filepath.Join(dir, membersFile), []byte(`{"gangs": 2, "pods": 10, "wholeP50": 5.5, "writes": {"binding": 1}}`), 0o600))
	m, err = readMembers(dir)
	require.NoError(t, err)
	require.Equal(t, &members{Gangs: 2, Pods: 10, WholeP50: 5.5, Writes: map[string]float64{writeBinding: 1}}, m)
	require.NoError(t, os.WriteFile(filepath.Join(dir, membersFile), []byte(`{`), 0o600))
	_, err = readMembers(dir)
	require.ErrorContains(t, err, membersFile)
}

func TestTableOfGangs(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	measured := func(name, variant string, rate, cpu, p50 float64, writes map[string]float64) result {
		return result{
			series: series{Case: name, Workload: gangs20, Variant: variant}, Time: at, Commit: "abc",
			PodsPerSecond: rate, Seconds: 10, CPUMillis: 8, SchedulerCPUMillis: cpu, Machine: machine{Cores: 2, Load: 1, Others: 0.1},
			Members: &members{Gangs: 100, Pods: 2000, WholeP50: p50, WholeP99: 10 * p50, Writes: writes},
		}
	}
	plain := map[string]float64{writeBinding: 1, writeEvent: 1}
	results := []result{
		measured("SameWithoutGangs", inTree, 200, 1, 100, plain),
		measured("NativeGangs", inTree, 210, 2, 200, plain),
		measured("Gangs", permitGate, 200, 1.4, 300, map[string]float64{writeBinding: 1, writeEvent: 1, writePodGroup: 0.15}),
		measured("Gangs", alwaysGate, 150, 2, 400, map[string]float64{writeBinding: 1, writeRehearsal: 1, writeEvent: 1, writePodGroup: 0.15}),
	}
	var out bytes.Buffer
	writeTables(&out, results, selection{})
	require.Equal(t, `Gangs with PermitGate: pods/s, median (least-most)

| case | baseline | pods/s | ours | pods/s | ours/baseline | ours/SchedulingBasic | CPU ms per pod | the scheduler's | our functions | runs |
|---|---|---|---|---|---|---|---|---|---|---|
| Gangs against SameWithoutGangs, 1000Nodes_100GangsOf20 | in-tree | 200 (200-200) | permitgate | 200 (200-200) | 1.00 ok (0.90) | - | 8.00, 8.00: 1.00 | 1.00, 1.40: 1.40 above (1.30) | 0.0% | 1 |
| Gangs against NativeGangs, 1000Nodes_100GangsOf20 | in-tree | 210 (210-210) | permitgate | 200 (200-200) | 0.95 below (1.20) | - | 8.00, 8.00: 1.00 | 2.00, 1.40: 0.70 | 0.0% | 1 |
| Gangs, 1000Nodes_100GangsOf20 | permitgate | 200 (200-200) | permitgate-always | 150 (150-150) | 0.75 | - | 8.00, 8.00: 1.00 | 1.40, 2.00: 1.43 | 0.0% | 1 |

The members: from the last one's creation to the last one's bind, and the API server's writes, medians of the runs

| gangs | case | pods/s | whole after, p50 | p99 | writes per member | binding | rehearsal | pod status | PodGroup | event | other | scheduler's CPU ms | runs |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
| 1000Nodes_100GangsOf20 | SameWithoutGangs, in-tree | 200 (200-200) | 0.10 s | 1.00 s | 2.00 | 1.00 | 0.00 | 0.00 | 0.00 | 1.00 | 0.00 | 1.00 | 1 |
| 1000Nodes_100GangsOf20 | Gangs, permitgate | 200 (200-200) | 0.30 s | 3.00 s | 2.15 | 1.00 | 0.00 | 0.00 | 0.15 | 1.00 | 0.00 | 1.40 | 1 |
| 1000Nodes_100GangsOf20 | NativeGangs, in-tree | 210 (210-210) | 0.20 s | 2.00 s | 2.00 | 1.00 | 0.00 | 0.00 | 0.00 | 1.00 | 0.00 | 2.00 | 1 |
| 1000Nodes_100GangsOf20 | Gangs, permitgate-always | 150 (150-150) | 0.40 s | 4.00 s | 3.15 | 1.00 | 1.00 | 0.00 | 0.15 | 1.00 | 0.00 | 2.00 | 1 |

4 runs from 2026-01-02 03:04 to 03:04 at abc, on 2 cores; load average before a run 1.0 (1.0-1.0), share of the cores that other processes took during it 10 (10-10) %.
`, out.String())
}
