package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// ours are the plugins of the pack in the order in which a profile enables them.
var ours = []string{zonespread.Name, reservecache.Name, permitgate.Name}

// enabledIn says which of them each file enables.
var enabledIn = map[string][]string{
	"permitgate.yaml":       {permitgate.Name},
	"reservecache.yaml":     {reservecache.Name},
	"second-scheduler.yaml": ours,
	"zonespread.yaml":       {zonespread.Name},
	"zonewise.yaml":         ours,
}

// built returns what the framework made of the one profile of a file.
func built(t *testing.T, name string) *schedulerconfig.Plugins {
	t.Helper()
	cfg := mustLoad(t, name)
	sched, err := build(t, cfg)
	require.NoError(t, err)
	return sched.Profiles[cfg.Profiles[0].SchedulerName].ListPlugins()
}

// at returns the names of the plugins of an extension point in the order in which they run.
func at(set schedulerconfig.PluginSet) []string {
	order := make([]string, 0, len(set.Enabled))
	for _, plugin := range set.Enabled {
		order = append(order, plugin.Name)
	}
	return order
}

// points are all the extension points of a profile but MultiPoint.
func points(p *schedulerconfig.Plugins) map[string][]string {
	return map[string][]string{
		"PreEnqueue": at(p.PreEnqueue), "QueueSort": at(p.QueueSort), "PreFilter": at(p.PreFilter), "Filter": at(p.Filter),
		"PostFilter": at(p.PostFilter), "PreScore": at(p.PreScore), "Score": at(p.Score), "Reserve": at(p.Reserve),
		"Permit": at(p.Permit), "PreBind": at(p.PreBind), "Bind": at(p.Bind), "PostBind": at(p.PostBind),
	}
}

func TestFileEnablesItsPluginsAndNoOther(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			for _, order := range points(built(t, name)) {
				for _, plugin := range order {
					found[plugin] = true
				}
			}
			for _, plugin := range ours {
				require.Equal(t, slices.Contains(enabledIn[name], plugin), found[plugin], plugin)
			}
			require.Equal(t, !found[zonespread.Name], found[names.PodTopologySpread],
				"exactly one of ZoneSpread and PodTopologySpread serves topologySpreadConstraints")
			for _, plugin := range []string{names.NodeResourcesFit, names.InterPodAffinity, names.DefaultPreemption, names.VolumeBinding, names.DefaultBinder} {
				require.True(t, found[plugin], "%s is upstream's and stays", plugin)
			}
		})
	}
}

// TestOurPluginsRunLast holds at every extension point but PostFilter: behind all of upstream's plugins, and among each
// other in the order spread, reserve, gate. What came behind the barrier of gangs in PreBind might still fail.
func TestOurPluginsRunLast(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			for point, order := range points(built(t, name)) {
				if point == "PostFilter" {
					continue
				}
				first := slices.IndexFunc(order, func(plugin string) bool { return slices.Contains(ours, plugin) })
				if first < 0 {
					continue
				}
				last := order[first:]
				inOrder := slices.IsSortedFunc(last, func(a, b string) int { return slices.Index(ours, a) - slices.Index(ours, b) })
				require.True(t, inOrder, "%s: %v", point, order)
				for _, plugin := range last {
					require.Contains(t, ours, plugin, "%s: %v", point, order)
				}
			}
		})
	}
}

// TestPostFilterComesBeforePreemption: nothing of ours that wants to stop a preemption may come too late.
func TestPostFilterComesBeforePreemption(t *testing.T) {
	for _, name := range files(t) {
		t.Run(name, func(t *testing.T) {
			order := at(built(t, name).PostFilter)
			preemption := slices.Index(order, names.DefaultPreemption)
			require.GreaterOrEqual(t, preemption, 0)
			for _, plugin := range ours {
				require.Less(t, slices.Index(order, plugin), preemption, "%v", order)
			}
			if gate := slices.Index(order, permitgate.Name); gate >= 0 {
				require.Less(t, slices.Index(order, names.DynamicResources), gate, "PermitGate's refusal ends the list: %v", order)
				require.Less(t, slices.Index(order, zonespread.Name), gate, "PermitGate's refusal ends the list: %v", order)
			}
		})
	}
}

func TestZoneSpreadHasTheWeightOfPodTopologySpread(t *testing.T) {
	weights := func(set schedulerconfig.PluginSet) map[string]int32 {
		byName := map[string]int32{}
		for _, plugin := range set.Enabled {
			byName[plugin.Name] = plugin.Weight
		}
		return byName
	}
	upstream := weights(built(t, "reservecache.yaml").Score)
	for _, name := range []string{"zonewise.yaml", "second-scheduler.yaml", "zonespread.yaml"} {
		t.Run(name, func(t *testing.T) {
			got := weights(built(t, name).Score)
			require.Equal(t, upstream[names.PodTopologySpread], got[zonespread.Name])
			delete(got, zonespread.Name)
			for plugin, weight := range got {
				require.Equal(t, upstream[plugin], weight, plugin)
			}
		})
	}
}
