package sim

import (
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/ptr"
)

// allPlacements has a copy try all placements of a pod group. The scheduler shuffles them, and tries a share of them
// that its configuration gives or that follows from the number of nodes: the answers of a copy would differ from run to
// run.
func allPlacements(cfg *config.KubeSchedulerConfiguration) []scheduler.Option {
	all := ptr.To[int32](100)
	for i := range cfg.Profiles {
		cfg.Profiles[i].PercentageOfPlacementsToScore = all
	}
	return []scheduler.Option{scheduler.WithPercentageOfPlacementsToScore(all)}
}
