package main

import (
	"slices"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"zonewise.dev/plugins/reservecache"
)

// warnOfProfiles warns of profiles without ReserveCache if others have it: their pods take the room that
// ZoneReservations hold. The plugin cannot warn itself, since the framework creates it only for profiles that enable
// it.
func warnOfProfiles(logger klog.Logger, cfg *config.KubeSchedulerConfiguration) {
	var having, lacking []string
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		if p.Plugins != nil && (enabled(&p.Plugins.MultiPoint) || enabled(&p.Plugins.Filter)) {
			having = append(having, p.SchedulerName)
		} else {
			lacking = append(lacking, p.SchedulerName)
		}
	}
	if len(having) > 0 && len(lacking) > 0 {
		logger.Info("Warning: pods of profiles without ReserveCache take the room that ZoneReservations hold; enable it in all profiles", "with", having, "without", lacking)
	}
}

func enabled(set *config.PluginSet) bool {
	return slices.ContainsFunc(set.Enabled, func(p config.Plugin) bool { return p.Name == reservecache.Name })
}
