package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/simulate"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// saved returns a file with the story of package clitest.
func saved(t *testing.T) string {
	t.Helper()
	return savedAs(t, clitest.Story().Snapshot)
}

// savedAs returns a file with a cluster.
func savedAs(t testing.TB, s *snapshot.Snapshot) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.json.gz")
	require.NoError(t, snapshot.Save(file, s))
	return file
}

func TestCommandsReadASnapshot(t *testing.T) {
	file := saved(t)
	var s status.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, "status", "--snapshot", file, "-o", "json")), &s))
	require.Equal(t, status.Infeasible, s.Policies[0].State)

	var e explain.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, "explain", "web-1-7", "-n", "shop", "--snapshot", file, "-o", "json")), &e))
	require.Equal(t, "shop/web", e.Zone[0].Policies[0].Policy)

	out := ok(t, "explain", "pg/train", "-n", "shop", "--snapshot", file)
	require.Contains(t, out, "Gang shop/train")
	require.NotContains(t, out, "\x1b", "no colours where there is no terminal")

	code, out, errs := zonewise(t.Context(), "simulate", "--lose-zone", "any", "--snapshot", file, "-o", "yaml")
	require.Equal(t, exitCodes[errNotSurvived], code)
	require.Empty(t, errs)
	require.Contains(t, out, "survives: false")
	require.Equal(t, 3, strings.Count(out, "scenario: lose zone"))

	// A pod of web that has waited takes the place of the one that is lost.
	ok(t, "simulate", "--lose-node", "node-b1", "--fail-on", "policy,budget,gang", "--snapshot", file)
	ok(t, "simulate", "--lose-zone", "any", "--fail-on", "none", "--snapshot", file)

	moves := ok(t, "simulate", "--rebalance", "--fail-on", "balance", "--snapshot", file)
	require.Contains(t, moves, "no move: the pods are spread as their rules say")
	moves = ok(t, "simulate", "--lose-zone", "a", "--return", "--rebalance", "--fail-on", "balance", "--snapshot", file)
	require.Contains(t, moves, "1 move at once")

	workload := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(workload, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {requests: {cpu: \"3\"}}}]}\n"), 0o600))
	var r simulate.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, "simulate", "-f", workload, "--copies", "4", "--snapshot", file, "-o", "json")), &r))
	require.Equal(t, 4, r.Results[0].Placed)
	code, out, _ = zonewise(t.Context(), "simulate", "-f", workload, "--copies", "40", "--snapshot", file)
	require.Equal(t, exitCodes[errNotSurvived], code)
	require.Contains(t, out, "stay Pending")
}

// TestPartialDataIsNoSuccess: who may not read budgets gets no clean bill about them.
func TestPartialDataIsNoSuccess(t *testing.T) {
	c := clitest.New()
	c.Node("node-a", "a", "4", "8Gi")
	c.Node("node-b", "b", "4", "8Gi")
	c.Running("web", "1", nil, "node-a")
	for missing, want := range map[string]int{
		"poddisruptionbudgets.policy": exitCodes[errPartial], "zonereservations.zonewise.dev": exitCodes[errPartial], "zonesurvivals.zonewise.dev": program.OK,
		"zonerebalances.zonewise.dev": program.OK,
	} {
		c.Missing = []snapshot.Missing{{Resource: missing, Reason: snapshot.Forbidden}}
		file := savedAs(t, c.Snapshot)
		args := []string{"simulate", "--lose-zone", "a", "--fail-on", "budget", "--snapshot", file}
		code, _, errs := zonewise(t.Context(), args...)
		require.Equal(t, want, code, errs)
		if want != program.OK {
			require.Equal(t, "zonewise: what the simulation did not see may decide: you may not list "+missing+"; --allow-partial takes the answer as it is\n", errs)
		}
		c.Missing[0].Reason, c.Missing[0].Detail = snapshot.Unreadable, "the server was unable to return a response"
		require.NoError(t, snapshot.Save(file, c.Snapshot))
		_, _, errs = zonewise(t.Context(), args...)
		if want != program.OK {
			require.Contains(t, errs, "may decide: "+missing+" could not be read: the server was unable to return a response; --allow-partial")
		}
		ok(t, append(args, "--allow-partial")...)
		code, _, errs = zonewise(t.Context(), "simulate", "--lose-zone", "a", "--lose-zone", "b", "--snapshot", file)
		require.Equal(t, exitCodes[errNotSurvived], code, errs)
	}
}

func TestBadInputOfTheClusterCommands(t *testing.T) {
	file := saved(t)
	absent := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", absent)
	t.Setenv("HOME", t.TempDir())
	written := func(text string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	broken, empty := written("clusters: 3"), written("{apiVersion: v1, kind: Config}")
	unreachable := kubeconfigFor(t, "https://127.0.0.1:1")
	chosen, err := os.ReadFile(unreachable)
	require.NoError(t, err)
	undecided := written(strings.ReplaceAll(string(chosen), "current-context: c", ""))
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	slow := kubeconfigFor(t, silent.URL)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "-o", "xml"}, program.Misused, `--output: must be one of table, json, yaml, wide, name, got "xml"`},
		{[]string{"status", "--kubeconfig", unreachable, "--request-timeout", "soon"}, program.Failed, "kubeconfig: Invalid timeout value"},
		{[]string{"status", "--kubeconfig", slow, "--request-timeout", "50ms"}, program.Failed, "the API server has not answered in time: see --request-timeout"},
		{[]string{"status", "extra"}, program.Misused, `zonewise: status takes no arguments, got "extra"`},
		{[]string{"status", "--snapshot", file, "--context", "x"}, program.Misused, "--snapshot reads a file instead of a cluster: leave out --context"},
		{[]string{"status", "--snapshot", file, "--as", "jane"}, program.Misused, "--snapshot reads a file instead of a cluster: leave out --as"},
		{[]string{"status"}, program.Failed, "no kubeconfig found at " + absent + ": set --kubeconfig or $KUBECONFIG, or read a file with --snapshot"},
		{[]string{"explain", "x"}, program.Failed, "no kubeconfig found at " + absent},
		{[]string{"simulate", "--lose-zone", "any"}, program.Failed, "no kubeconfig found at " + absent},
		{[]string{"status", "--kubeconfig", empty}, program.Failed, "kubeconfig: no cluster in " + empty},
		{[]string{"status", "--kubeconfig", undecided}, program.Failed, "kubeconfig: no context is chosen in " + undecided},
		{[]string{"explain", "x", "--kubeconfig", undecided}, program.Failed, "kubeconfig: no context is chosen in " + undecided},
		{[]string{"explain", "x", "--kubeconfig", broken}, program.Failed, "kubeconfig: "},
		{[]string{"status", "--kubeconfig", broken}, program.Failed, "kubeconfig: "},
		{[]string{"status", "--kubeconfig", "missing"}, program.Failed, "missing"},
		{[]string{"status", "--kubeconfig", unreachable}, program.Failed, "the cluster at 127.0.0.1:1 does not answer: connect: connection refused"},
		{[]string{"status", "--kubeconfig", unreachable, "--context", "d"}, program.Failed, `context "d" does not exist`},
		{[]string{"status", "--snapshot", broken}, program.Failed, "not a snapshot"},
		{[]string{"explain"}, program.Misused, "want a NAME, TYPE/NAME or TYPE NAME, got 0 arguments"},
		{[]string{"explain", "pod", "a", "b"}, program.Misused, "want a NAME, TYPE/NAME or TYPE NAME, got 3 arguments"},
		{[]string{"explain", "a", "b"}, program.Misused, `"a/b": want a name`},
		{[]string{"explain", "node/x"}, program.Misused, `"node/x": want a name, pod/NAME, podgroup/NAME or the like for a workload, and the namespace in --namespace`},
		{[]string{"explain", "deploy/x", "--snapshot", file, "-n", "shop"}, program.Failed, "there is no pod of Deployment x in namespace shop"},
		{[]string{"explain", "x", "--snapshot", file, "-n", "absent"}, program.Failed, `namespaces "absent" not found`},
		{[]string{"status", "--snapshot", file, "-n", "absent"}, program.Failed, `namespaces "absent" not found`},
		{[]string{"board", "--snapshot", file, "-n", "absent", "--output", "x.html"}, program.Failed, `namespaces "absent" not found`},
		{[]string{"explain", "x", "--snapshot", file, "-o", "name"}, program.Misused, `--output: must be one of table, json, yaml, got "name"`},
		{[]string{"explain", "x", "--snapshot", file, "--config", "configmap/kube-system/x"}, program.Misused, "--config: a snapshot has no ConfigMaps: give the file"},
		{[]string{"explain", "x", "--config", "configmap/x"}, program.Misused, `--config: "configmap/x": want configmap/NAMESPACE/NAME, or a file`},
		{[]string{"simulate", "--lose-zone", "a", "--snapshot", "-", "--config", "-"}, program.Misused, "--snapshot and --config cannot both read standard input"},
		{[]string{"simulate", "--drain-node", "absent", "--snapshot", file}, program.Misused, `--drain-node: there is no node "absent"`},
		{[]string{"simulate", "--lose-zone", "a", "--server-dry-run"}, program.Misused, "--server-dry-run needs -f and a live cluster"},
		{[]string{"simulate", "-f", "-", "--snapshot", "-"}, program.Misused, "-f and --snapshot or --config cannot both read standard input"},
		{[]string{"explain", "pod/shop/x"}, program.Misused, `"pod/shop/x": want a name`},
		{[]string{"explain", "pod/"}, program.Misused, `"pod/": want a name`},
		{[]string{"explain", ""}, program.Misused, `"": want a name`},
		{[]string{"explain", "x", "--config", "missing.yaml"}, program.Failed, "--config: open missing.yaml: no such file or directory"},
		{[]string{"explain", "x", "--snapshot", file}, program.Failed, "there is no pod and no PodGroup x in namespace default\n"},
		{[]string{"explain", "web-1-7", "--snapshot", file}, program.Failed, "there is no pod and no PodGroup web-1-7 in namespace default; there is one in shop: set --namespace"},
		{[]string{"explain", "podgroup/train", "--snapshot", file}, program.Failed, "there is no PodGroup train in namespace default; there is one in shop: set --namespace"},
		{[]string{"explain", "pod/x", "--snapshot", file, "-n", "shop"}, program.Failed, "there is no pod x in namespace shop"},
		{[]string{"explain", "podgroup/x", "--snapshot", file, "-n", "shop"}, program.Failed, "there is no PodGroup x in namespace shop"},
		{[]string{"explain", "x", "--snapshot", file, "--feature-gates", "None=true"}, program.Misused, "--feature-gates: unrecognized feature gate: None"},
		{[]string{"simulate"}, program.Misused, "nothing to simulate: set --lose-zone, --lose-node, --drain-node, -f, --add-nodes or --rebalance"},
		{[]string{"simulate", "--return"}, program.Misused, "--return needs --lose-zone or --lose-node: nothing is lost"},
		{[]string{"simulate", "--lose-zone", "any,a"}, program.Misused, "--lose-zone: any cannot be combined with other zones"},
		{[]string{"simulate", "--lose-zone", "a", "--copies", "2"}, program.Misused, "--copies needs -f, the workloads to copy"},
		{[]string{"simulate", "-f", "x", "--copies", "0"}, program.Misused, "--copies: must be from 1 to 100000, got 0"},
		{[]string{"simulate", "--lose-zone", "a", "--fail-on", "rain"}, program.Misused, `--fail-on: must be some of pending, policy, budget, gang, drain, reservation, balance, or none, got "rain"`},
		{[]string{"simulate", "--lose-zone", "d", "--snapshot", file}, program.Misused, `--lose-zone: there is no zone "d", only a, b, c`},
		{[]string{"simulate", "-f", "missing.yaml"}, program.Failed, "-f: open missing.yaml: no such file or directory"},
		{[]string{"simulate", "--lose-zone", "a", "--config", "missing.yaml"}, program.Failed, "--config: open missing.yaml: no such file or directory"},
		{[]string{"simulate", "-f", broken, "--snapshot", file}, program.Misused, "-f: kubeconfig: "},
		{[]string{"snapshot"}, program.Misused, "name one file, got 0 arguments"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := zonewise(t.Context(), tc.args...)
			require.Equal(t, tc.code, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tc.want)
			require.True(t, strings.HasPrefix(stderr, "zonewise: "), stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		})
	}
}

// kubeconfigFor returns a file for the API server at an address.
func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "`+server+`"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`), 0o600))
	return file
}

func TestExplainSaysWhatDoesNotWait(t *testing.T) {
	c := clitest.Story()
	c.Pods()[0].Status.Phase = "Succeeded"
	code, _, errs := zonewise(t.Context(), "explain", c.Pods()[0].Name, "-n", "shop", "--snapshot", savedAs(t, c.Snapshot))
	require.Equal(t, program.Failed, code)
	require.Contains(t, errs, "pod shop/web-1-1 has finished: it does not wait")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, ok(t, "completion", shell), "zonewise")
	}
	require.Contains(t, ok(t, "__complete", "status", "-o", ""), "table\njson\nyaml\n")
	require.Contains(t, ok(t, "__complete", "simulate", "--fail-on", ""), "budget\n")
}

func TestAsAPluginOfKubectl(t *testing.T) {
	self := os.Args[0]
	defer func() { os.Args[0] = self }()
	os.Args[0] = "/usr/local/bin/kubectl-zonewise"
	require.Contains(t, ok(t, "status", "--help"), "kubectl zonewise status [flags]")
	os.Args[0] = "zonewise"
	require.Contains(t, ok(t, "status", "--help"), "\n  zonewise status [flags]")
}

// kubectl takes kubeconfigs whose user names an auth provider, and so must we.
func TestAKubeconfigWithOIDC(t *testing.T) {
	file := kubeconfigFor(t, "https://127.0.0.1:1")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	provider := `{auth-provider: {name: oidc, config: {client-id: x, idp-issuer-url: "https://idp.example.com", id-token: "a.b.c", refresh-token: r}}}`
	require.Contains(t, string(data), "{token: t}")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(data), "{token: t}", provider, 1)), 0o600))
	code, _, errs := zonewise(t.Context(), "status", "--kubeconfig", file)
	require.Equal(t, program.Failed, code)
	require.NotContains(t, errs, "no Auth Provider found")
}
