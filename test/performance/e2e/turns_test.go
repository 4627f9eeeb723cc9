package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestTurnCases(t *testing.T) {
	names := turnCases()
	require.Contains(t, names, "SchedulingBasic")
	require.Contains(t, names, "Gangs")
	require.NotContains(t, names, "SpreadPodsBefore", "its measured pods join others")
	pods, err := podsOfTurn("Gangs", gangs20)
	require.NoError(t, err)
	require.InDelta(t, 1000, pods, 0)
	pods, err = podsOfTurn("Gangs", "500Nodes")
	require.NoError(t, err)
	require.InDelta(t, 1000, pods, 0, "as many as the workload measures")
	_, err = podsOfTurn("SpreadPodsBefore", large)
	require.ErrorContains(t, err, "cannot be measured in turns")
}

// The steps that measure come once to warm up and then once for each turn, in namespaces of their own, with a node before
// each turn and one after the last.
func TestSplitIntoTurns(t *testing.T) {
	var c map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(`
name: Gangs
workloadTemplate:
  - {opcode: createNodes, countParam: $nodes}
  - {opcode: createAny, namespace: gangs, countParam: $gangs}
  - {opcode: createPods, namespace: gangs, countParam: $measured, collectMetrics: true}
workloads:
  - {name: 5Nodes, params: {nodes: 5, gangs: 2, members: 5, measured: 10}}
  - {name: 1000Nodes_100GangsOf20, params: {nodes: 1000, gangs: 100, members: 20, measured: 2000}}`), &c))
	require.NoError(t, splitIntoTurns(c, 2))
	got, err := yaml.Marshal(c)
	require.NoError(t, err)
	node := "{opcode: createNodes, count: 1, nodeTemplatePath: templates/node-turn.yaml}"
	require.YAMLEq(t, `
name: Gangs
workloadTemplate:
  - {opcode: createNodes, countParam: $nodes}
  - {opcode: createAny, namespace: gangs, countParam: $gangs}
  - {opcode: createPods, namespace: gangs, countParam: $measured, collectMetrics: true}
  - `+node+`
  - {opcode: createAny, namespace: gangs-1, countParam: $gangs}
  - {opcode: createPods, namespace: gangs-1, countParam: $measured}
  - `+node+`
  - {opcode: createAny, namespace: gangs-2, countParam: $gangs}
  - {opcode: createPods, namespace: gangs-2, countParam: $measured}
  - `+node+`
workloads:
  - {name: 5Nodes, params: {nodes: 5, gangs: 2, members: 5, measured: 10}}
  - {name: 1000Nodes_100GangsOf20, params: {nodes: 1000, gangs: 50, members: 20, measured: 1000}}`, string(got))
	require.True(t, namespaceIsOf("gangs-2", "gangs"))
	require.False(t, namespaceIsOf("gangsters", "gangs"))

	delete(c, "workloadTemplate")
	require.ErrorContains(t, splitIntoTurns(c, 2), "no workloadTemplate")
}

func TestTurnsDecodeStrictly(t *testing.T) {
	content, err := casesFor(zoneSpread, t.TempDir(), 3)
	require.NoError(t, err)
	require.True(t, decodes(t, content))
	require.Contains(t, string(content), "shop-3")
}

// Nobody is always the first or always behind the same one.
func TestTurnOrder(t *testing.T) {
	const players, turns = 4, 8
	first, before := map[int]int{}, map[[2]int]int{}
	for turn := range turns {
		order := turnOrder(players, turn)
		require.ElementsMatch(t, []int{0, 1, 2, 3}, order)
		first[order[0]]++
		for i, a := range order {
			for _, b := range order[i+1:] {
				before[[2]int{a, b}]++
			}
		}
	}
	for a := range players {
		require.Positive(t, first[a])
		for b := range players {
			if a != b {
				require.Equal(t, turns/2, before[[2]int{a, b}], "%d before %d", a, b)
			}
		}
	}
}

func TestSetsHaveWhatIsCompared(t *testing.T) {
	sel := selection{cases: []string{"TopologySpreading", "SpreadPodsBefore"}}
	require.Equal(t, [][]series{{
		{Case: "TopologySpreading", Workload: large, Variant: inTree},
		{Case: "TopologySpreading", Workload: large, Variant: zoneSpread},
		ceiling,
		{Case: "TopologySpreading", Workload: large, Variant: unspread},
	}}, sel.sets(), "one set for each case that can be measured in turns")
}

// The smallest workload in turns, with the processes that the driver starts: this test's own binary.
func TestTurnsOfTheSmallestWorkload(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	b := &bench{binary: binary, dir: t.ArtifactDir(), commit: "abc"}
	all := []series{
		{Case: "NativeGangs", Workload: "5Nodes", Variant: permitGate},
		{Case: "TopologySpreading", Workload: "5Nodes", Variant: zoneSpread},
	}
	var results []result
	require.NoError(t, b.measureInTurns(t.Context(), all, 2, func(r result) error {
		results = append(results, r)
		return nil
	}), "the logs are below %s", b.dir)
	require.Len(t, results, 5, "two turns of both, and what was seen of the gangs")
	sum := results[4]
	require.Equal(t, all[0], sum.series)
	require.Zero(t, sum.Turn)
	require.Equal(t, 3*2, sum.Members.Gangs, "those of the warm-up, too")
	require.InDelta(t, 20/sum.Seconds, sum.PodsPerSecond, 1e-6)
	for i, s := range []series{all[0], all[1], all[1], all[0]} {
		r := results[i]
		require.Equal(t, s, r.series)
		require.Equal(t, i/2+1, r.Turn)
		require.Equal(t, "abc", r.Commit)
		require.Positive(t, r.CPUMillis)
		require.InDelta(t, 10/r.Seconds, r.PodsPerSecond, 1e-6, "10 pods were measured")
	}
}

func TestTurnTable(t *testing.T) {
	set := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var results []result
	add := func(turn int, c, variant string, rate float64) {
		results = append(results, result{
			series: series{Case: c, Workload: large, Variant: variant}, Time: set, Commit: "abc", Set: set, Turn: turn,
			PodsPerSecond: rate, Seconds: 1000 / rate, CPUMillis: 8, SchedulerCPUMillis: 2, PackCPUMillis: 0.4, Machine: machine{Cores: 2, Load: 1, Others: 0.1},
		})
	}
	// The machine is half as fast in the second turn; the ratios are not.
	for turn, speed := range []float64{1, 0.5, 0.75} {
		add(turn+1, "TopologySpreading", inTree, 100*speed)
		add(turn+1, "TopologySpreading", zoneSpread, 180*speed)
		add(turn+1, "SchedulingBasic", inTree, 200*speed)
	}
	add(4, "TopologySpreading", zoneSpread, 999) // nobody to compare it with took that turn
	var out bytes.Buffer
	writeTurns(&out, results, selection{})
	require.Equal(t, fmt.Sprintf(`ZoneSpread in the place of PodTopologySpread, in turns: median (least-most)

| case | baseline | pods/s | ours | pods/s | ours/baseline | ours/SchedulingBasic | CPU ms per pod, ours/baseline | the scheduler's | our functions | turns |
|---|---|---|---|---|---|---|---|---|---|---|
| TopologySpreading, 5000Nodes | in-tree | 75 (50-100) | zonespread | 135 (90-180) | 1.80 ok (0.97) [1.80-1.80], together 1.80 | 0.90 ok (0.90) [0.90-0.90], together 0.90 | 1.00 [1.00-1.00] | 1.00 [1.00-1.00] | %s | 3 |

9 runs from 2026-01-02 03:04 to 03:04 at abc, on 2 cores; load average before a run 1.0 (1.0-1.0), share of the cores that other processes took during it 10 (10-10) %%.
`, "5.0%"), out.String())
	out.Reset()
	writeTurns(&out, nil, selection{})
	require.Equal(t, "no turns to compare yet\n", out.String())
}

// What was seen of the members in all turns is in a table of its own, and in no ratio.
func TestTurnTableOfMembers(t *testing.T) {
	set := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var results []result
	for variant, speed := range map[string]float64{inTree: 200, permitGate: 190} {
		turn := result{
			series: series{Case: "NativeGangs", Workload: gangs20, Variant: variant}, Time: set, Commit: "abc", Set: set, Turn: 1,
			PodsPerSecond: speed, Seconds: 1000 / speed, CPUMillis: 8, SchedulerCPUMillis: 2, Machine: machine{Cores: 2},
		}
		second := turn
		second.Turn, second.PodsPerSecond, second.Seconds = 2, speed/3, 3*turn.Seconds
		sum := sumOfTurns([]result{turn, second}, &members{
			Gangs: 150, Pods: 3000, WholeP50: 1500, WholeP99: 4000, Writes: map[string]float64{writeBinding: 1, writePodStatus: 2},
		})
		require.InDelta(t, speed/2, sum.PodsPerSecond, 1e-6, "all pods by all of the time")
		results = append(results, turn, second, sum)
	}
	var out bytes.Buffer
	writeTurns(&out, results, selection{cases: []string{"NativeGangs"}})
	require.Contains(t, out.String(), "| 0.95 ok (0.95) [0.95-0.95], together 0.95 |")
	require.Contains(t, out.String(), "| 1000Nodes_100GangsOf20 | NativeGangs, permitgate | 95 (95-95) | 1.50 s | 4.00 s | 3.00 | 1.00 |")
	require.Contains(t, out.String(), "| 1000Nodes_100GangsOf20 | NativeGangs, in-tree | 100 (100-100) |")
}
