package sim

import (
	"fmt"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"

	shipped "zonewise.dev/config"
	"zonewise.dev/sim/profiles"
)

// DefaultConfig returns the shipped configuration with all three plugins that replaces kube-scheduler's.
func DefaultConfig() (*config.KubeSchedulerConfiguration, error) {
	data, err := shipped.FS.ReadFile("zonewise.yaml")
	if err != nil {
		return nil, err
	}
	return ParseConfig(data)
}

// ParseConfig reads a KubeSchedulerConfiguration, and refuses what the scheduler refuses at its start: what upstream's validation does, and
// what [profiles.Check] does. An error names the field that is wrong.
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
