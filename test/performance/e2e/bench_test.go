package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"
	zonewisev1alpha1 "zonewise.dev/apis/v1alpha1"
	"zonewise.dev/manifests"
	"zonewise.dev/plugins"
	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache"
	"zonewise.dev/plugins/zonespread"
)

// schedulerConfigs has the scheduler's configuration of each variant: the files that users read. The
// in-tree variant takes the scheduler's own defaults, and what neverGate changes is in configOf.
var schedulerConfigs = map[string]string{
	inTree:       "",
	unspread:     "unspread.yaml",
	zoneSpread:   "../../../config/zonespread.yaml",
	reserveCache: "../../../config/reservecache.yaml",
	permitGate:   "../../../config/permitgate.yaml",
	neverGate:    "../../../config/permitgate.yaml",
	zonewise:     "../../../config/zonewise.yaml",
}

// configOf returns the path of a variant's configuration, which is in dir when it is not one of the files that users read.
func configOf(variant, dir string) (string, error) {
	path := schedulerConfigs[variant]
	if variant != neverGate {
		return path, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var c configv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(content, &c); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	for i := range c.Profiles {
		for k := range c.Profiles[i].PluginConfig {
			if p := &c.Profiles[i].PluginConfig[k]; p.Name == permitgate.Name {
				args := map[string]any{}
				if err := yaml.Unmarshal(p.Args.Raw, &args); err != nil {
					return "", fmt.Errorf("%s: args of %s: %w", path, p.Name, err)
				}
				args["bindRehearsal"] = "Never"
				if p.Args.Raw, err = json.Marshal(args); err != nil {
					return "", err
				}
			}
		}
	}
	if content, err = yaml.Marshal(&c); err != nil {
		return "", err
	}
	path = filepath.Join(dir, variant+".yaml")
	return path, os.WriteFile(path, content, 0o600)
}

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() error {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = "../../../bin"
	}
	assets, err := filepath.Abs(assets)
	if err != nil {
		return err
	}
	// scheduler_perf looks for etcd there.
	if err := os.Setenv("PATH", assets+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
		return err
	}
	if err := showSources(); err != nil {
		return err
	}
	perf.PluginNames = append(perf.PluginNames, zonespread.Name, reservecache.Name, permitgate.Name)
	if err := perf.InitTests(); err != nil {
		return err
	}
	// Which case runs is said by the name of the benchmark.
	perf.PerfSchedulingLabelFilter = ""
	return nil
}

// showSources says where the module cache is, in the manner of Bazel: the API server that scheduler_perf starts looks for files of its own
// beside its sources, whose paths -trimpath makes relative to that cache.
func showSources() error {
	if _, file, _, _ := goruntime.Caller(0); filepath.IsAbs(file) {
		return nil
	}
	output, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOMODCACHE: %w", err)
	}
	above, cache := filepath.Split(strings.TrimSpace(string(output)))
	return errors.Join(os.Setenv("TEST_SRCDIR", above), os.Setenv("TEST_WORKSPACE", cache))
}

// BenchmarkScheduling runs every case with every variant: BenchmarkScheduling/variant/case/workload. It
// takes hours as a whole; "make bench-e2e" runs what belongs together, each in a process of its own.
func BenchmarkScheduling(b *testing.B) {
	taker, err := takerFromEnv()
	require.NoError(b, err)
	for _, variant := range variants {
		b.Run(variant, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "cases.yaml")
			content, err := casesFor(variant, b.TempDir(), taker.turns())
			require.NoError(b, err)
			require.NoError(b, os.WriteFile(file, content, 0o600))
			perf.RunBenchmarkPerfScheduling(b, file, variant, registry(), perfOptions(variant, taker)...)
		})
	}
}

// casesFor returns cases.yaml with the configuration of a variant in every case; one that is made for it is in dir.
// With turns above 0 the cases that can be are measured in so many turns.
func casesFor(variant, dir string, turns int) ([]byte, error) {
	path, err := configOf(variant, dir)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile("cases.yaml")
	if err != nil {
		return nil, err
	}
	var cases []map[string]any
	if err := yaml.UnmarshalStrict(content, &cases); err != nil {
		return nil, err
	}
	inTurns := turnCases()
	for _, c := range cases {
		if path != "" {
			c["schedulerConfigPath"] = path
		}
		if name, _ := c["name"].(string); turns > 0 && slices.Contains(inTurns, name) {
			if err := splitIntoTurns(c, turns); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return yaml.Marshal(cases)
}

// registry returns the pack's plugins, as cmd/scheduler registers them.
func registry() frameworkruntime.Registry {
	r := frameworkruntime.Registry{}
	maps.Copy(r, plugins.NewPack(plugins.WithoutElection()).Factories())
	return r
}

// perfOptions returns what scheduler_perf does for a variant beside the steps of a case.
func perfOptions(variant string, taker *turnTaker) []perf.SchedulerPerfOption {
	all := []perf.SchedulerPerfOption{perf.WithPrepareFn(inTurn(installCRDs, recordMembers))}
	var rest perf.NodeUpdateFn
	if variant == reserveCache || variant == zonewise {
		rest = waitForHolds
	}
	if taker != nil {
		rest = taker.afterNodes(rest)
	}
	if rest != nil {
		all = append(all, perf.WithNodeUpdateFn(rest))
	}
	return all
}

// waitForHolds waits until all reservations, if there are any yet, hold what they ask for, and nothing has been written to
// a reservation for a while.
func waitForHolds(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload, _ *v1.NodeList) error {
	const rest = 5 // polls
	resource := zonewisev1alpha1.SchemeGroupVersion.WithResource("zonereservations")
	var all, ready int
	var seen []string
	equal := 0
	err := wait.PollUntilContextTimeout(tCtx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := tCtx.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		all, ready = len(list.Items), 0
		versions := make([]string, len(list.Items))
		for i := range list.Items {
			r := &zonewisev1alpha1.ZoneReservation{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, r); err != nil {
				return false, err
			}
			if meta.IsStatusConditionTrue(r.Status.Conditions, zonewisev1alpha1.ConditionReady) {
				ready++
			}
			versions[i] = r.ResourceVersion
		}
		if equal++; !slices.Equal(versions, seen) {
			seen, equal = versions, 0
		}
		return all == 0 || ready == all && equal >= rest, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d reservations are ready, and nothing was written about them for %d seconds: %w", ready, all, equal, err)
	}
	return nil
}

// installCRDs gives every variant, the in-tree one too, an API server with the pack's resources.
func installCRDs(tCtx ktesting.TContext) error {
	files, err := manifests.FS.ReadDir("crds")
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Name() == "kustomization.yaml" {
			continue
		}
		content, err := manifests.FS.ReadFile("crds/" + file.Name())
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
		crds := tCtx.APIExtensions().ApiextensionsV1().CustomResourceDefinitions()
		if _, err := crds.Create(tCtx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
		if err := waitForKind(tCtx, crd); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return nil
}

// waitForKind waits until the API server tells of the resource: the step createAny asks only once.
func waitForKind(tCtx ktesting.TContext, crd *apiextensionsv1.CustomResourceDefinition) error {
	version := crd.Spec.Group + "/" + crd.Spec.Versions[0].Name
	return wait.PollUntilContextTimeout(tCtx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		list, err := tCtx.Client().Discovery().ServerResourcesForGroupVersion(version)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == crd.Spec.Names.Kind }), nil
	})
}
