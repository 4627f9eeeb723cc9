package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"
	zonewisev1alpha1 "zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate"
)

// decodes runs scheduler_perf's own loader on a file of cases and none of the cases.
func decodes(t *testing.T, content []byte) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cases.yaml")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	perf.PerfSchedulingLabelFilter = "no-case-has-this-label"
	defer func() { perf.PerfSchedulingLabelFilter = "" }()
	ok := true
	testing.Benchmark(func(b *testing.B) {
		defer func() { ok = !b.Failed() }()
		b.Chdir(t.TempDir()) // for the file of results, which says that there are none
		perf.RunBenchmarkPerfScheduling(b, file, "decoding", nil)
	})
	return ok
}

func TestCasesDecodeStrictly(t *testing.T) {
	for _, variant := range variants {
		content, err := casesFor(variant, t.TempDir(), 0)
		require.NoError(t, err)
		require.True(t, decodes(t, content), variant)
		typo := bytes.ReplaceAll(content, []byte("countParam"), []byte("countParm"))
		require.NotEqual(t, content, typo)
		require.False(t, decodes(t, typo), "a misspelt field must not pass")
	}
}

// The cases of a variant are those of the in-tree one but for the path of the scheduler's configuration.
func TestVariantsRunTheSameCases(t *testing.T) {
	want, err := casesFor(inTree, t.TempDir(), 0)
	require.NoError(t, err)
	path := regexp.MustCompile(`(?m)^(- |  )schedulerConfigPath: .*\n`)
	require.NotRegexp(t, path, string(want))
	for _, variant := range variants[1:] {
		content, err := casesFor(variant, t.TempDir(), 0)
		require.NoError(t, err)
		require.Regexp(t, path, string(content))
		require.YAMLEq(t, string(want), path.ReplaceAllString(string(content), ""))
	}
}

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

// multiPoint returns the plugins of the only profile that are enabled at all their extension points, by
// weight, the disabled ones left out.
func multiPoint(t *testing.T, c *config.KubeSchedulerConfiguration) map[string]int32 {
	t.Helper()
	require.Len(t, c.Profiles, 1)
	weights := map[string]int32{}
	for _, p := range c.Profiles[0].Plugins.MultiPoint.Enabled {
		weights[p.Name] = p.Weight
	}
	for _, p := range c.Profiles[0].Plugins.MultiPoint.Disabled {
		delete(weights, p.Name)
	}
	return weights
}

// replaced says which plugins a variant has instead of which in-tree ones.
var replaced = map[string]struct{ added, removed []string }{
	inTree:       {},
	unspread:     {removed: []string{"PodTopologySpread"}},
	zoneSpread:   {added: []string{"ZoneSpread"}, removed: []string{"PodTopologySpread"}},
	reserveCache: {added: []string{"ReserveCache"}},
	permitGate:   {added: []string{"PermitGate"}},
	neverGate:    {added: []string{"PermitGate"}},
	zonewise:     {added: []string{"ZoneSpread", "ReserveCache", "PermitGate"}, removed: []string{"PodTopologySpread"}},
}

func TestVariantsDifferInThePluginOnly(t *testing.T) {
	base := loadConfig(t, "")
	for _, variant := range variants {
		path, err := configOf(variant, t.TempDir())
		require.NoError(t, err)
		c := loadConfig(t, path)
		require.Equal(t, base.Parallelism, c.Parallelism, variant)
		require.Equal(t, base.PercentageOfNodesToScore, c.PercentageOfNodesToScore, variant)
		require.Equal(t, base.PodInitialBackoffSeconds, c.PodInitialBackoffSeconds, variant)
		require.Equal(t, base.PodMaxBackoffSeconds, c.PodMaxBackoffSeconds, variant)
		require.Equal(t, base.Profiles[0].SchedulerName, c.Profiles[0].SchedulerName, variant)
		require.Nil(t, c.Profiles[0].PercentageOfNodesToScore, variant)

		want, got := multiPoint(t, base), multiPoint(t, c)
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

// neverGate is permitGate but for one argument.
func TestNeverDiffersInTheRehearsalOnly(t *testing.T) {
	path, err := configOf(neverGate, t.TempDir())
	require.NoError(t, err)
	args := func(c *config.KubeSchedulerConfiguration) map[string]any {
		for i := range c.Profiles[0].PluginConfig {
			if p := &c.Profiles[0].PluginConfig[i]; p.Name == permitgate.Name {
				into := map[string]any{}
				require.NoError(t, yaml.Unmarshal(p.Args.(*runtime.Unknown).Raw, &into))
				p.Args = nil
				return into
			}
		}
		require.Fail(t, "no arguments")
		return nil
	}
	auto, never := loadConfig(t, schedulerConfigs[permitGate]), loadConfig(t, path)
	want, got := args(auto), args(never)
	want["bindRehearsal"] = "Never"
	require.Equal(t, want, got)
	require.Equal(t, auto, never)
}

// templateNames returns the paths of all templates.
func templateNames(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(os.DirFS("."), "templates/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
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
	for _, name := range templateNames(t) {
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
	var cases []caseSizes
	require.NoError(t, yaml.Unmarshal(casesYAML, &cases))
	planned := map[string]bool{}
	for _, workload := range []string{"", "5Nodes", "500Nodes"} {
		for _, s := range (selection{workload: workload}).round(0) {
			require.Contains(t, variants, s.Variant)
			require.Contains(t, schedulerConfigs, s.Variant)
			pods, err := measuredPods(s.Case, s.Workload)
			require.NoError(t, err)
			require.Positive(t, pods)
			planned[s.Case] = true
		}
	}
	for _, c := range cases {
		require.True(t, planned[c.Name], c.Name)
		for _, w := range c.Workloads {
			// The last gang must be a whole one.
			if members := w.Params["members"]; members > 0 {
				gangs, ok := w.Params["gangs"]
				if !ok {
					gangs = math.Floor(w.Params["measured"] / members)
				}
				require.InDelta(t, gangs*members, w.Params["measured"], 0, "%s/%s", c.Name, w.Name)
			}
		}
	}
}
