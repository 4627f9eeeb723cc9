package e2e

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/stretchr/testify/require"
)

var (
	focus = flag.String("focus", "", "a regular expression: run only the specs whose names it matches")
	logs  = flag.String("logs", "", "a directory for the logs of the programs and the specs, which stay there")
)

// The schedulers.
const (
	stock    = "kube-scheduler"
	zonewise = "zonewise"
)

// starts has for each scheduler the function that starts it.
var starts = map[string]func(*cluster){stock: (*cluster).startStock, zonewise: (*cluster).startZonewise}

// worlds are the feature gates of the clusters, and the specs that run there, by an expression over their labels.
// BetaOffByDefault is a label of those whose feature gate is off as Kubernetes is installed; for sig-scheduling's that
// is GenericWorkload.
var worlds = []struct{ name, gates, specs string }{
	{name: "default", specs: "!BetaOffByDefault"},
	{name: "GenericWorkload", gates: "GenericWorkload=true"},
}

// TestSpecs runs the specs in clusters of both schedulers, and compares their outcomes.
func TestSpecs(t *testing.T) {
	var lock sync.Mutex
	outcomes := map[string]map[string]outcome{} // by world and scheduler; guarded by lock
	t.Run("runs", func(t *testing.T) {
		for _, world := range worlds {
			for scheduler, start := range starts {
				name := world.name + "/" + scheduler
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c := startCluster(t, world.gates)
					start(c)
					c.runSystemPods()
					got := c.runSpecs(world.specs)
					lock.Lock()
					defer lock.Unlock()
					outcomes[name] = got
				})
			}
		}
	})
	for _, world := range worlds {
		t.Run(world.name, func(t *testing.T) {
			alone, with := outcomes[world.name+"/"+stock], outcomes[world.name+"/"+zonewise]
			require.NotNil(t, alone, "without kube-scheduler there is nothing to compare with")
			require.NotNil(t, with)
			t.Logf("of %d specs %d pass with kube-scheduler, and %d with Zonewise", len(with), passed(alone), passed(with))
			expected := maps.Clone(listed)
			if world.specs != "" || *focus != "" {
				maps.DeleteFunc(expected, func(name, _ string) bool { _, ran := alone[name]; return !ran })
			}
			for _, fault := range compare(alone, with, expected) {
				t.Error(fault)
			}
		})
	}
}

func passed(outcomes map[string]outcome) (n int) {
	for _, o := range outcomes {
		if o.passed() {
			n++
		}
	}
	return n
}

// compare returns what does not pass and is not listed, what is listed and passes or did not run, and what only one of
// the schedulers ran.
func compare(stock, zonewise map[string]outcome, listed map[string]string) (faults []string) {
	names := maps.Clone(listed)
	for name := range stock {
		names[name] = listed[name]
	}
	for name := range zonewise {
		names[name] = listed[name]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		alone, ran := stock[name]
		with, ranToo := zonewise[name]
		var fault string
		switch reason := names[name]; {
		case !ran && !ranToo:
			fault = "is listed in listed_test.go, and there is no such spec"
		case ran != ranToo:
			fault = "did not run with both schedulers"
		case reason != "" && (alone.passed() || with.passed()):
			fault = fmt.Sprintf("is listed in listed_test.go, and has %s with kube-scheduler and %s with Zonewise",
				alone.state, with.state)
		case reason != "" || alone.passed() && with.passed():
			continue
		case alone.passed():
			fault = fmt.Sprintf("passes with kube-scheduler, and has %s with Zonewise: %s", with.state, with.why)
		case with.passed():
			fault = fmt.Sprintf("passes with Zonewise, and has %s with kube-scheduler: %s", alone.state, alone.why)
		default:
			fault = fmt.Sprintf("has %s with kube-scheduler: %s\nand %s with Zonewise: %s", alone.state, alone.why, with.state, with.why)
		}
		faults = append(faults, name+" "+fault)
	}
	return faults
}

func TestCompare(t *testing.T) {
	pass, fail := outcome{state: types.SpecStatePassed}, outcome{state: types.SpecStateFailed, why: "late"}
	skip := outcome{state: types.SpecStateSkipped, why: "one node"}
	for _, tt := range []struct {
		name         string
		alone, with  outcome
		reason, want string
	}{
		{name: "both pass", alone: pass, with: pass},
		{name: "listed", alone: fail, with: fail, reason: "no kubelet"},
		{name: "listed, and skipped", alone: skip, with: skip, reason: "no kubelet"},
		{name: "ours fails", alone: pass, with: fail, want: "spec passes with kube-scheduler, and has failed with Zonewise: late"},
		{
			name: "kube-scheduler fails", alone: fail, with: pass,
			want: "spec passes with Zonewise, and has failed with kube-scheduler: late",
		},
		{
			name: "both fail", alone: fail, with: fail,
			want: "spec has failed with kube-scheduler: late\nand failed with Zonewise: late",
		},
		{
			name: "skipped", alone: skip, with: skip,
			want: "spec has skipped with kube-scheduler: one node\nand skipped with Zonewise: one node",
		},
		{
			name: "a stale entry", alone: pass, with: fail, reason: "no kubelet",
			want: "spec is listed in listed_test.go, and has passed with kube-scheduler and failed with Zonewise",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			listed := map[string]string{}
			if tt.reason != "" {
				listed["spec"] = tt.reason
			}
			require.Equal(t, want, compare(map[string]outcome{"spec": tt.alone}, map[string]outcome{"spec": tt.with}, listed))
		})
	}
	require.Equal(t, []string{
		"gone is listed in listed_test.go, and there is no such spec",
		"spec did not run with both schedulers",
	}, compare(map[string]outcome{"spec": pass}, nil, map[string]string{"gone": "no kubelet"}))
}
