package command

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/program"
	"zonewise.dev/test/clitest"
)

// TestPrintedCommandsAreAboutThisCluster: what the tools tell to run is about the cluster that they show, under the
// name they have.
func TestPrintedCommandsAreAboutThisCluster(t *testing.T) {
	self := os.Args[0]
	defer func() { os.Args[0] = self }()
	file := saved(t)
	page := filepath.Join(t.TempDir(), "board.html")
	ok(t, "board", "--snapshot", file, "--output", page)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "zonewise --snapshot="+file+" explain podgroup/train -n shop")

	os.Args[0] = "/usr/local/bin/kubectl-zonewise"
	out := ok(t, "explain", "train-0", "-n", "shop", "--snapshot", file)
	require.Contains(t, out, "kubectl zonewise --snapshot="+file+" explain podgroup/train -n shop says whether they fit")

	var flags clusterFlags
	cmd := newRoot(nil)
	flags.register(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--context", "it's prod", "--as-group", "a", "--as-group", "b", "--token", "secret", "--insecure-skip-tls-verify"}))
	require.Equal(t, `kubectl zonewise --as-group=a --as-group=b --context='it'\''s prod' --insecure-skip-tls-verify=true`, flags.invocation())
}

// TestKubectlsHabits: what people type who know kubectl.
func TestKubectlsHabits(t *testing.T) {
	file := saved(t)
	for line, want := range map[string]string{
		"status -A -n shop":                             "Gang",
		"status --all-namespaces":                       "shop/web",
		"status -o wide":                                "Deployment shop/web  5m     default-scheduler  0/6 nodes are available",
		"status -n shop -o name":                        "zonespreadpolicy.zonewise.dev/web\nzonereservation.zonewise.dev/web-failover\n",
		"status -o yaml":                                "kind: Status\n",
		"explain pod web-1-7 -n shop":                   "Pod shop/web-1-7",
		"explain pods/web-1-7 -n shop":                  "Pod shop/web-1-7",
		"explain deployment web -n shop":                "Pod shop/web-1-7 of Deployment shop/web",
		"explain deploy/web -n shop":                    "note: Deployment shop/web: 1 of 7 pods without a node; this is the one that has waited longest",
		"explain rs/web-1 -n shop -o json":              `"kind": "Explanation"`,
		"simulate --lose-zone a -o json --fail-on none": `"kind": "Simulation"`,
	} {
		require.Contains(t, ok(t, append(strings.Fields(line), "--snapshot", file)...), want, line)
	}
	require.Contains(t, ok(t, "version", "-o", "yaml"), "gitVersion: v")
}

// TestNamesAreCompleted: of the cluster's objects, in the ways that the argument may be written.
func TestNamesAreCompleted(t *testing.T) {
	file := saved(t)
	for line, want := range map[string]string{
		"explain -n shop |web-1-7":     "web-1-7",
		"explain -n shop |pod/web-1-7": "pod/web-1-7",
		"explain pod -n shop |web-1-7": "web-1-7",
		"explain -n shop |pg/tr":       "pg/train",
		"explain deployment -n shop |": "db\nweb",
		"explain -n default |web":      "",
		"simulate --lose-zone |":       "a\nb\nc",
		"simulate --lose-node |node-b": "node-b0\nnode-b1",
		"simulate --like |node-b1":     "node-b1",
		"status -n |":                  "shop",
	} {
		before, word, _ := strings.Cut(line, "|")
		args := append([]string{"__complete"}, strings.Fields(before)...)
		args = append(args[:2], append([]string{"--snapshot", file}, args[2:]...)...)
		_, out, _ := zonewise(t.Context(), append(args, word)...)
		require.Equal(t, strings.TrimSpace(want+"\n:4"), strings.TrimSpace(out), line)
	}
}

// TestAPipe: a snapshot goes through standard output and input.
func TestAPipe(t *testing.T) {
	var pipe, out bytes.Buffer
	require.NoError(t, snapshot.Encode(&pipe, clitest.Story().Snapshot))
	root := newRoot(nil)
	root.SetArgs([]string{"status", "--snapshot", "-"})
	root.SetIn(&pipe)
	root.SetOut(&out)
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "shop/web")
}

// answering is an API server that has what the answers say, by path, and nothing else.
func answering(t *testing.T, answers map[string]string) (kubeconfig string) {
	t.Helper()
	base := map[string]string{
		"/api":  `{"kind":"APIVersions","apiVersion":"v1","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[
{"name":"nodes","namespaced":false,"kind":"Node","verbs":["list"]},{"name":"pods","namespaced":true,"kind":"Pod","verbs":["list"]},
{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]}]}`,
		"/api/v1/pods": `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[
{"metadata":{"name":"n1","uid":"1","labels":{"topology.kubernetes.io/zone":"a"}},"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}},
{"metadata":{"name":"n2","uid":"2","labels":{"topology.kubernetes.io/zone":"b"}},"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},"conditions":[{"type":"Ready","status":"True"}]}}]}`,
	}
	maps.Copy(base, answers)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer, ok := base[r.URL.Path]; ok {
			_, _ = w.Write([]byte(answer))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`))
	}))
	t.Cleanup(server.Close)
	return kubeconfigFor(t, server.URL)
}

// TestAPIsOfALaterVersion are there, and an answer without them is not the whole answer.
func TestAPIsOfALaterVersion(t *testing.T) {
	kubeconfig := answering(t, map[string]string{
		"/apis":                      `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"zonewise.dev","versions":[{"groupVersion":"zonewise.dev/v1beta1","version":"v1beta1"}],"preferredVersion":{"groupVersion":"zonewise.dev/v1beta1","version":"v1beta1"}}]}`,
		"/apis/zonewise.dev/v1beta1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"zonewise.dev/v1beta1","resources":[{"name":"zonereservations","namespaced":false,"kind":"ZoneReservation","verbs":["list"]}]}`,
	})
	const served = "zonereservations.zonewise.dev are served as v1beta1, which this version of the program does not read"
	out := ok(t, "status", "--kubeconfig", kubeconfig)
	require.Contains(t, out, served)
	require.Contains(t, out, "zonespreadpolicies.zonewise.dev are not installed")
	code, _, errs := zonewise(t.Context(), "simulate", "--lose-zone", "a", "--kubeconfig", kubeconfig)
	require.Equal(t, exitCodes[errPartial], code)
	require.Contains(t, errs, served)
}

// TestAConfigMapWithTheConfiguration is read from the cluster, and a plugin that only the user's scheduler has is
// named.
func TestAConfigMapWithTheConfiguration(t *testing.T) {
	configMap := func(plugin string) string {
		return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"kube-system","name":"x"},"data":{"config.yaml":` +
			`"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: theirs\n  plugins: {multiPoint: {enabled: [{name: ` + plugin + `}]}}\n"}}`
	}
	pods := `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"namespace":"shop","name":"p","uid":"p"},"spec":{"schedulerName":"theirs","containers":[{"name":"c","image":"i"}]}}]}`
	for plugin, want := range map[string]string{
		"NodeResourcesFit": "",
		"TheirOwn":         "profiles[0].plugins: TheirOwn is not in this program: correct its name, or if your scheduler has it, have that scheduler serve as the command line, too, as examples/own-plugins does",
	} {
		kubeconfig := answering(t, map[string]string{"/api/v1/namespaces/kube-system/configmaps/x": configMap(plugin), "/api/v1/pods": pods})
		code, out, errs := zonewise(t.Context(), "explain", "p", "-n", "shop", "--kubeconfig", kubeconfig, "--config", "configmap/kube-system/x")
		if want != "" {
			require.Contains(t, errs, want)
			continue
		}
		require.Equal(t, program.OK, code, errs)
		require.Contains(t, out, "scheduler theirs")
		require.NotContains(t, out, "has no profile for")
	}
	code, _, errs := zonewise(t.Context(), "explain", "p", "-n", "shop", "--kubeconfig", answering(t, nil), "--config", "configmap/kube-system/x")
	require.Equal(t, program.Failed, code)
	require.Contains(t, errs, "--config: not found")
}

// TestWhoLeads: the second scheduler's lease says that it is there before any pod names it, and leases that none renews
// make Unknown what only a scheduler keeps current.
func TestWhoLeads(t *testing.T) {
	c := clitest.Story()
	explained := func() string { return ok(t, "explain", "web-1-7", "-n", "shop", "--snapshot", savedAs(t, c.Snapshot)) }
	shown := func() (s status.Report) {
		require.NoError(t, json.Unmarshal([]byte(ok(t, "status", "--snapshot", savedAs(t, c.Snapshot), "-o", "json")), &s))
		return s
	}
	c.Leases = []snapshot.Lease{{Name: "kube-scheduler", Renewed: clitest.Now}}
	require.NotContains(t, explained(), "has no profile for the scheduler")
	require.Equal(t, status.Infeasible, shown().Policies[0].State)
	c.Leases = append(c.Leases, snapshot.Lease{Name: "zonewise-scheduler", Renewed: clitest.Now})
	require.Contains(t, explained(), `the configuration has no profile for the scheduler "default-scheduler", but for zonewise-scheduler`)

	for i := range c.Leases {
		c.Leases[i].Renewed = clitest.Now.Add(-7 * 24 * time.Hour)
	}
	s := shown()
	require.Equal(t, []string{status.Unknown, status.Unknown}, []string{s.Policies[0].State, s.Reservations[0].State})
	require.Contains(t, s.Notes, "no scheduler has renewed its lease for 7d: what policies and reservations say is of then")
}

// TestRequestsAreLogged with -v, as kubectl does.
func TestRequestsAreLogged(t *testing.T) {
	t.Cleanup(func() { klog.SetLogger(logr.Discard()) })
	kubeconfig := answering(t, nil)
	_, _, quiet := zonewise(t.Context(), "status", "--kubeconfig", kubeconfig)
	require.Empty(t, quiet)
	_, _, errs := zonewise(t.Context(), "status", "--kubeconfig", kubeconfig, "-v", "8")
	require.Contains(t, errs, "/api/v1/nodes")
}
