package sim

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file has the profiles of a copy: those of the configuration, and one for the pods of each other scheduler.

// profiles returns those of the configuration, and for each other scheduler that a pod names that of a plain
// kube-scheduler. What another scheduler would do is not known, but its pods take room from this one's.
func (s *Sim) profiles(objects []client.Object) ([]config.KubeSchedulerProfile, error) {
	profiles := s.options.Config.DeepCopy().Profiles
	var others []string
	note := func(name string) {
		if name != "" && !slices.Contains(s.Profiles(), name) && !slices.Contains(others, name) {
			others = append(others, name)
		}
	}
	for _, obj := range objects {
		if pod, ok := obj.(*v1.Pod); ok && !isEndedPod(pod) {
			note(pod.Spec.SchedulerName)
		}
	}
	for _, name := range s.options.SchedulerNames {
		note(name)
	}
	if len(others) == 0 {
		return profiles, nil
	}
	plain, err := latest.Default()
	if err != nil {
		return nil, err
	}
	slices.Sort(others)
	for _, name := range others {
		profile := plain.DeepCopy().Profiles[0]
		profile.SchedulerName = name
		if len(profiles) > 0 && profiles[0].Plugins != nil && len(profiles[0].Plugins.QueueSort.Enabled) > 0 { // there is one queue
			profile.Plugins.QueueSort = *profiles[0].Plugins.QueueSort.DeepCopy()
			for _, plugin := range profile.Plugins.QueueSort.Enabled {
				at := slices.IndexFunc(profiles[0].PluginConfig, func(c config.PluginConfig) bool {
					return c.Name == plugin.Name
				})
				if at >= 0 {
					profile.PluginConfig = append(profile.PluginConfig, *profiles[0].PluginConfig[at].DeepCopy())
				}
			}
		}
		profiles = append(profiles, profile)
	}
	return profiles, nil
}

// Profiles returns the scheduler names of the configuration's profiles, in their order.
func (s *Sim) Profiles() []string {
	var out []string
	for i := range s.options.Config.Profiles {
		out = append(out, s.options.Config.Profiles[i].SchedulerName)
	}
	return out
}

// OfOtherScheduler reports whether a pod belongs to a scheduler that the configuration does not have. A copy places it
// as a plain kube-scheduler would.
func (s *Sim) OfOtherScheduler(pod *v1.Pod) bool {
	return !slices.Contains(s.Profiles(), pod.Spec.SchedulerName)
}
