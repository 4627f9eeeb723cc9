package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/internal/docs"
)

// What runs the commands in blocks of the language "console", as package and test, or as a script. Those in blocks of the
// language "sh" are run as they stand, by TestGuides (test/manifests), and the others of the program zonewise by
// TestDocumentedCommands (cmd/zonewise).
var (
	// byTarget is for make.
	byTarget = map[string]string{
		"bench":        "test/docs TestBenchmarksExist", // and the benchmarks are compiled with the tests of their package
		"bench-e2e":    "test/performance/e2e TestSmallestWorkloads",
		"build":        "hack/tests/lib_test.sh",
		"chaos":        "test/chaos TestSeeds",
		"views":        "test/chaos TestTable",
		"chaos-blind":  "test/chaos TestBlind",
		"chaos-flood":  "test/chaos TestFlood",
		"chaos-soak":   "test/chaos TestSoak",
		"controlplane": "hack/test.sh", // its first step
		"demo":         "test/demo TestDemo",
		"image":        "hack/image TestPushAttachesTheSBOMs",
		"integration":  "hack/test.sh",
		"test":         "hack/tests/test_runner_test.sh",
		"unit":         "hack/tests/test_runner_test.sh",
		"update":       "hack/tests/verify_test.sh",
		"verify":       "hack/tests/verify_test.sh",
	}
	// byCommand is for all others. What needs a machine of its own (a node of a control plane, a container runtime) names
	// the test of what it does there.
	byCommand = map[string]string{
		"hack/upgrade-k8s.sh --dry-run v1.38.0": "hack/tests/upgrade_k8s_test.sh",
		"hack/upgrade-k8s.sh v1.38.0":           "hack/tests/upgrade_k8s_test.sh",

		"bin/zonewise-scheduler --version":                                             "hack/tests/lib_test.sh",
		"sudo kill -USR2 \"$(pidof kube-scheduler)\"":                                  "cmd/scheduler TestDumpOnSignal",
		"sudo install bin/zonewise /usr/local/bin/kubectl-zonewise":                    "test/cli TestCommandLine",
		"source <(zonewise completion bash)":                                           "cmd/zonewise TestCompletion",
		"zonewise snapshot cluster.json.gz":                                            "test/cli TestCommandLine",
		"go run ./test/chaos/run -record dist/chaos/7/record.json.gz":                  "test/chaos/run TestJudgeAgain",
		"cd test/performance/e2e && go run . -table":                                   "test/performance/e2e TestTable",
		"cd test/performance/e2e && go run . -table -turns 12":                         "test/performance/e2e TestTurnTable",
		"export KUBECONFIG=/tmp/zonewise-demo-1234567890/admin.kubeconfig":             "test/demo TestDemo",
		"bin/kubectl get pods -A -o wide":                                              "hack/test.sh",
		"sudo ctr --namespace k8s.io images import zonewise-scheduler.oci.tar":         "hack/image TestArchiveIsTheLayout",
		"kubectl --namespace kube-system rollout status deployment/zonewise-scheduler": "test/manifests TestManifests",
		"kubectl --namespace kube-system logs deployment/zonewise-scheduler":           "test/manifests TestManifests",

		// Those of the control-plane node: TestManifests runs the scheduler with the static pod's command and the rights of
		// kubeadm's user, TestChart stops it and starts stock kube-scheduler in its place.
		"sudo mkdir -p /etc/kubernetes/zonewise /etc/kubernetes/patches":                                                                               "test/manifests TestManifests",
		"sudo cp manifests/kubeadm/zonewise.yaml /etc/kubernetes/zonewise/":                                                                            "test/manifests TestManifests",
		"sudo cp manifests/kubeadm/patches/kube-scheduler*.yaml /etc/kubernetes/patches/":                                                              "test/manifests TestManifests",
		"sudo sed -i 's|image: .*|image: registry.example.com/team/zonewise-scheduler:v1|' /etc/kubernetes/patches/kube-scheduler0+strategic.yaml":     "test/manifests TestManifests",
		"sudo kubeadm init phase control-plane scheduler --kubernetes-version v1.37.1 --patches /etc/kubernetes/patches":                               "test/manifests TestManifests",
		"sudo kubeadm init phase control-plane scheduler --kubernetes-version v1.37.1":                                                                 "test/manifests TestChart",
		"sudo rm -r /etc/kubernetes/zonewise /etc/kubernetes/patches/kube-scheduler0+strategic.yaml /etc/kubernetes/patches/kube-scheduler1+json.yaml": "test/manifests TestChart",
		"sudo mv /etc/kubernetes/manifests/kube-scheduler.yaml /etc/kubernetes/kube-scheduler.yaml":                                                    "test/manifests TestManifests",
		"sudo mv /etc/kubernetes/kube-scheduler.yaml /etc/kubernetes/manifests/kube-scheduler.yaml":                                                    "test/manifests TestChart",

		// The walk-through, whose files the test applies and whose outputs are those of its run.
		"kubectl apply -f reservation.yaml -f service.yaml": "test/integration TestZoneFailover",
		"kubectl apply -f batch.yaml":                       "test/integration TestZoneFailover",
		"kubectl -n shop get deploy":                        "test/integration TestZoneFailover",
		"kubectl get zrsv":                                  "test/integration TestZoneFailover",

		"kubectl apply -f survival.yaml": "test/survival TestController",
		"kubectl get zsv":                "test/survival TestController",
		"kubectl apply -f hold.yaml":     "test/survival TestHold",

		"helm install zonewise manifests/charts/zonewise --namespace kube-system \\\n  --set image.repository=registry.example.com/team/zonewise-scheduler --set image.tag=v1": "test/manifests TestChart",
		"helm upgrade zonewise manifests/charts/zonewise --namespace kube-system --reset-then-reuse-values":                                                                    "test/manifests TestChart",
		"kubectl apply --server-side -k manifests/crds": "test/manifests TestGuides",
	}
)

// root is that of the repository.
var root = filepath.Join("..", "..")

// TestEveryCommandIsTested: a command that is written into the documentation is run by a test, or the tables say which test
// runs it. Entries that no document needs have to go.
func TestEveryCommandIsTested(t *testing.T) {
	commands, err := docs.All(root)
	require.NoError(t, err)
	for _, c := range commands["sh"] {
		require.Contains(t, docs.Guides, c.Path, "%s:%d: TestGuides does not run the blocks of this document: %s", c.Path, c.Line, c.Text)
	}
	require.Greater(t, len(commands["sh"]), 25)
	require.Greater(t, len(commands["console"]), 50)
	used := map[string]bool{}
	for _, c := range commands["console"] {
		if _, listed := byCommand[c.Text]; listed {
			used[c.Text] = true
			continue
		}
		words := strings.Fields(c.Text)
		switch words[0] {
		case "zonewise": // TestDocumentedCommands
		case "make":
			for _, word := range words[1:] {
				if name, _, isVariable := strings.Cut(word, "="); isVariable && name == strings.ToUpper(name) {
					break // and its value, which may have spaces
				}
				require.Contains(t, byTarget, word, "%s:%d: no test is known for %q", c.Path, c.Line, c.Text)
				used[word] = true
			}
		default:
			t.Errorf("%s:%d: no test is known for this command. Put it into a block of the language sh, or name its test in byCommand: %q", c.Path, c.Line, c.Text)
		}
	}
	for _, table := range []map[string]string{byCommand, byTarget} {
		for command, reference := range table {
			require.True(t, used[command], "no document has the command any more: %q", command)
			requireTest(t, reference)
		}
	}
}

// requireTest requires that a test exists: "package TestName", or the path of a script.
func requireTest(t *testing.T, reference string) {
	t.Helper()
	dir, name, isTest := strings.Cut(reference, " ")
	if !isTest {
		require.FileExists(t, filepath.Join(root, reference))
		return
	}
	require.Contains(t, functions(t, dir), name, reference)
}

// functions returns the names of the tests and benchmarks of a package.
func functions(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	require.NoError(t, err)
	var out []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			out = append(out, found[1])
		}
	}
	return out
}

// TestMakeTakesTheCommands asks make what it would do: the targets exist, and what they run.
func TestMakeTakesTheCommands(t *testing.T) {
	commands, err := docs.All(root)
	require.NoError(t, err)
	script := regexp.MustCompile(`\bhack/[\w/.-]+\.sh\b`)
	asked := 0
	for _, c := range commands["console"] {
		line, isMake := strings.CutPrefix(c.Text, "make ")
		if !isMake {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "make --dry-run --always-make "+line)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s:%d: %s\n%s", c.Path, c.Line, c.Text, out)
		for _, file := range script.FindAllString(string(out), -1) {
			require.FileExists(t, filepath.Join(root, file), c.Text)
		}
		asked++
	}
	require.Greater(t, asked, 10)
}

// TestBenchmarksExist: the groups of "make bench" that the documents name, the benchmarks of each group, and those that
// documents name by themselves (go test ... -bench NAME PACKAGE).
func TestBenchmarksExist(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "hack", "bench.sh"))
	require.NoError(t, err)
	groups := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^group_(\w+)\(\)`).FindAllStringSubmatch(string(source), -1) {
		groups[found[1]] = true
	}
	require.Greater(t, len(groups), 5)
	measured := 0
	for _, found := range regexp.MustCompile(`(?m)(?:^\t|\{ )measure (\S+) '?([^' ]+)'? \d`).FindAllStringSubmatch(string(source), -1) {
		dir := strings.ReplaceAll(found[1], "$PERFORMANCE", "./test/performance")
		requireBenchmark(t, dir, found[2], "hack/bench.sh")
		measured++
	}
	require.GreaterOrEqual(t, measured, len(groups))

	documents, err := docs.Read(root)
	require.NoError(t, err)
	named := 0
	for _, d := range documents {
		for _, found := range regexp.MustCompile(`BENCH_GROUPS='([^']*)'`).FindAllStringSubmatch(d.Text, -1) {
			for group := range strings.FieldsSeq(found[1]) {
				require.True(t, groups[group], "%s: hack/bench.sh has no group %q", d.Path, group)
				named++
			}
		}
		for _, found := range regexp.MustCompile("go test ([^`\n]*)").FindAllStringSubmatch(d.Text, -1) {
			var dir, pattern, run string
			words := strings.Fields(found[1])
			for i, word := range words {
				switch {
				case strings.HasPrefix(word, "./"):
					dir = word
				case i > 0 && words[i-1] == "-bench":
					pattern = strings.Trim(word, "'")
				case i > 0 && words[i-1] == "-run":
					run = strings.Trim(word, "'")
				}
			}
			require.DirExists(t, filepath.Join(root, dir), "%s: go test %s", d.Path, found[1])
			if pattern != "" {
				requireBenchmark(t, dir, pattern, d.Path)
				require.NotContains(t, functions(t, dir), run, "%s: -run is to keep the tests out", d.Path)
				named++
			}
		}
	}
	require.Greater(t, named, 5)
}

func requireBenchmark(t *testing.T, dir, pattern, where string) {
	t.Helper()
	matches := regexp.MustCompile(pattern).MatchString
	require.True(t, slices.ContainsFunc(functions(t, dir), func(name string) bool {
		bare, isBenchmark := strings.CutPrefix(name, "Benchmark")
		return isBenchmark && (matches(bare) || matches(name))
	}), "%s: %s has no benchmark %s", where, dir, pattern)
}

// TestNoCommandHides: what looks like a command stands in a block of a language for commands.
func TestNoCommandHides(t *testing.T) {
	documents, err := docs.Read(root)
	require.NoError(t, err)
	command := regexp.MustCompile(`^(\$ |(sudo |bin/)?(kubectl|zonewise|make|helm|go|git|docker|kubeadm|curl) )`)
	for _, d := range documents {
		blocks, err := d.Blocks()
		require.NoError(t, err)
		for _, b := range blocks {
			require.Contains(t, []string{"", "sh", "console", "yaml"}, b.Language, "%s:%d", b.Path, b.Line)
			if b.Shell() {
				continue
			}
			for line := range strings.Lines(b.Text) {
				if strings.HasSuffix(strings.TrimSpace(line), "[flags]") {
					continue // how it is used
				}
				require.False(t, command.MatchString(line), "%s:%d: a command in a block of the language %q: %s", b.Path, b.Line, b.Language, line)
			}
		}
		for line := range strings.Lines(d.Text) {
			bare := strings.TrimLeft(line, " ")
			if len(line)-len(bare) >= 4 {
				require.NotRegexp(t, `^(kubectl|zonewise|make|helm|go test|sudo) `, bare, "%s: an indented block", d.Path)
			}
		}
	}
}
