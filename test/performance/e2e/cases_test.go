package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentconfig "k8s.io/component-base/config"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"
	zonewisev1alpha1 "zonewise.dev/apis/v1alpha1"
)

// loadConfig returns a configuration as the scheduler loads it, defaults filled in; without a path the
// defaults alone.
func loadConfig(t *testing.T, path string) *config.KubeSchedulerConfiguration {
	t.Helper()
	content := []byte("apiVersion: " + configv1.SchemeGroupVersion.String() + "\nkind: KubeSchedulerConfiguration\n")
	if path != "" {
		var err error
		content, err = os.ReadFile(path)
		require.NoError(t, err)
	}
	obj, err := runtime.Decode(scheme.Codecs.UniversalDecoder(), content)
	require.NoError(t, err)
	return obj.(*config.KubeSchedulerConfiguration)
}

// replaced says which plugins a variant has instead of which in-tree ones.
var replaced = map[string]struct{ added, removed []string }{
	inTree:       {},
	unspread:     {removed: []string{"PodTopologySpread"}},
	zoneSpread:   {added: []string{"ZoneSpread"}, removed: []string{"PodTopologySpread"}},
	reserveCache: {added: []string{"ReserveCache"}},
	permitGate:   {added: []string{"PermitGate"}},
	neverGate:    {added: []string{"PermitGate"}},
}

func TestVariantsDifferInThePluginOnly(t *testing.T) {
	// settings are those of a configuration of one profile, and the weights of its plugins.
	settings := func(path string) (*config.KubeSchedulerConfiguration, map[string]int32) {
		c := loadConfig(t, path)
		require.Len(t, c.Profiles, 1)
		weights := map[string]int32{}
		for _, p := range c.Profiles[0].Plugins.MultiPoint.Enabled {
			weights[p.Name] = p.Weight
		}
		for _, p := range c.Profiles[0].Plugins.MultiPoint.Disabled {
			delete(weights, p.Name)
		}
		c.Profiles[0].Plugins, c.Profiles[0].PluginConfig = nil, nil
		c.LeaderElection = componentconfig.LeaderElectionConfiguration{} // there is one scheduler
		return c, weights
	}
	for variant, path := range schedulerConfigs {
		base, want := settings("")
		c, got := settings(path)
		require.Equal(t, base, c, variant)
		for _, name := range replaced[variant].removed {
			require.Contains(t, want, name)
			require.NotContains(t, got, name, variant)
			delete(want, name)
		}
		for _, name := range replaced[variant].added {
			require.Contains(t, got, name, variant)
			delete(got, name)
		}
		require.Equal(t, want, got, variant)
	}
}

func TestTemplatesDecodeStrictly(t *testing.T) {
	// Of scheduler_perf's functions, those in use.
	functions := template.FuncMap{
		"Mod":       func(i, n int) int { return i % n },
		"DivideInt": func(i, n int) int { return i / n },
		"AddInt":    func(i, n int) int { return i + n },
		"Int":       func(i int) int { return i },
	}
	params := map[string]any{"Index": 7, "Count": 10, "nodes": 5, "slots": 3, "members": 4, "owners": 2}
	names, err := fs.Glob(os.DirFS("."), "templates/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		tmpl, err := template.New(filepath.Base(name)).Option("missingkey=error").
			Funcs(functions).ParseFiles(name)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, tmpl.Execute(&out, params), name)
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(out.Bytes(), &kind), name)
		into := map[metav1.TypeMeta]any{
			{APIVersion: "v1", Kind: "Node"}:                               &v1.Node{},
			{APIVersion: "v1", Kind: "Pod"}:                                &v1.Pod{},
			{APIVersion: "v1", Kind: "Service"}:                            &v1.Service{},
			{APIVersion: "zonewise.dev/v1alpha1", Kind: "ZoneReservation"}: &zonewisev1alpha1.ZoneReservation{},
			{APIVersion: "scheduling.x-k8s.io/v1alpha1", Kind: "PodGroup"}: &podgroupv1alpha1.PodGroup{},
			{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup"}:    &schedulingv1beta1.PodGroup{},
		}[kind]
		require.NotNil(t, into, "%s: %v", name, kind)
		require.NoError(t, yaml.UnmarshalStrict(out.Bytes(), into), name)
	}
}

// Every comparison is of cases, workloads and variants that exist, and every case is compared.
func TestPlanCoversTheCases(t *testing.T) {
	var cases []struct {
		Name      string
		Workloads []struct {
			Name   string
			Params map[string]float64
		}
	}
	require.NoError(t, yaml.Unmarshal(casesYAML, &cases))
	workloads, planned := map[[2]string]bool{}, map[string]bool{}
	for _, c := range cases {
		for _, w := range c.Workloads {
			workloads[[2]string{c.Name, w.Name}] = true
			pods := w.Params["measured"]
			if turn, ok := podsPerTurn[w.Name]; ok {
				pods = turn
			}
			if members := w.Params["members"]; members > 0 {
				require.Zero(t, math.Mod(pods, members), "%s/%s: the last gang of a turn must be a whole one", c.Name, w.Name)
			}
		}
	}
	for _, workload := range []string{"", "5Nodes", "500Nodes"} {
		sets, err := selected(nil, workload)
		require.NoError(t, err)
		for _, set := range sets {
			for _, s := range set.series {
				require.Contains(t, schedulerConfigs, s.variant)
				require.True(t, workloads[[2]string{s.name, set.workload}], "%s of %s", set.workload, s.name)
				planned[s.name] = true
			}
		}
	}
	require.Len(t, planned, len(cases))
}
