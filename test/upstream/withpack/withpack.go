// Package withpack stands for package scheduler in upstream's tests: its functions have the same names and signatures,
// and the scheduler that they make has PermitGate in its profiles, if the environment says so.
package withpack

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"zonewise.dev/config"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/zonespread"
)

// Env is the variable of the environment that names the shipped configuration whose profile the scheduler gets, as in
// permitgate.yaml. Without it the functions are upstream's.
const Env = "ZONEWISE_UPSTREAM_CONFIG"

// Mark is a line that New prints when it has made a scheduler with PermitGate in all of its profiles.
const Mark = "withpack: PermitGate is in all profiles"

// New is scheduler.New, with the shipped profile as its default one.
func New(ctx context.Context, client clientset.Interface, informerFactory informers.SharedInformerFactory,
	dynInformerFactory dynamicinformer.DynamicSharedInformerFactory, recorderFactory profile.RecorderFactory, opts ...scheduler.Option,
) (*scheduler.Scheduler, error) {
	if os.Getenv(Env) == "" {
		return scheduler.New(ctx, client, informerFactory, dynInformerFactory, recorderFactory, opts...)
	}
	// What the test names itself comes later, and counts.
	opts = append([]scheduler.Option{WithFrameworkOutOfTreeRegistry(nil), scheduler.WithProfiles(shipped())}, opts...)
	s, err := scheduler.New(ctx, client, informerFactory, dynInformerFactory, recorderFactory, opts...)
	if err != nil {
		return nil, err
	}
	for name, f := range s.Profiles {
		if !has(f.ListPlugins().Permit, permitgate.Name) {
			return nil, fmt.Errorf("profile %s is without %s", name, permitgate.Name)
		}
	}
	fmt.Println(Mark)
	return s, nil
}

func has(set schedulerapi.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Enabled, func(p schedulerapi.Plugin) bool { return p.Name == name })
}

// WithFrameworkOutOfTreeRegistry is scheduler.WithFrameworkOutOfTreeRegistry, with the pack's plugins beside those of
// the test.
func WithFrameworkOutOfTreeRegistry(registry frameworkruntime.Registry) scheduler.Option {
	if os.Getenv(Env) != "" {
		all := frameworkruntime.Registry{}
		maps.Copy(all, plugins.NewPack(plugins.WithoutElection()).Factories())
		maps.Copy(all, registry)
		registry = all
	}
	return scheduler.WithFrameworkOutOfTreeRegistry(registry)
}

// WithProfiles is scheduler.WithProfiles, with the pack's plugins of the shipped profile behind those of each profile.
func WithProfiles(profiles ...schedulerapi.KubeSchedulerProfile) scheduler.Option {
	if os.Getenv(Env) == "" {
		return scheduler.WithProfiles(profiles...)
	}
	from, pack := shipped(), plugins.NewPack(plugins.WithoutElection()).Factories()
	extended := make([]schedulerapi.KubeSchedulerProfile, len(profiles))
	for i := range profiles {
		p := profiles[i].DeepCopy()
		all := &p.Plugins.MultiPoint
		for _, e := range from.Plugins.MultiPoint.Enabled {
			if pack[e.Name] != nil {
				all.Enabled = append(all.Enabled, e)
			}
		}
		if has(*all, zonespread.Name) {
			all.Enabled = slices.DeleteFunc(all.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == names.PodTopologySpread })
		}
		for _, c := range from.PluginConfig {
			if pack[c.Name] != nil {
				p.PluginConfig = append(p.PluginConfig, c)
			}
		}
		extended[i] = *p
	}
	return scheduler.WithProfiles(extended...)
}

// shipped returns the profile of the shipped configuration. Its defaults follow from the feature gates, which each test
// sets.
func shipped() schedulerapi.KubeSchedulerProfile {
	name := os.Getenv(Env)
	content, err := config.FS.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", Env, err))
	}
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		panic(fmt.Sprintf("config/%s: %v", name, err))
	}
	return obj.(*schedulerapi.KubeSchedulerConfiguration).Profiles[0]
}
