package sim

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shipped "zonewise.dev/config"
	"zonewise.dev/sim/profiles"
)

// DefaultConfig returns the shipped configuration with all three plugins that replaces kube-scheduler's.
func DefaultConfig() (*config.KubeSchedulerConfiguration, error) {
	return shippedConfig("zonewise.yaml")
}

// configFor returns the shipped configuration that the cluster seems to run with. If a pod names the scheduler of
// second-scheduler.yaml, Zonewise is beside the cluster's own scheduler, which knows neither policies nor holds nor
// gangs. Otherwise Zonewise replaces it.
func configFor(objects []client.Object, schedulerNames []string) (*config.KubeSchedulerConfiguration, error) {
	second, err := shippedConfig("second-scheduler.yaml")
	if err != nil {
		return nil, err
	}
	name := second.Profiles[0].SchedulerName
	if slices.Contains(schedulerNames, name) || slices.ContainsFunc(objects, func(obj client.Object) bool {
		pod, ok := obj.(*v1.Pod)
		return ok && pod.Spec.SchedulerName == name
	}) {
		return second, nil
	}
	return DefaultConfig()
}

func shippedConfig(file string) (*config.KubeSchedulerConfiguration, error) {
	data, err := shipped.FS.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ParseConfig(data)
}

// checkPlugins refuses plugins that are neither kube-scheduler's nor in the registry.
func checkPlugins(cfg *config.KubeSchedulerConfiguration, registry frameworkruntime.Registry) error {
	upstream := frameworkplugins.NewInTreeRegistry()
	for i := range cfg.Profiles {
		if cfg.Profiles[i].Plugins == nil {
			continue
		}
		names := cfg.Profiles[i].Plugins.Names() // those of multiPoint are not among them
		for _, p := range cfg.Profiles[i].Plugins.MultiPoint.Enabled {
			names = append(names, p.Name)
		}
		for _, name := range names {
			if upstream[name] == nil && registry[name] == nil {
				return fmt.Errorf("profiles[%d].plugins: %s is not in this program: correct its name, or if your scheduler has it, have that scheduler "+
					"serve as the command line, too, as examples/own-plugins does", i, name)
			}
		}
	}
	return nil
}

// ParseConfig reads a KubeSchedulerConfiguration, and refuses what the scheduler refuses at its start: what upstream's
// validation does, and what [profiles.Check] does. An error names the field that is wrong.
func ParseConfig(data []byte) (*config.KubeSchedulerConfiguration, error) {
	obj, gvk, err := configscheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, ok := obj.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("want a KubeSchedulerConfiguration, got %s", gvk)
	}
	cfg.TypeMeta.APIVersion = gvk.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, err
	}
	if err := profiles.Check(cfg); err != nil {
		return nil, err
	}
	return cfg, nil
}
