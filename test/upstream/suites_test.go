package upstream

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/upstream/withpack"
)

// suites are upstream's packages of tests of pod groups, below its test/integration.
var suites = []string{
	"scheduler/podgroup", "scheduler/podgroup/queueing", "scheduler/podgroup/topology_aware_scheduling", "scheduler/preemption/podgroup",
}

var (
	// only says which of upstream's tests to run, for a quick look.
	only   = flag.String("tests", "", "which of upstream's tests to run, as in -test.run")
	config = flag.String("config", "permitgate.yaml", "the file of config/ whose profile the scheduler gets")
)

// TestUpstreamSuites runs each with PermitGate in the scheduler's profile, and what fails there without it, too.
func TestUpstreamSuites(t *testing.T) {
	overlay := writeOverlay(t, goCommand(t, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	setEnvironment(t)
	for _, name := range suites {
		t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) { // -run takes a slash for a level
			t.Parallel()
			binary := filepath.Join(t.TempDir(), "suite.test")
			goCommand(t, "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./suites/"+name)
			with := runSuite(t, binary, *config, *only)
			require.Greater(t, len(with), 1, "it has tests")
			for _, test := range listed(t, binary, *only) {
				require.Contains(t, with, test, "it did not run with PermitGate:\n%s", with[whole].tail())
				require.True(t, marked(with, test), "%s made no scheduler with PermitGate", test)
			}
			failed := failures(with)
			t.Logf("%d of %d tests and subtests fail with PermitGate", len(failed), len(with)-1)
			alone := map[string]*outcome{}
			if len(failed) > 0 {
				alone = runSuite(t, binary, "", pattern(failed))
			}
			for _, fault := range compare(differences[name], upstreams[name], failed, alone) {
				t.Error(fault)
			}
		})
	}
}

// setEnvironment has the suites find etcd, and their API server its own files: it looks for them beside its sources,
// whose paths -trimpath makes relative to the module cache, or where Bazel says.
func setEnvironment(t *testing.T) {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", "bin")
	}
	assets, err := filepath.Abs(assets)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(assets, "etcd"), `"make controlplane" builds it`)
	t.Setenv("PATH", assets+string(filepath.ListSeparator)+os.Getenv("PATH"))
	above, cache := filepath.Split(goCommand(t, "env", "GOMODCACHE"))
	t.Setenv("TEST_SRCDIR", above)
	t.Setenv("TEST_WORKSPACE", cache)
}

// outcome is what became of a test of a suite.
type outcome struct {
	action string // pass, fail or skip; empty for one that has begun and not ended
	output []string
}

// whole is the name of the outcome of the process, which fails without a failed test when it leaves goroutines behind,
// for one.
const whole = "the process"

// runSuite runs the tests of a suite and returns what became of each, by its name. A failed subtest is not its parent's
// failure as well.
func runSuite(t *testing.T, binary, config, tests string) map[string]*outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "tool", "test2json", binary, "-test.v=test2json", "-test.timeout=20m", "-test.run="+tests)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), withpack.Env+"="+config)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	outcomes := map[string]*outcome{}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &event), lines.Text())
		if event.Test == "" {
			event.Test = whole
		}
		o := outcomes[event.Test]
		if o == nil {
			o = &outcome{}
			outcomes[event.Test] = o
		}
		switch event.Action {
		case "output":
			o.output = append(o.output, event.Output)
		case "pass", "fail", "skip":
			o.action = event.Action
		}
	}
	require.NoError(t, lines.Err())
	var exit *exec.ExitError
	if err := command.Wait(); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.Contains(t, outcomes, whole)
	blameLeaves(outcomes)
	return outcomes
}

// blameLeaves has a failed test pass if one of its subtests has failed, and the process if any test has.
func blameLeaves(outcomes map[string]*outcome) {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(outcomes))) { // subtests come first
		if name == whole || outcomes[name].passed() {
			continue
		}
		outcomes[whole].action = "pass"
		for above := name; strings.Contains(above, "/"); {
			above = above[:strings.LastIndex(above, "/")]
			outcomes[above].action = "pass"
		}
	}
}

func (o *outcome) passed() bool { return o.action == "pass" || o.action == "skip" }

// listed returns the names of the tests of a suite.
func listed(t *testing.T, binary, tests string) []string {
	t.Helper()
	tests, _, _ = strings.Cut(tests, "/")
	output, err := exec.CommandContext(t.Context(), binary, "-test.list="+cmp.Or(tests, ".")).Output()
	require.NoError(t, err)
	names := slices.DeleteFunc(strings.Fields(string(output)), func(name string) bool { return !strings.HasPrefix(name, "Test") })
	require.NotEmpty(t, names)
	return names
}

// marked reports whether a scheduler of a test, or of one of its subtests, had PermitGate.
func marked(outcomes map[string]*outcome, test string) bool {
	for name, o := range outcomes {
		if (name == test || strings.HasPrefix(name, test+"/")) && strings.Contains(strings.Join(o.output, ""), withpack.Mark) {
			return true
		}
	}
	return false
}

func failures(outcomes map[string]*outcome) map[string]*outcome {
	failed := maps.Clone(outcomes)
	maps.DeleteFunc(failed, func(_ string, o *outcome) bool { return o.passed() })
	return failed
}

// pattern matches the tests, with all of their subtests, that have failures; all if it is that of the process.
func pattern(failed map[string]*outcome) string {
	if failed[whole] != nil {
		return *only
	}
	tests := map[string]bool{}
	for name := range failed {
		test, _, _ := strings.Cut(name, "/")
		tests["^"+test+"$"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(tests)), "|")
}

// compare returns what fails and is not listed for it, in the table of what fails only with PermitGate or in that of
// what fails without it, too; and what is listed and passes.
func compare(onlyWith, inBoth map[string]string, failed, alone map[string]*outcome) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		reason, how := onlyWith[name], "fails only with PermitGate"
		switch o := alone[name]; {
		case o == nil:
			reason, how = "", "fails with PermitGate, and did not run without it"
		case !o.passed():
			reason, how = inBoth[name], "fails, without PermitGate, too"
		}
		if reason == "" {
			faults = append(faults, name+" "+how+":\n"+failed[name].tail())
		}
	}
	for _, table := range []map[string]string{onlyWith, inBoth} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if failed[name] == nil {
				faults = append(faults, name+" is listed in differences_test.go, and passes with PermitGate")
			}
		}
	}
	return faults
}

func (o *outcome) tail() string { return strings.Join(o.output[max(len(o.output)-40, 0):], "") }

func TestBlameLeaves(t *testing.T) {
	outcomes := map[string]*outcome{
		"T": {action: "fail"}, "T/a": {action: "pass"}, "T/b": {action: "fail"}, "U": {action: "fail"}, "U/a": {action: "skip"}, whole: {action: "fail"},
	}
	blameLeaves(outcomes)
	failed := maps.Collect(maps.All(outcomes))
	maps.DeleteFunc(failed, func(_ string, o *outcome) bool { return o.passed() })
	require.ElementsMatch(t, []string{"T/b", "U"}, slices.Collect(maps.Keys(failed)))

	leaks := map[string]*outcome{"T": {action: "pass"}, whole: {action: "fail"}}
	blameLeaves(leaks)
	require.False(t, leaks[whole].passed())
}

func TestCompare(t *testing.T) {
	failed := map[string]*outcome{"T/a": {}, "T/b": {}, "U": {}}
	require.Equal(t, "^T$|^U$", pattern(failed))
	alone := map[string]*outcome{"T/a": {action: "pass"}, "T/b": {action: "fail"}, "U": {action: "pass"}}
	for _, tt := range []struct {
		onlyWith, inBoth []string
		fault            string
	}{
		{[]string{"T/a", "U"}, []string{"T/b"}, ""},
		{[]string{"T/a"}, []string{"T/b"}, "U fails only with PermitGate"},
		{[]string{"T/a", "U"}, nil, "T/b fails, without PermitGate, too"},
		{[]string{"T/a", "U", "V"}, []string{"T/b"}, "V is listed"},
		{[]string{"T/a", "U"}, []string{"T/b", "V"}, "V is listed"},
	} {
		table := func(names []string) map[string]string {
			reasons := map[string]string{}
			for _, name := range names {
				reasons[name] = "a reason"
			}
			return reasons
		}
		faults := compare(table(tt.onlyWith), table(tt.inBoth), failed, alone)
		if tt.fault == "" {
			require.Empty(t, faults)
			continue
		}
		require.Len(t, faults, 1)
		require.Contains(t, faults[0], tt.fault)
	}
	require.Len(t, compare(nil, nil, failed, nil), 3, "nothing ran without PermitGate")
}

func TestMarked(t *testing.T) {
	outcomes := map[string]*outcome{"T": {}, "T/a": {output: []string{withpack.Mark + "\n"}}, "TU": {}}
	require.True(t, marked(outcomes, "T"))
	require.False(t, marked(outcomes, "TU"))
}
