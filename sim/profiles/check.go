package profiles

import (
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/zonespread"
)

// preparing are the plugins of kube-scheduler that multiPoint enables at PreBind.
var preparing = []string{names.VolumeBinding, names.DynamicResources}

// spreading are the plugins that filter and score by topologySpreadConstraints.
var spreading = []string{names.PodTopologySpread, zonespread.Name}

// granted are the filters with which PermitGate proves that a gang does not fit.
var granted = []string{names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit, names.InterPodAffinity}

// Check refuses profiles that the framework accepts but in which a plugin cannot keep its promise; the error names the
// profile, the extension point and what to write. PermitGate must come before DefaultPreemption at PostFilter, or
// members of a gang preempt one by one, and so must ZoneSpread, or it does not learn why the pods wait that preempt.
// PermitGate must be last at PreBind, or a later plugin can fail after a part of the gang is bound; and it takes for
// granted that kube-scheduler's own filters refuse what they refuse. ZoneSpread replaces PodTopologySpread: with both,
// each refuses what the other allows where they differ, and every pod costs what it cost before.
func Check(cfg *config.KubeSchedulerConfiguration) error {
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		if p.Plugins == nil {
			continue
		}
		postFilter := order(p.Plugins, &p.Plugins.PostFilter, func(name string) bool {
			return slices.Contains([]string{names.DynamicResources, names.DefaultPreemption, zonespread.Name, permitgate.Name}, name)
		})
		for _, plugin := range []struct{ name, otherwise string }{
			{permitgate.Name, "so members of a gang would preempt one by one"},
			{zonespread.Name, "so its policies would not learn why pods wait that preempt"},
		} {
			ours, theirs := slices.Index(postFilter, plugin.name), slices.Index(postFilter, names.DefaultPreemption)
			if ours >= 0 && theirs >= 0 && theirs < ours {
				return fmt.Errorf("profiles[%d].plugins.postFilter: %s comes before %s, %s; write postFilter: {enabled: %s}",
					i, names.DefaultPreemption, plugin.name, plugin.otherwise, ahead(postFilter))
			}
		}
		preBind := order(p.Plugins, &p.Plugins.PreBind, func(name string) bool {
			return name == permitgate.Name || slices.Contains(preparing, name)
		})
		if ours := slices.Index(preBind, permitgate.Name); ours >= 0 && ours < len(preBind)-1 {
			return fmt.Errorf("profiles[%d].plugins.preBind: %s comes after %s, and may fail when part of a gang is already bound; enable %s last in multiPoint, and name no plugin in preBind that is not in multiPoint",
				i, preBind[len(preBind)-1], permitgate.Name, permitgate.Name)
		}
		filter := order(p.Plugins, &p.Plugins.Filter, func(name string) bool { return slices.Contains(spreading, name) || slices.Contains(granted, name) })
		for _, name := range granted {
			if slices.Contains(preBind, permitgate.Name) && !slices.Contains(filter, name) {
				return fmt.Errorf("profiles[%d].plugins: %s would refuse gangs for what %s alone refuses, which is disabled; enable it, or disable %s", i, permitgate.Name, name, permitgate.Name)
			}
		}
		if slices.Contains(filter, zonespread.Name) && slices.Contains(filter, names.PodTopologySpread) {
			return fmt.Errorf("profiles[%d].plugins: %s replaces %s, and both would filter and score every constraint; write multiPoint: {disabled: [{name: %s}]}",
				i, zonespread.Name, names.PodTopologySpread, names.PodTopologySpread)
		}
	}
	return nil
}

// ahead lists the plugins that the profile must name at PostFilter, without DefaultPreemption.
func ahead(postFilter []string) string {
	list := "["
	for _, name := range []string{names.DynamicResources, zonespread.Name, permitgate.Name} {
		if slices.Contains(postFilter, name) {
			if list != "[" {
				list += ", "
			}
			list += "{name: " + name + "}"
		}
	}
	return list + "]"
}

// order returns the plugins of an extension point in the order in which the framework runs them: those of multiPoint
// that the point names, the others of multiPoint, and those that only the point names. has reports which plugins of
// multiPoint implement the point.
func order(plugins *config.Plugins, point *config.PluginSet, has func(name string) bool) []string {
	contains := func(list []config.Plugin, name string) bool {
		return slices.ContainsFunc(list, func(p config.Plugin) bool { return p.Name == name })
	}
	var first, multi, last []string
	all := contains(point.Disabled, "*")
	for _, p := range plugins.MultiPoint.Enabled {
		if !all && has(p.Name) && !contains(point.Disabled, p.Name) && !contains(point.Enabled, p.Name) {
			multi = append(multi, p.Name)
		}
	}
	for _, p := range point.Enabled {
		if !all && contains(plugins.MultiPoint.Enabled, p.Name) && !contains(point.Disabled, p.Name) {
			first = append(first, p.Name)
		} else {
			last = append(last, p.Name)
		}
	}
	if all {
		return last // as they are named
	}
	return slices.Concat(first, multi, last)
}
