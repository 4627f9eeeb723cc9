package sim

import (
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// allPlacements has a copy try all placements of a pod group, which is what the scheduler does.
func allPlacements(*config.KubeSchedulerConfiguration) []scheduler.Option { return nil }
